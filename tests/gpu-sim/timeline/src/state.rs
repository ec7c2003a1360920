//! What goes wrong on a device while it runs: its link, its clocks, its memory. Set by tests, read by NVML.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{EVENTS, StateSlot};
use crate::map::Timeline;

/// Zero where all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// NVML's throttle-reason bits, beside the idle one.
    pub throttle: u64,
    /// PCIe generation and width; 0: the maximum.
    pub link_generation: u32,
    pub link_width: u32,
    pub ecc_corrected: u64,
    pub ecc_uncorrected: u64,
    /// It has fallen off the bus.
    pub lost: bool,
}

/// As NVML's event data has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// One of NVML's event-type bits.
    pub kind: u64,
    pub value: u64,
}

impl Timeline {
    fn slot(&self, device: u32) -> &StateSlot {
        &self.shared().states[device as usize]
    }

    #[must_use]
    pub fn state(&self, device: u32) -> State {
        let slot = self.slot(device);
        State {
            throttle: slot.throttle.load(Acquire),
            link_generation: slot.link_generation.load(Acquire),
            link_width: slot.link_width.load(Acquire),
            ecc_corrected: slot.ecc_corrected.load(Acquire),
            ecc_uncorrected: slot.ecc_uncorrected.load(Acquire),
            lost: slot.lost.load(Acquire) != 0,
        }
    }

    pub fn set_state(&self, device: u32, state: State) {
        let slot = self.slot(device);
        slot.throttle.store(state.throttle, Release);
        slot.link_generation.store(state.link_generation, Release);
        slot.link_width.store(state.link_width, Release);
        slot.ecc_corrected.store(state.ecc_corrected, Release);
        slot.ecc_uncorrected.store(state.ecc_uncorrected, Release);
        slot.lost.store(u32::from(state.lost), Release);
    }

    /// For everybody who waits for events of this device. One caller at a time.
    pub fn raise(&self, device: u32, event: Event) {
        let slot = self.slot(device);
        let number = slot.raised.load(Relaxed);
        let place = &slot.events[(number % EVENTS as u64) as usize];
        place.kind.store(event.kind, Relaxed);
        place.value.store(event.value, Relaxed);
        slot.raised.store(number + 1, Release);
    }

    /// Events raised on `device` so far.
    #[must_use]
    pub fn raised(&self, device: u32) -> u64 {
        self.slot(device).raised.load(Acquire)
    }

    /// The event with this number, counted from 0; `None` where it is not raised yet.
    #[must_use]
    pub fn event(&self, device: u32, number: u64) -> Option<Event> {
        let slot = self.slot(device);
        let place = &slot.events[(number % EVENTS as u64) as usize];
        (number < slot.raised.load(Acquire))
            .then(|| Event { kind: place.kind.load(Relaxed), value: place.value.load(Relaxed) })
    }
}
