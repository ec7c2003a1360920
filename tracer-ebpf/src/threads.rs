//! Per-thread state, keyed by thread id and checked against the start time, so that ids used again never mix.

use aya_ebpf::bindings::BPF_ANY;
use tracer_ebpf::wire::{ThreadState, flags, loss};

use crate::emit;
use crate::maps::{BLANK, THREADS};
use crate::task::Task;

/// The state of a target, made if there is none.
#[inline(always)]
pub fn state(task: Task, tid: u32) -> Option<*mut ThreadState> {
    let start = task.start();
    if let Some(s) = THREADS.get_ptr_mut(tid) {
        // SAFETY: an element of a preallocated map; it is written by the processor that switches the
        // thread, or by its waker under the thread's own lock.
        if unsafe { (*s).start_boottime } == start {
            return Some(s);
        }
    }
    fresh(task, tid, start)
}

#[inline(always)]
fn fresh(task: Task, tid: u32, start: u64) -> Option<*mut ThreadState> {
    let blank = BLANK.get(0)?;
    if THREADS.insert(tid, blank, BPF_ANY.into()).is_err() {
        emit::lost(loss::OFF_CPU, loss::MAP_FULL, 0);
        return None;
    }
    let s = THREADS.get_ptr_mut(tid)?;
    // SAFETY: as above.
    unsafe {
        (*s).start_boottime = start;
        (*s).tid = tid;
        (*s).pid = task.pid();
        (*s).flags = if task.has_user() { 0 } else { flags::KERNEL_THREAD };
    }
    Some(s)
}
