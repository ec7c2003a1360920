//! The device signal polled by a test, and what it brought.

use std::thread::sleep;
use std::time::Duration;

use gpu_sim_timeline::{Process, Timeline, clock};
use whyidle::gpu::{DeviceSignal as _, NvmlSignal, Polled};
use whyidle::trace::{DeviceClock, DeviceEvent, DeviceState, ProbeStatus, Reading, Record};

use crate::device::{SimulatedDevice, script};

const MS: u64 = 1_000_000;

/// A process with a context, and work every 100 ms for the next 20 s.
#[must_use]
pub fn loaded(timeline: &Timeline, busy_ms: u64) -> Process<'_> {
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    let now = clock::now();
    script(timeline, &process, now, now + 20_000 * MS, 100 * MS, busy_ms * MS);
    process
}

#[must_use]
pub fn open(device: &SimulatedDevice) -> NvmlSignal {
    NvmlSignal::open(Some(&device.nvml())).expect("the simulated library loads")
}

/// Polls every 60 ms until it has brought enough.
pub fn polls(signal: &mut NvmlSignal, enough: impl Fn(&Polled) -> bool) -> Polled {
    let mut all = Polled::default();
    while !enough(&all) {
        sleep(Duration::from_millis(60));
        let polled = signal.poll().expect("the library answers");
        all.readings.extend(polled.readings);
        all.processes.extend(polled.processes);
        all.others.extend(polled.others);
    }
    all
}

/// Polls until there are so many windows.
pub fn windows(signal: &mut NvmlSignal, count: usize) -> Vec<Reading> {
    polls(signal, |all| all.readings.len() >= count).readings
}

#[must_use]
pub fn rows(polled: &Polled) -> Vec<&ProbeStatus> {
    let all = polled.others.iter();
    all.filter_map(|record| if let Record::Probe(row) = record { Some(row) } else { None }).collect()
}

/// The last word on a signal: whether it works, and why not.
///
/// # Panics
/// Nothing was said of it.
#[must_use]
pub fn row<'a>(polled: &'a Polled, name: &str) -> &'a ProbeStatus {
    let said = rows(polled);
    said.iter().rev().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {said:?}"))
}

#[must_use]
pub fn states(polled: &Polled) -> Vec<&DeviceState> {
    let all = polled.others.iter();
    all.filter_map(|record| if let Record::DeviceState(state) = record { Some(state) } else { None })
        .collect()
}

#[must_use]
pub fn events(polled: &Polled) -> Vec<&DeviceEvent> {
    let all = polled.others.iter();
    all.filter_map(|record| if let Record::DeviceEvent(event) = record { Some(event) } else { None })
        .collect()
}

#[must_use]
pub fn clocks(polled: &Polled) -> Vec<&DeviceClock> {
    let all = polled.others.iter();
    all.filter_map(|record| if let Record::DeviceClock(clock) = record { Some(clock) } else { None })
        .collect()
}

/// A counter's last value.
#[must_use]
pub fn counter(polled: &Polled, name: &str) -> Option<u64> {
    polled.others.iter().rev().find_map(|record| match record {
        Record::Counter(counter) if counter.name == name => Some(counter.value),
        _ => None,
    })
}

/// Percent of `[from, to)` in which the device was busy.
///
/// # Panics
/// The truth cannot be read.
#[must_use]
pub fn true_percent(timeline: &Timeline, from: u64, to: u64) -> f64 {
    let truth = timeline.truth().expect("readable");
    100.0 * truth[0].busy_ns(from, to) as f64 / (to - from) as f64
}

/// # Panics
/// A window overlaps the one before, or leaves a hole.
#[track_caller]
pub fn assert_contiguous(readings: &[Reading]) {
    for pair in readings.windows(2) {
        assert_eq!(pair[0].span.end, pair[1].span.start, "{readings:?}");
    }
}
