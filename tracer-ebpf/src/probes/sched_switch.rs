//! `sched_switch`: a target leaves the processor, a target comes back.

use aya_ebpf::helpers::generated::{
    bpf_get_prandom_u32, bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_probe_read_kernel,
    bpf_probe_read_user, bpf_probe_read_user_str,
};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::wire::{MISSING, OffCpu, OffCpuPath, PATH_BYTES, ThreadState, call, flags, kind, loss};

use crate::globals::offset;
use crate::maps::{THREADS, call_row, stack_every, threshold_ns};
use crate::task::{Regs, Task};
use crate::{emit, file, python, stack, threads, totals};

/// A thread that leaves for good (`include/linux/sched.h`).
const TASK_DEAD: u32 = 0x80;

/// `(preempt, prev, next, prev_state)`: since 5.18, backported to some older kernels.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let (prev, next) = (Task(ctx.arg(1)), Task(ctx.arg(2)));
    switch(&ctx, ctx.arg::<u64>(0) & 1 != 0, prev, next, |c, _| c.arg::<u32>(3))
}

/// What a waker puts in the place of the state, between `sched_waking` and the thread's next run.
const TASK_WAKING: u32 = 0x200;

/// `(preempt, prev, next)`: the state is the task's own, which a waker may have changed since the thread gave
/// way; `sched_waking` saw it before that.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch_3(ctx: BtfTracePointContext) -> i32 {
    let (prev, next) = (Task(ctx.arg(1)), Task(ctx.arg(2)));
    switch(&ctx, ctx.arg::<u64>(0) & 1 != 0, prev, next, |_, prev| prev.state())
}

#[inline(always)]
fn switch(
    ctx: &BtfTracePointContext,
    preempt: bool,
    prev: Task,
    next: Task,
    state: impl Fn(&BtfTracePointContext, Task) -> u32,
) -> i32 {
    let (prev_tid, next_tid) = (prev.tid(), next.tid());
    let (out, into) = (prev.is_target(prev_tid), next.is_target(next_tid));
    // SAFETY: helpers without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if out || into {
        // SAFETY: as above.
        let now = unsafe { bpf_ktime_get_ns() };
        if out {
            leave(ctx, prev, prev_tid, state(ctx, prev), preempt, cpu, now);
        }
        if into {
            enter(next, next_tid, cpu, now);
        }
        totals::charge(cpu, prev, prev_tid, out, now);
    } else {
        totals::charge_bystander(cpu, prev, prev_tid);
    }
    0
}

#[inline(always)]
fn leave(ctx: &BtfTracePointContext, prev: Task, tid: u32, state: u32, preempt: bool, cpu: u32, now: u64) {
    if state & TASK_DEAD != 0 {
        // Where every thread is a target, what it did since `process_exit` made its state anew.
        let _gone = THREADS.remove(tid);
        return;
    }
    let Some(s) = threads::state(prev, tid) else { return };
    // SAFETY: a live element.
    let state = if state == TASK_WAKING { unsafe { (*s).waking_state } } else { state };
    let runnable = preempt || state == 0;
    // SAFETY: a live element; the run-queue lock is held, so no other processor switches this thread.
    unsafe {
        if (*s).left > (*s).ran {
            // Its arrival was not announced (a host may hide the switches of its own agent, and with them who
            // came next): the stay that began then has no end.
            emit::lost(loss::OFF_CPU, loss::UNANNOUNCED, now - (*s).left.min(now));
        }
        // What came with a wake-up is left alone: it may belong to the stay that begins now.
        let mut f = (*s).flags & !flags::PER_STAY;
        if f & flags::COUNTED != 0 {
            totals::waits_no_more((*s).cpu_queued);
            f &= !flags::COUNTED;
        }
        if runnable {
            f |= flags::PREEMPT | flags::COUNTED;
            (*s).cpu_queued = cpu;
            totals::waits_for(cpu, now);
        }
        if prev.throttled() {
            f |= flags::THROTTLED;
        }
        // Stays come in kinds: after a short one most likely comes another, which leaves no stack behind.
        let short = (*s).ran > (*s).left && (*s).ran - (*s).left < threshold_ns();
        (*s).left = now;
        (*s).state = state;
        (*s).cpu_left = cpu;
        if f & flags::KERNEL_THREAD == 0 {
            let regs = prev.regs();
            if short && spared() {
                forget_user_stack(s);
            } else {
                keep_user_stack(ctx, s, tid, regs, runnable);
            }
            let nr = regs.syscall();
            if nr >= 0 {
                f |= keep_arguments(s, prev, regs, call_row(nr));
            }
        }
        (*s).flags = f;
    }
}

/// Whether this is one of those whose stack is not walked, see `control::STACK_EVERY`.
#[inline(always)]
fn spared() -> bool {
    let every = stack_every();
    // SAFETY: a helper without arguments.
    every > 1 && u64::from(unsafe { bpf_get_prandom_u32() }) % every != 0
}

