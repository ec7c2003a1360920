//! CUDA driver calls by uprobe. One record per silence or per long call, never one per launch.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::{bpf_get_attach_cookie, bpf_ktime_get_ns};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use aya_ebpf::{EbpfContext, bindings::pt_regs};
use tracer_ebpf::wire::cuda::{Run, cookie, family};
use tracer_ebpf::wire::{CudaCall, CudaState, SILENCE_NS, Submits, kind, loss};

use super::fault::current_target;
use crate::globals::{constant_cookie, setting};
use crate::maps::{BLANK_CUDA, CUDA, threshold_ns};
use crate::task::Current;
use crate::{emit, stack};

/// Launch, graph launch, memset; asynchronous copies are counted beside.
#[uprobe]
pub fn cuda_submit(ctx: ProbeContext) -> u32 {
    let Some(s) = state() else { return 0 };
    let (family, _) = cookie(&ctx);
    // SAFETY: a live element of the running thread.
    unsafe {
        if !nested(s, sp(ctx.regs)) {
            count(&ctx, s, family, bpf_ktime_get_ns());
        }
    }
    0
}

#[uprobe]
pub fn cuda_enter(ctx: ProbeContext) -> u32 {
    let Some(s) = state() else { return 0 };
    let (family, id) = cookie(&ctx);
    // SAFETY: a live element of the running thread.
    unsafe {
        let height = sp(ctx.regs);
        if nested(s, height) {
            return 0;
        }
        let now = bpf_ktime_get_ns();
        (*s).sp = height;
        (*s).entry = now;
        (*s).family = family;
        (*s).id = id;
        if family == family::COPY {
            count(&ctx, s, family, now);
        }
        // Taken at entry: a return probe hijacks the frame that a walk would follow.
        (*s).call_stack = kept_stack(&ctx, s);
    }
    0
}

#[uretprobe]
pub fn cuda_return(ctx: RetProbeContext) -> u32 {
    let Some(s) = state() else { return 0 };
    // SAFETY: a live element of the running thread.
    unsafe {
        // At its return the stack is one word shorter than at its entry; nested calls end lower.
        if (*s).sp == 0 || sp(ctx.regs) != (*s).sp + 8 {
            return 0;
        }
        (*s).sp = 0;
        let now = bpf_ktime_get_ns();
        let synchronised = (*s).family == family::SYNCHRONIZE;
        if synchronised || now - (*s).entry.min(now) >= threshold_ns() {
            call(s, now);
        }
        if synchronised && (*s).run.first != 0 {
            flush(s);
        }
    }
    0
}

#[inline(always)]
fn sp(regs: *mut pt_regs) -> u64 {
    // SAFETY: the context's own registers.
    unsafe { (*regs).rsp }
}

/// Family and entry-point id.
#[inline(always)]
fn cookie(ctx: &impl EbpfContext) -> (u32, u32) {
    let cookie = if setting!(have_cookie) == 0 {
        constant_cookie()
    } else {
        // SAFETY: the program's own context.
        unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }
    };
    ((cookie >> cookie::FAMILY_SHIFT & cookie::FAMILY_MASK) as u32, cookie as u32)
}

/// Called from inside another probed call: the driver's own doing, counted with the outer one.
#[inline(always)]
unsafe fn nested(s: *mut CudaState, height: u64) -> bool {
    // SAFETY: by contract of the callers.
    unsafe { (*s).sp != 0 && height < (*s).sp }
}

#[inline(always)]
fn state() -> Option<*mut CudaState> {
    let (tid, pid) = current_target()?;
    let start = Current::get().start();
    if let Some(s) = CUDA.get_ptr_mut(tid) {
        // SAFETY: a live element of the running thread.
        if unsafe { (*s).start_boottime } == start {
            return Some(s);
        }
    }
    if CUDA.insert(tid, BLANK_CUDA.get(0)?, BPF_ANY.into()).is_err() {
        emit::lost(loss::CUDA, loss::MAP_FULL, 0);
        return None;
    }
    let s = CUDA.get_ptr_mut(tid)?;
    // SAFETY: as above.
    unsafe {
        (*s).start_boottime = start;
        (*s).tid = tid;
        (*s).pid = pid;
    }
    Some(s)
}

#[inline(always)]
unsafe fn count(ctx: &ProbeContext, s: *mut CudaState, family: u32, now: u64) {
    // SAFETY: by contract of the callers.
    unsafe {
        if family == family::COPY {
            (*s).run.copies += 1;
            return;
        }
        if (*s).run.first != 0 && now - (*s).run.last.min(now) >= SILENCE_NS {
            flush(s);
        }
        if (*s).run.first == 0 {
            (*s).run.first = now;
            (*s).run.user_stack = kept_stack(ctx, s);
        }
        (*s).run.last = now;
        match family {
            family::GRAPH_LAUNCH => (*s).run.graph_launches += 1,
            family::MEMSET => (*s).run.memsets += 1,
            _ => (*s).run.launches += 1,
        }
    }
}

/// The thread may be preempted here, so the walk goes into its own slot, never a processor's.
#[inline(always)]
unsafe fn kept_stack(ctx: &ProbeContext, s: *mut CudaState) -> u64 {
    // SAFETY: by contract of the callers; the slot has `MAX_FRAMES` words.
    unsafe {
        (*s).frames = stack::walk_user(ctx, (&raw mut (*s).stack).cast());
        stack::send_direct((&raw const (*s).stack).cast(), &raw const (*s).frames, (*s).pid)
    }
}

#[inline(never)]
unsafe fn flush(s: *mut CudaState) {
    // SAFETY: by contract of the callers; a reserved record, every byte of it written here.
    unsafe {
        emit::record::<Submits>(loss::CUDA, 0, |out| {
            (*out).kind = kind::SUBMITS;
            (*out).pad = 0;
            (*out).tid = (*s).tid;
            (*out).pid = (*s).pid;
            (*out).start_boottime = (*s).start_boottime;
            (*out).run = (*s).run;
        });
        (*s).run = Run::default();
    }
}

#[inline(always)]
unsafe fn call(s: *mut CudaState, now: u64) {
    // SAFETY: by contract of the callers; a reserved record, every byte of it written here.
    unsafe {
        emit::record::<CudaCall>(loss::CUDA, now - (*s).entry.min(now), |out| {
            (*out).kind = kind::CUDA_CALL;
            (*out).family = (*s).family;
            (*out).tid = (*s).tid;
            (*out).pid = (*s).pid;
            (*out).start_boottime = (*s).start_boottime;
            (*out).entry = (*s).entry;
            (*out).exit = now;
            (*out).id = (*s).id;
            (*out).pad = 0;
            (*out).user_stack = (*s).call_stack;
        });
    }
}
