//! Scheduler family: per-thread state, finished off-CPU intervals, totals, who ran instead.

use super::stack::MAX_FRAMES;

pub const PATH_BYTES: usize = 256;

/// Bits of `OffCpu::flags`, `ThreadState::flags` and `ThreadState::waker_flags`.
pub mod flags {
    /// The scheduler took it off: `preempt` was set, or it left in state 0.
    pub const PREEMPT: u32 = 1;
    /// When it left was not seen.
    pub const CUT_START: u32 = 1 << 1;
    pub const THROTTLED: u32 = 1 << 2;
    pub const IOCTL: u32 = 1 << 3;
    pub const INNER: u32 = 1 << 4;
    pub const FUTEX: u32 = 1 << 5;
    pub const PATH: u32 = 1 << 6;
    /// A wake-up was seen; `waker_tid` 0 is then the idle task.
    pub const WAKER: u32 = 1 << 7;
    pub const WAKER_NVIDIA: u32 = 1 << 8;
    /// A kernel thread or an io_uring worker: its saved registers are no system call.
    pub const KERNEL_THREAD: u32 = 1 << 9;
    /// First run after its creation.
    pub const NEWBORN: u32 = 1 << 10;
    /// Counted in `CpuWait::waiting` of `cpu_queued`.
    pub const COUNTED: u32 = 1 << 11;
    /// `poll_fd` holds the first descriptor of the poll array.
    pub const POLL_FD: u32 = 1 << 12;
    /// Cleared when a stay off the processor is over; the others belong to the thread.
    pub const PER_STAY: u32 = PREEMPT
        | CUT_START
        | THROTTLED
        | IOCTL
        | INNER
        | FUTEX
        | PATH
        | WAKER
        | WAKER_NVIDIA
        | NEWBORN
        | POLL_FD;
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OffCpu {
    pub kind: u32,
    pub flags: u32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    /// 0 with [`flags::CUT_START`].
    pub left: u64,
    /// 0: not woken.
    pub woken: u64,
    pub ran: u64,
    /// `prev_state` as the tracepoint gave it.
    pub state: u32,
    pub cpu_left: u32,
    pub cpu_queued: u32,
    pub cpu_ran: u32,
    pub cpus_allowed: u32,
    /// `orig_ax`, -1 outside a system call.
    pub syscall: i32,
    pub cpu_mask: [u64; 4],
    pub args: [u64; 6],
    pub ioctl_command: u32,
    pub ioctl_inner: u32,
    pub futex_value: u32,
    pub waker_syscall: i32,
    pub waker_tid: u32,
    pub waker_pid: u32,
    pub waker_start: u64,
    pub waker_kernel_stack: u64,
    pub waker_user_stack: u64,
    pub kernel_stack: u64,
    pub user_stack: u64,
    pub file: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OffCpuPath {
    pub off: OffCpu,
    /// NUL-terminated.
    pub path: [u8; PATH_BYTES],
}

/// Everything kept of one target thread between two events.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadState {
    pub start_boottime: u64,
    pub tid: u32,
    pub pid: u32,
    /// Last switch-out, 0 before the first.
    pub left: u64,
    /// Last switch-in.
    pub ran: u64,
    /// Last waking since the last switch-in, 0 if none. Switch-out leaves it alone: a third of the wake-ups
    /// under an interpreter lock come before it.
    pub woken: u64,
    pub waker_start: u64,
    pub waker_kernel_stack: u64,
    pub waker_user_stack: u64,
    pub waker_tid: u32,
    pub waker_pid: u32,
    pub waker_syscall: i32,
    pub state: u32,
    pub flags: u32,
    pub cpu_left: u32,
    pub cpu_queued: u32,
    pub ioctl_command: u32,
    pub ioctl_inner: u32,
    pub futex_value: u32,
    pub poll_fd: u32,
    pub user_frames: u32,
    /// Bits that come with a wake-up. A word of their own: a waker may run at the same time as the switch-out.
    pub waker_flags: u32,
    /// Its state when it was last woken, see `sched_switch_3`.
    pub waking_state: u32,
    /// User instruction of the last file-backed fault, its file and its page.
    pub fault_ip: u64,
    pub fault_file: u64,
    pub fault_index: u64,
    /// The user stack is not walked again while these four stay the same.
    pub key_sp: u64,
    pub key_ip: u64,
    pub key_hash: u64,
    /// The interpreter's frame and instruction, 0 for a thread without Python.
    pub key_python: u64,
    /// Id of the stack in `user`, 0 until an interval needed it.
    pub user_id: u64,
    pub user: [u64; MAX_FRAMES],
    /// `Stack::end` of it.
    pub user_end: u32,
    /// State of the tables that it was walked by, see `wire::unwind::Table`.
    pub user_tables: u32,
    /// `Stack::image` of it.
    pub user_image: u32,
    pub pad: u32,
    pub path: [u8; PATH_BYTES],
}

/// Key of a total. `epoch` tells the half being filled from the half being read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TotalKey {
    pub start_boottime: u64,
    pub waker_start: u64,
    pub arg0: u64,
    pub tid: u32,
    pub waker_tid: u32,
    pub syscall: i32,
    pub epoch: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TotalValue {
    pub count: u64,
    pub blocked_ns: u64,
    pub runnable_ns: u64,
    pub throttled_ns: u64,
    pub first: u64,
    pub last: u64,
    pub pid: u32,
    pub waker_pid: u32,
}

/// One processor: how many targets wait for it, and since when the running thread stands in their way.
/// A cache line each, for wake-ups write to other processors' rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuWait {
    pub waiting: u64,
    /// 0: nobody waits.
    pub mark: u64,
    pub pad: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RanKey {
    pub start_boottime: u64,
    pub tid: u32,
    pub cpu: u32,
    pub epoch: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RanValue {
    pub ns: u64,
    pub pid: u32,
    pub target: u32,
    pub comm: [u8; 16],
}
