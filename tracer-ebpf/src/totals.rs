//! Stays shorter than the threshold are added up; who ran while targets waited is, too.

use aya_ebpf::bindings::BPF_ANY;
use tracer_ebpf::wire::{RanKey, RanValue, ThreadState, TotalKey, TotalValue, flags, loss};

use crate::maps::{RAN, TOTALS, WAITING, epoch};
use crate::task::Task;
use crate::{atomic, emit};

/// # Safety
/// `s` is a live element of `THREADS`.
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value they would be copied on a stack of 512 bytes"
)]
#[inline(always)]
pub unsafe fn add(s: *const ThreadState, syscall: i32, arg0: u64, woken: u64, now: u64, runnable: bool) {
    // SAFETY: by contract.
    let (key, left, throttled, pid, waker_pid) = unsafe {
        let bits = (*s).flags | (*s).waker_flags;
        let waker = bits & flags::WAKER != 0;
        let key = TotalKey {
            start_boottime: (*s).start_boottime,
            waker_start: if waker { (*s).waker_start } else { 0 },
            arg0,
            tid: (*s).tid,
            waker_tid: if waker { (*s).waker_tid } else { 0 },
            syscall,
            epoch: epoch(),
        };
        (key, (*s).left, bits & flags::THROTTLED != 0, (*s).pid, (*s).waker_pid)
    };
    let (blocked, waiting) = if runnable {
        (0, now - left)
    } else if woken == 0 {
        (now - left, 0)
    } else {
        (woken - left, now - woken)
    };
    if let Some(v) = TOTALS.get_ptr_mut(&key) {
        // SAFETY: only the processor switching this thread in writes its totals.
        unsafe {
            (*v).count += 1;
            (*v).blocked_ns += blocked;
            (*v).runnable_ns += waiting;
            if throttled {
                (*v).throttled_ns += waiting;
            }
            (*v).last = now;
        }
        return;
    }
    let v = TotalValue {
        count: 1,
        blocked_ns: blocked,
        runnable_ns: waiting,
        throttled_ns: if throttled { waiting } else { 0 },
        first: left,
        last: now,
        pid,
        waker_pid,
    };
    if TOTALS.insert(&key, &v, BPF_ANY.into()).is_err() {
        emit::lost(loss::WAIT_TOTAL, loss::MAP_FULL, now - left);
    }
}

/// A target began to wait for `cpu`.
#[inline(always)]
pub fn waits_for(cpu: u32, now: u64) {
    if let Some(row) = WAITING.get_ptr_mut(cpu) {
        // SAFETY: an array element; other processors write it too, hence the atomic.
        unsafe {
            atomic::add(&raw mut (*row).waiting, 1);
            if (*row).mark == 0 {
                (*row).mark = now;
            }
        }
    }
}

/// It got one, or sleeps again.
#[inline(always)]
pub fn waits_no_more(cpu: u32) {
    if let Some(row) = WAITING.get_ptr_mut(cpu) {
        // SAFETY: as above; adding all ones subtracts one.
        unsafe {
            atomic::add(&raw mut (*row).waiting, u64::MAX);
        }
    }
}

/// Charges `prev` for the time targets waited while it ran. `None`: nobody waited.
#[inline(always)]
pub fn charge(cpu: u32, prev: Task, tid: u32, target: bool, now: u64) {
    let Some(row) = WAITING.get_ptr_mut(cpu) else { return };
    // SAFETY: as above; `mark` may be set by another processor at the same time, which costs a rounding.
    let mark = unsafe { (*row).mark };
    if mark == 0 {
        return;
    }
    // SAFETY: as above.
    unsafe { (*row).mark = if ((*row).waiting as i64) > 0 { now } else { 0 } };
    if tid == 0 || now <= mark {
        return;
    }
    charge_to(cpu, prev, tid, target, now - mark);
}

#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value they would be copied on a stack of 512 bytes"
)]
#[inline(never)]
fn charge_to(cpu: u32, prev: Task, tid: u32, target: bool, ns: u64) {
    let key = RanKey { start_boottime: prev.start(), tid, cpu, epoch: epoch(), pad: 0 };
    if let Some(v) = RAN.get_ptr_mut(&key) {
        // SAFETY: only this processor writes rows of its own number.
        unsafe { (*v).ns += ns };
        return;
    }
    let mut v = RanValue { ns, pid: prev.pid(), target: u32::from(target), comm: [0; 16] };
    prev.comm(&raw mut v.comm);
    if RAN.insert(&key, &v, BPF_ANY.into()).is_err() {
        emit::lost(loss::WAIT_TOTAL, loss::MAP_FULL, 0);
    }
}

/// A switch between two threads that are no targets: one look-up and out, unless a target waits here.
#[inline(always)]
pub fn charge_bystander(cpu: u32, prev: Task, tid: u32) {
    let Some(row) = WAITING.get_ptr(cpu) else { return };
    // SAFETY: an array element.
    if unsafe { (*row).mark } != 0 {
        // SAFETY: a helper without arguments.
        charge(cpu, prev, tid, false, unsafe { aya_ebpf::helpers::generated::bpf_ktime_get_ns() });
    }
}
