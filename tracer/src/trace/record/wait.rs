//! Where threads were: off the processor and on it.

use serde::{Deserialize, Serialize};

use super::time::{FileId, Ns, Span, StackId, ThreadKey};

/// State a thread was in when it left the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// Still runnable, taken off by the scheduler.
    Preempted,
    /// Still runnable, gave way by itself (`sched_yield`).
    Yielded,
    /// `TASK_INTERRUPTIBLE`.
    Sleeping,
    /// `TASK_UNINTERRUPTIBLE`, killable included.
    Uninterruptible,
    /// SIGSTOP, ptrace or freezer.
    Stopped,
    /// `EXIT_DEAD` / `EXIT_ZOMBIE`: the last time.
    Dead,
    /// `TASK_IDLE`, parked: kernel threads without work.
    Idle,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Syscall {
    /// System-call number of the running architecture (x86-64).
    pub nr: i32,
    pub args: [u64; 6],
}

/// What is known of an ioctl on an NVIDIA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvidiaIoctl {
    pub command: u32,
    /// Inner RM control command where `command` is RM_CONTROL and user memory was readable.
    pub inner: Option<u32>,
}

/// What interrupted context a wake-up came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakerContext {
    /// The waker's own doing, softirq work done directly in its own system call included.
    Task,
    /// An interrupt (timer, device): the running thread only happened to be there.
    Interrupt,
    /// Not known: no kernel stack was taken.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waker {
    /// `None` when the waker was the idle task (always an interrupt).
    pub thread: Option<ThreadKey>,
    pub pid: u32,
    pub context: WakerContext,
    pub kernel_stack: StackId,
    /// Only where the wait was already past the threshold.
    pub user_stack: StackId,
    /// The waker's own system call from its saved registers.
    pub syscall: Option<i32>,
    /// The waker was itself inside an ioctl on an NVIDIA node.
    pub in_nvidia_ioctl: bool,
}

/// A finished stay off the processor that lasted at least the threshold, or one cut by the start or end of
/// the recording. `left <= woken <= ran` where present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffCpu {
    pub thread: ThreadKey,
    pub pid: u32,
    /// When it left the processor; the recording's start if `cut_start`.
    pub left: Ns,
    /// When it became runnable; `None` if it left runnable, or was not woken before the recording's end.
    pub woken: Option<Ns>,
    /// When it ran again; the recording's end if `cut_end`.
    pub ran: Ns,
    pub state: State,
    /// Already under way at attach.
    pub cut_start: bool,
    /// Still open when the recording ended.
    pub cut_end: bool,
    /// In a throttled group when it left / when it was woken.
    pub throttled: bool,
    pub cpu_left: u32,
    pub cpu_queued: u32,
    pub cpu_ran: u32,
    /// `nr_cpus_allowed`, and the first 256 bits of the mask.
    pub cpus_allowed: u32,
    pub cpu_mask: [u64; 4],
    /// `None`: it was in no system call, so in a fault (if it blocked) or preempted in user mode.
    pub syscall: Option<Syscall>,
    pub ioctl: Option<NvidiaIoctl>,
    /// 32 bits at the futex address when it left, for futex waits.
    pub futex_value: Option<u32>,
    pub file: Option<FileId>,
    /// A path argument read at switch-out (open, stat), where the call takes one.
    pub path_arg: Option<String>,
    pub kernel_stack: StackId,
    pub user_stack: StackId,
    pub waker: Option<Waker>,
}

/// Stays off the processor shorter than the threshold, added up. One per (thread, waker, system call, first
/// argument) and tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitTotal {
    pub thread: ThreadKey,
    pub pid: u32,
    pub waker: Option<ThreadKey>,
    pub waker_pid: u32,
    /// -1: in no system call.
    pub syscall: i32,
    pub arg0: u64,
    pub count: u64,
    pub blocked_ns: u64,
    pub runnable_ns: u64,
    pub throttled_ns: u64,
    /// Start of the first and end of the last stay.
    pub first: Ns,
    pub last: Ns,
}

/// A CPU sample of a target thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Ns,
    pub thread: ThreadKey,
    pub pid: u32,
    pub cpu: u32,
    pub kernel_stack: StackId,
    pub user_stack: StackId,
    /// Sampling periods from `at` on that it stands for: the thread's stack was one all that time, or not looked at
    /// again for the tracer's budget; 0 is one.
    pub periods: u32,
}

/// Who ran on a processor while a target waited for it, per tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanInstead {
    pub span: Span,
    pub cpu: u32,
    pub thread: ThreadKey,
    pub pid: u32,
    pub comm: String,
    pub ns: u64,
    pub target: bool,
}
