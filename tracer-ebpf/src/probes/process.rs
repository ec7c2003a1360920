//! Births, renames, execs and exits: the target set follows them in the kernel.

use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_probe_read_kernel_str};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use tracer_ebpf::wire::{Exec, Exit, MISSING, Thread, flags, kind, pid_bits};

use crate::globals::{offset, setting};
use crate::maps::{LAYOUTS, THREADS};
use crate::task::{Current, Task, pid_bits_of, set_pid_bits};
use crate::{emit, python, threads};

/// The new task has its creator's memory, not a copy (`include/uapi/linux/sched.h`).
const CLONE_VM: u64 = 0x100;

/// Every new thread, process and io_uring worker passes here, in its creator's context.
#[btf_tracepoint(function = "task_newtask")]
pub fn task_newtask(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    let ids = aya_ebpf::helpers::bpf_get_current_pid_tgid();
    let creator = Current::get();
    inherit_layout(task.pid(), (ids >> 32) as u32);
    let inherits = if setting!(all) != 0 {
        task.pid() != setting!(own_tgid)
    } else {
        pid_bits_of(ids as u32) & pid_bits::TARGET != 0
    };
    if !inherits {
        // The id may be left over from a thread whose exit was missed.
        set_pid_bits(tid, 0);
        return 0;
    }
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    set_pid_bits(tid, pid_bits::TARGET | pid_bits::NAMED);
    python::born(ids as u32, tid, ctx.arg::<u64>(1) & CLONE_VM == 0);
    if let Some(s) = threads::state(task, tid) {
        // SAFETY: a live element of a thread that has not run yet.
        unsafe {
            (*s).left = now;
            (*s).flags |= flags::NEWBORN;
        }
    }
    if setting!(log) != 0 {
        debug!(&ctx, "{} is a target, its creator {} is one", tid, ids as u32);
    }
    emit::lifecycle::<Thread>(|out| {
        // SAFETY: a reserved record, every byte of it written here or in `identity`.
        unsafe {
            identity(out, task, tid, now);
            (*out).born = 1;
            (*out).creator_tid = ids as u32;
            (*out).creator_start = creator.start();
            task.comm(&raw mut (*out).comm);
        }
    });
    0
}

/// A new process has its creator's memory, or a copy of it.
#[inline(always)]
fn inherit_layout(pid: u32, creator: u32) {
    if pid == creator {
        return;
    }
    // SAFETY: copied out at once.
    match unsafe { LAYOUTS.get(creator) }.copied() {
        Some(layout) => LAYOUTS.insert(pid, layout, 0).ok(),
        // The id may be left over from a process that ended.
        None => LAYOUTS.remove(pid).ok(),
    };
}

#[btf_tracepoint(function = "task_rename")]
pub fn task_rename(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    if !task.is_target(tid) {
        // Named as it was; the next wake-up names it anew.
        set_pid_bits(tid, pid_bits_of(tid) & !pid_bits::NAMED);
        return 0;
    }
    let name: u64 = ctx.arg(1);
    emit::lifecycle::<Thread>(|out| {
        // SAFETY: a reserved record, every byte of it written here or in `identity`.
        unsafe {
            identity(out, task, tid, bpf_ktime_get_ns());
            (*out).comm = [0; 16];
            bpf_probe_read_kernel_str((&raw mut (*out).comm).cast(), 16, name as *const _);
        }
    });
    0
}

#[inline(always)]
unsafe fn identity(out: *mut Thread, task: Task, tid: u32, now: u64) {
    // SAFETY: by contract of the callers.
    unsafe {
        (*out).kind = kind::THREAD;
        (*out).born = 0;
        (*out).at = now;
        (*out).start_boottime = task.start();
        (*out).creator_start = 0;
        (*out).tid = tid;
        (*out).pid = task.pid();
        let parent: *const u8 = task.load(offset!(task_parent));
        let mut ppid = 0u32;
        let from = parent.wrapping_add(offset!(task_tgid) as usize);
        bpf_probe_read_kernel((&raw mut ppid).cast(), 4, from.cast());
        (*out).ppid = ppid;
        (*out).creator_tid = 0;
        (*out).task_flags = task.task_flags();
        (*out).target = 1;
    }
}

#[btf_tracepoint(function = "sched_process_exec")]
pub fn process_exec(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    let old_tid: u32 = ctx.arg(1);
    // What was mapped is no more.
    LAYOUTS.remove(task.pid()).ok();
    // A thread that is not the leader takes the leader's id.
    if setting!(all) == 0 && old_tid != tid && pid_bits_of(old_tid) & pid_bits::TARGET != 0 {
        set_pid_bits(old_tid, 0);
        set_pid_bits(tid, pid_bits::TARGET | pid_bits::NAMED);
    }
    if !task.is_target(tid) {
        return 0;
    }
    python::gone(tid);
    emit::lifecycle::<Exec>(|out| {
        // SAFETY: a reserved record, every byte of it written here.
        unsafe {
            (*out).kind = kind::EXEC;
            (*out).pid = task.pid();
            (*out).at = bpf_ktime_get_ns();
            (*out).start_boottime = task.start();
            (*out).tid = tid;
            (*out).old_tid = old_tid;
            (*out).image = Current::get().image();
            (*out).pad = 0;
            task.comm(&raw mut (*out).comm);
        }
    });
    0
}

#[btf_tracepoint(function = "sched_process_exit")]
pub fn process_exit(ctx: BtfTracePointContext) -> i32 {
    let task = Task(ctx.arg(0));
    let tid = task.tid();
    let target = task.is_target(tid);
    if target {
        python::gone(tid);
    }
    set_pid_bits(tid, 0);
    if target {
        if setting!(log) != 0 {
            debug!(&ctx, "{} is a target no more, it exits", tid);
        }
        emit::lifecycle::<Exit>(|out| {
            // SAFETY: a reserved record, every byte of it written here.
            unsafe {
                (*out).kind = kind::EXIT;
                (*out).pid = task.pid();
                (*out).at = bpf_ktime_get_ns();
                (*out).start_boottime = task.start();
                (*out).tid = tid;
                (*out).pad = 0;
                (*out).minor_faults = counted(task, offset!(task_min_flt));
                (*out).major_faults = counted(task, offset!(task_maj_flt));
            }
        });
        super::cuda::exits(tid);
        if THREADS.remove(tid).is_err() {
            // It never switched while it was a target.
            return 0;
        }
    }
    0
}

#[inline(always)]
fn counted(task: Task, offset: u32) -> u64 {
    if offset == MISSING { 0 } else { task.load(offset) }
}