/// What was kept is of an earlier stay.
#[inline(always)]
unsafe fn forget_user_stack(s: *mut ThreadState) {
    // SAFETY: by contract of the caller, a live element.
    unsafe {
        (*s).key_sp = 0;
        (*s).key_python = 0;
        (*s).user_id = 0;
        (*s).user_frames = 0;
    }
}

/// No helper reads another task's user memory, so the stack is walked now, before it is known whether the
/// stay will be long; and not walked again while nothing has moved. Two Python functions that call the same
/// builtin at the same depth look alike to sp and ip, so where the interpreter is counts too.
#[inline(always)]
unsafe fn keep_user_stack(
    ctx: &BtfTracePointContext,
    s: *mut ThreadState,
    tid: u32,
    regs: Regs,
    runnable: bool,
) {
    let (sp, ip) = (regs.sp(), regs.ip());
    // SAFETY: `s` by contract; the slot has `MAX_FRAMES` words.
    unsafe {
        let (hash, python) = (stack::above(sp), python::walk(tid, (*s).pid));
        if !runnable {
            // Its names are read while it waits, so that they are still there.
            python::send(tid, python);
        }
        if let Some(hash) = hash
            && (*s).key_sp == sp
            && (*s).key_ip == ip
            && (*s).key_hash == hash
            && (*s).key_python == python
            && stack::still_good(s)
        {
            return;
        }
        (*s).key_sp = sp;
        (*s).key_ip = ip;
        (*s).key_hash = hash.unwrap_or(0);
        (*s).key_python = python;
        (*s).user_id = 0;
        stack::keep(ctx, s, regs);
    }
}

/// Arguments that lie in user memory, readable only now.
#[inline(always)]
unsafe fn keep_arguments(s: *mut ThreadState, prev: Task, regs: Regs, row: u8) -> u32 {
    // SAFETY: destinations have the sizes given, sources are checked by the helpers; `s` by contract.
    unsafe {
        match row & call::KIND_MASK {
            call::FUTEX
                if bpf_probe_read_user((&raw mut (*s).futex_value).cast(), 4, regs.arg0() as *const _)
                    == 0 =>
            {
                return flags::FUTEX;
            }
            call::IOCTL => {
                let files: *const u8 = prev.load(offset!(task_files));
                if file::is_nvidia(files, regs.arg0() as u32) {
                    return keep_ioctl(s, regs);
                }
            }
            call::POLL
                if regs.arg1() != 0
                    && bpf_probe_read_user((&raw mut (*s).poll_fd).cast(), 4, regs.arg0() as *const _)
                        == 0 =>
            {
                return flags::POLL_FD;
            }
            call::PATH_0 | call::PATH_1 => {
                let path = if row & call::KIND_MASK == call::PATH_0 { regs.arg0() } else { regs.arg1() };
                if bpf_probe_read_user_str((&raw mut (*s).path).cast(), PATH_BYTES as u32, path as *const _)
                    > 0
                {
                    return flags::PATH;
                }
            }
            _ => {}
        }
    }
    0
}

#[inline(always)]
unsafe fn keep_ioctl(s: *mut ThreadState, regs: Regs) -> u32 {
    let kept = super::ioctl::command(regs.arg1() as u32, regs.arg2());
    // SAFETY: by contract of the caller.
    unsafe {
        (*s).ioctl_command = kept.command;
        match kept.inner {
            Some(inner) => {
                (*s).ioctl_inner = inner;
                flags::IOCTL | flags::INNER
            }
            None => flags::IOCTL,
        }
    }
}

#[inline(always)]
fn enter(next: Task, tid: u32, cpu: u32, now: u64) {
    let Some(s) = threads::state(next, tid) else { return };
    // SAFETY: a live element, see `leave`.
    unsafe {
        let f = (*s).flags;
        if f & flags::COUNTED != 0 {
            totals::waits_no_more((*s).cpu_queued);
        }
        if (*s).left < (*s).ran {
            // Its departure was not seen, though its arrival was: nothing is known of the time between.
            emit::lost(loss::OFF_CPU, loss::UNANNOUNCED, now - (*s).ran.min(now));
        } else if now < (*s).left {
            emit::lost(loss::OFF_CPU, loss::TIME_TRAVEL, 0);
        } else {
            finish(next, s, cpu, now);
        }
        (*s).ran = now;
        (*s).woken = 0;
        (*s).waker_flags = 0;
        (*s).flags = f & !(flags::PER_STAY | flags::COUNTED);
    }
}

