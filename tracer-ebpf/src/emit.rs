//! Records go out here, and what could not go out is counted here.

use aya_ebpf::bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::maps::RingBuf;
use tracer_ebpf::wire::loss;

use crate::globals::setting;
use crate::maps::{LIFECYCLE, LOSSES, RING};

#[inline(always)]
pub fn lost(class: u32, cause: u32, ns_at_risk: u64) {
    if let Some(row) = LOSSES.get_ptr_mut(class * loss::CAUSES + cause) {
        // SAFETY: this processor's own row; a program interrupting another can at worst lose one count.
        unsafe {
            (*row).count += 1;
            (*row).ns_at_risk += ns_at_risk;
        }
    }
}

/// Sends one record that `fill` writes in place. `fill` must write every byte.
#[inline(always)]
pub fn record<T: 'static>(class: u32, ns_at_risk: u64, fill: impl FnOnce(*mut T)) -> bool {
    into(&RING, class, ns_at_risk, fill)
}

#[inline(always)]
pub fn lifecycle<T: 'static>(fill: impl FnOnce(*mut T)) -> bool {
    into(&LIFECYCLE, loss::LIFECYCLE, 0, fill)
}

#[inline(always)]
fn into<T: 'static>(ring: &RingBuf, class: u32, ns_at_risk: u64, fill: impl FnOnce(*mut T)) -> bool {
    match ring.reserve::<T>(0) {
        Some(mut entry) => {
            fill(entry.as_mut_ptr());
            entry.submit(wake(ring));
            true
        }
        None => {
            lost(class, loss::RING_FULL, ns_at_risk);
            false
        }
    }
}

/// A wake-up per record would put the reader's own switches into the trace; its timer drains the rest.
#[inline(always)]
pub fn wake(ring: &RingBuf) -> u64 {
    if ring.query(0) > setting!(wake_bytes) { BPF_RB_FORCE_WAKEUP.into() } else { BPF_RB_NO_WAKEUP.into() }
}
