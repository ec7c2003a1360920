//! Who woke a target, from where, and for which processor.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::wire::{Thread, ThreadState, call, flags, kind, pid_bits};

use crate::globals::offset;
use crate::maps::{call_row, threshold_ns};
use crate::task::{Current, Task, pid_bits_of, set_pid_bits};
use crate::{emit, file, stack, threads, totals};

/// Runs on the waker's processor, in its context.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    if task.is_target(tid)
        && let Some(s) = threads::state(task, tid)
    {
        // SAFETY: a live element; `p->pi_lock` is held, so nobody else wakes this thread now.
        unsafe {
            (*s).waking_state = task.state();
            if (*s).left == 0 {
                // Asleep since before it became a target; this is the last moment its state can be seen.
                (*s).state = (*s).waking_state;
            }
            woken_by(&ctx, s);
            if task.throttled() {
                (*s).waker_flags |= flags::THROTTLED;
            }
        }
    }
    0
}

/// Where the thread was queued, known only after the wake-up chose.
#[btf_tracepoint(function = "sched_wakeup")]
pub fn sched_wakeup(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    if task.is_target(tid)
        && let Some(s) = threads::state(task, tid)
    {
        // SAFETY: a live element; the run-queue lock is held.
        unsafe { queued(s, task.cpu()) };
    }
    0
}

/// First wake-up of a new thread.
#[btf_tracepoint(function = "sched_wakeup_new")]
pub fn wakeup_new(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    if task.is_target(tid)
        && let Some(s) = threads::state(task, tid)
    {
        // SAFETY: a live element; the thread has not run yet.
        unsafe {
            woken_by(&ctx, s);
            queued(s, task.cpu());
        }
    }
    0
}

#[inline(always)]
unsafe fn queued(s: *mut ThreadState, cpu: u32) {
    // SAFETY: by contract of the callers.
    unsafe {
        // A wake-up that finds the thread still running queues nothing.
        if (*s).flags & flags::COUNTED != 0 || (*s).left < (*s).ran {
            return;
        }
        (*s).cpu_queued = cpu;
        (*s).flags |= flags::COUNTED;
        totals::waits_for(cpu, bpf_ktime_get_ns());
    }
}

#[inline(always)]
unsafe fn woken_by(ctx: &BtfTracePointContext, s: *mut ThreadState) {
    let ids = bpf_get_current_pid_tgid();
    let (tid, pid) = (ids as u32, (ids >> 32) as u32);
    let waker = Current::get();
    // SAFETY: by contract of the callers.
    unsafe {
        let now = bpf_ktime_get_ns();
        (*s).woken = now;
        (*s).waker_tid = tid;
        (*s).waker_pid = pid;
        (*s).waker_start = if tid == 0 { 0 } else { waker.start() };
        (*s).waker_user_stack = 0;
        (*s).waker_kernel_stack = 0;
        let mut f = flags::WAKER;
        let mut nr = -1;
        if tid != 0 && waker.has_user() {
            let regs = waker.regs();
            nr = regs.syscall();
            if nr >= 0
                && call_row(nr) & call::KIND_MASK == call::IOCTL
                && file::is_nvidia(waker.load::<u64>(offset!(task_files)) as *const u8, regs.arg0() as u32)
            {
                f |= flags::WAKER_NVIDIA;
            }
        }
        (*s).waker_syscall = nr;
        (*s).waker_flags = f;
        // Off the processor, and for a while: a stay this long is likely to end past the threshold, run
        // queue included, and then its waker's context is asked for.
        let off = if (*s).left >= (*s).ran { now - (*s).left.min(now) } else { 0 };
        let threshold = threshold_ns();
        if tid != 0 && off >= threshold / 4 {
            (*s).waker_kernel_stack = stack::kernel(ctx, stack::LOCKED);
            if off >= threshold && waker.has_user() {
                (*s).waker_user_stack = stack::user(ctx, stack::LOCKED, waker.regs(), pid);
            }
        }
        if tid != 0 && pid_bits_of(tid) & (pid_bits::TARGET | pid_bits::NAMED) == 0 {
            name(waker, tid, pid, now);
        }
    }
}

/// Names a waker that is no target, once.
#[inline(never)]
fn name(waker: Current, tid: u32, pid: u32, now: u64) {
    let sent = emit::lifecycle::<Thread>(|out| {
        // SAFETY: a reserved record, every byte of it written here.
        unsafe {
            (*out).kind = kind::THREAD;
            (*out).born = 0;
            (*out).at = now;
            (*out).start_boottime = waker.start();
            (*out).creator_start = 0;
            (*out).tid = tid;
            (*out).pid = pid;
            (*out).ppid = 0;
            (*out).creator_tid = 0;
            (*out).task_flags = waker.load(offset!(task_flags));
            (*out).target = 0;
            let comm = waker.address().wrapping_add(offset!(task_comm) as usize);
            aya_ebpf::helpers::generated::bpf_probe_read_kernel(
                (&raw mut (*out).comm).cast(),
                16,
                comm.cast(),
            );
        }
    });
    if sent {
        set_pid_bits(tid, pid_bits_of(tid) | pid_bits::NAMED);
    }
}