/// # Safety
/// `s` is the live element of `next`, which is about to run.
#[inline(always)]
unsafe fn finish(next: Task, s: *mut ThreadState, cpu: u32, now: u64) {
    // SAFETY: by contract.
    unsafe {
        let cut = (*s).left == 0;
        let regs = next.regs();
        let user = (*s).flags & flags::KERNEL_THREAD == 0;
        let (nr, arg0) = if user { (regs.syscall(), regs.arg0()) } else { (-1, 0) };
        let runnable = (*s).flags & (flags::PREEMPT | flags::NEWBORN) != 0;
        // A waking before the departure belongs to this stay, which then was runnable from its start.
        let woken = match (*s).woken {
            _ if runnable => 0,
            0 => 0,
            w if w < (*s).left => (*s).left,
            w => w,
        };
        if !cut && now - (*s).left < threshold_ns() {
            totals::add(s, nr, if nr < 0 { 0 } else { arg0 }, woken, now, runnable);
            return;
        }
        let kernel_stack = stack::of_sleeper(next);
        if (*s).user_id == 0 && ((*s).user_frames > 0 || (*s).key_python != 0) {
            (*s).user_id = stack::send_kept(s);
        }
        let file = if nr >= 0 { descriptor(next, s, regs, nr) } else { fault_file(s, regs, user) };
        let stay = Stay { cpu, now, woken, nr, kernel_stack, file, user };
        let risk = now - if cut { now } else { (*s).left };
        if (*s).flags & flags::PATH != 0 {
            emit::record::<OffCpuPath>(loss::OFF_CPU, risk, |out| {
                fill(&raw mut (*out).off, kind::OFF_CPU_PATH, next, s, regs, &stay);
                bpf_probe_read_kernel(
                    (&raw mut (*out).path).cast(),
                    PATH_BYTES as u32,
                    (&raw const (*s).path).cast(),
                );
            });
        } else {
            emit::record::<OffCpu>(loss::OFF_CPU, risk, |out| fill(out, kind::OFF_CPU, next, s, regs, &stay));
        }
    }
}

struct Stay {
    cpu: u32,
    now: u64,
    woken: u64,
    nr: i32,
    kernel_stack: u64,
    file: u64,
    user: bool,
}

#[inline(always)]
unsafe fn descriptor(next: Task, s: *const ThreadState, regs: Regs, nr: i32) -> u64 {
    let row = call_row(nr);
    let fd = match row & call::FD_MASK {
        // SAFETY: by contract of `finish`.
        0 if unsafe { (*s).flags } & flags::POLL_FD != 0 => u64::from(unsafe { (*s).poll_fd }),
        0 => return 0,
        1 => regs.arg0(),
        2 => regs.arg1(),
        3 => regs.arg2(),
        _ => return 0,
    };
    if offset!(task_files) == MISSING {
        return 0;
    }
    file::of_descriptor(next.load(offset!(task_files)), fd as u32)
}

/// The file of the fault the thread is in: same user instruction as when `mm_filemap_fault` fired.
#[inline(always)]
unsafe fn fault_file(s: *const ThreadState, regs: Regs, user: bool) -> u64 {
    // SAFETY: by contract of `finish`.
    unsafe { if user && (*s).fault_ip != 0 && (*s).fault_ip == regs.ip() { (*s).fault_file } else { 0 } }
}

#[inline(always)]
unsafe fn fill(out: *mut OffCpu, kind: u32, next: Task, s: *const ThreadState, regs: Regs, stay: &Stay) {
    // SAFETY: a reserved record, every byte of it written here; `s` by contract of `finish`.
    unsafe {
        (*out).kind = kind;
        (*out).flags = (*s).flags | (*s).waker_flags | if (*s).left == 0 { flags::CUT_START } else { 0 };
        (*out).tid = (*s).tid;
        (*out).pid = (*s).pid;
        (*out).start_boottime = (*s).start_boottime;
        (*out).left = (*s).left;
        (*out).woken = stay.woken;
        (*out).ran = stay.now;
        (*out).state = (*s).state;
        (*out).cpu_left = (*s).cpu_left;
        (*out).cpu_queued = (*s).cpu_queued;
        (*out).cpu_ran = stay.cpu;
        (*out).cpus_allowed = next.load(offset!(task_nr_cpus));
        (*out).syscall = stay.nr;
        let mask = next.0.wrapping_add(offset!(task_mask) as usize);
        bpf_probe_read_kernel((&raw mut (*out).cpu_mask).cast(), 32, mask.cast());
        let args = (&raw mut (*out).args).cast::<u64>();
        if stay.user {
            args.write(regs.arg0());
            args.add(1).write(regs.arg1());
            args.add(2).write(regs.arg2());
            args.add(3).write(regs.arg3());
            args.add(4).write(regs.arg4());
            args.add(5).write(regs.arg5());
        } else {
            for i in 0..6 {
                args.add(i).write_volatile(0);
            }
        }
        (*out).ioctl_command = (*s).ioctl_command;
        (*out).ioctl_inner = (*s).ioctl_inner;
        (*out).futex_value = (*s).futex_value;
        (*out).waker_syscall = (*s).waker_syscall;
        (*out).waker_tid = (*s).waker_tid;
        (*out).waker_pid = (*s).waker_pid;
        (*out).waker_start = (*s).waker_start;
        (*out).waker_kernel_stack = (*s).waker_kernel_stack;
        (*out).waker_user_stack = (*s).waker_user_stack;
        (*out).kernel_stack = stay.kernel_stack;
        (*out).user_stack = (*s).user_id;
        (*out).file = stay.file;
    }
}
