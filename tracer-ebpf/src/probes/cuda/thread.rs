//! A thread's state between two hits: in a map, because a walk and a search need room, and because a program
//! may be preempted, so a processor's row would not do.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_ANY;
use tracer_ebpf::wire::cuda::CONTEXTS;
use tracer_ebpf::wire::{CudaState, RunState, loss};

use super::runs;
use crate::maps::{BLANK_CUDA, BLANK_RUN, COLLECTIVES, CUDA, RUNS, WALKS};
use crate::task::Current;
use crate::{emit, stack};

/// The state of a thread that was hit before.
#[inline(always)]
pub fn known(tid: u32) -> Option<*mut CudaState> {
    let s = CUDA.get_ptr_mut(tid)?;
    // SAFETY: a live element of the running thread.
    (unsafe { (*s).start_boottime } == Current::get().start()).then_some(s)
}

#[inline(always)]
pub fn state(tid: u32, pid: u32) -> Option<*mut CudaState> {
    if let Some(s) = known(tid) {
        return Some(s);
    }
    if CUDA.insert(tid, BLANK_CUDA.get(0)?, BPF_ANY.into()).is_err() {
        emit::lost(loss::CUDA, loss::MAP_FULL, 0);
        return None;
    }
    let s = CUDA.get_ptr_mut(tid)?;
    // SAFETY: a live element of the running thread.
    unsafe {
        (*s).start_boottime = Current::get().start();
        (*s).tid = tid;
        (*s).pid = pid;
    }
    Some(s)
}

/// Key of the run of a thread in one of its contexts: a thread id has 22 bits.
#[inline(always)]
pub fn run_key(tid: u32, slot: u32) -> u32 {
    (slot & (CONTEXTS as u32 - 1)) << 22 | tid
}

/// The run of the thread in its current context.
///
/// # Safety
/// `s` is a live element of the running thread.
#[inline(always)]
pub unsafe fn run(s: *mut CudaState) -> Option<*mut RunState> {
    // SAFETY: by contract.
    let (key, slot) = unsafe { (run_key((*s).tid, (*s).slot), (*s).slot as usize & (CONTEXTS - 1)) };
    if let Some(r) = RUNS.get_ptr_mut(key) {
        // SAFETY: a live element of the running thread, by contract.
        unsafe {
            if (*r).out.start_boottime == (*s).start_boottime {
                (*r).out.context = (*s).contexts[slot];
                return Some(r);
            }
        }
    }
    if RUNS.insert(key, BLANK_RUN.get(0)?, BPF_ANY.into()).is_err() {
        emit::lost(loss::CUDA, loss::MAP_FULL, 0);
        return None;
    }
    let r = RUNS.get_ptr_mut(key)?;
    // SAFETY: as above.
    unsafe {
        (*r).out.tid = (*s).tid;
        (*r).out.pid = (*s).pid;
        (*r).out.start_boottime = (*s).start_boottime;
        (*r).out.context = (*s).contexts[slot];
    }
    Some(r)
}

/// Walks the user stack and sends it.
///
/// # Safety
/// `s` is a live element of the running thread.
#[inline(never)]
pub unsafe fn kept_stack<C: EbpfContext>(ctx: &C, s: *mut CudaState) -> u64 {
    // SAFETY: by contract.
    unsafe { stack::preemptible(ctx, (*s).tid, (*s).pid) }
}

/// A thread ends: its runs go out, its state makes room.
#[inline(always)]
pub fn exits(tid: u32) {
    if CUDA.get_ptr_mut(tid).is_some() {
        for slot in 0..CONTEXTS as u32 {
            let key = run_key(tid, slot);
            runs::cuda_flush(key);
            RUNS.remove(key).ok();
        }
        CUDA.remove(tid).ok();
    }
    COLLECTIVES.remove(tid).ok();
    WALKS.remove(tid).ok();
}
