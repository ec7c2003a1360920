//! Readings as NVML gives them, computed from the timeline.

use crate::interval::{Interval, covered, union};
use crate::lane::Work;
use crate::map::Timeline;

/// Samples a driver keeps.
pub const KEPT: u64 = 100;
/// One sixth of a second.
pub const PERIOD_NS: u64 = 166_666_667;
pub const POWER_WINDOW_NS: u64 = 1_000_000_000;

pub const POWER_LIMIT_MW: u32 = 700_000;
const POWER_BARE_MW: u64 = 72_000;
const POWER_CONTEXT_MW: u64 = 122_000;
/// Share of its bandwidth that a running kernel is taken to use, percent.
const KERNEL_MEMORY_PERCENT: u64 = 30;

/// A device's recent past, as far back as its readings need it.
#[derive(Debug)]
pub struct Recent {
    busy: Vec<Interval>,
    copies: Vec<Interval>,
    contexts: Vec<Interval>,
}

impl Recent {
    /// The past of `device` from `since` on.
    #[must_use]
    pub fn new(timeline: &Timeline, device: u32, since: u64, now: u64) -> Self {
        Self::of(timeline, device, None, since, now)
    }

    /// The past of one MIG instance, or of the whole `device`.
    #[must_use]
    pub fn of(timeline: &Timeline, device: u32, instance: Option<u32>, since: u64, now: u64) -> Self {
        let clip = |intervals: Vec<Interval>| {
            union(intervals.iter().map(|i| Interval { start: i.start, end: i.end.min(now) }).collect())
        };
        Self {
            busy: clip(timeline.history_in(device, instance, Work::Kernel, since).intervals),
            copies: clip(timeline.history_in(device, instance, Work::Copy, since).intervals),
            contexts: timeline.contexts(device, now),
        }
    }

    /// Shares of `[from, to)` in which a kernel ran and in which a copy did, 0 to 1, not rounded.
    #[must_use]
    pub fn shares(&self, from: u64, to: u64) -> (f64, f64) {
        let length = to.saturating_sub(from).max(1) as f64;
        (covered(&self.busy, from, to) as f64 / length, covered(&self.copies, from, to) as f64 / length)
    }

    /// Percent of `[end - period, end)` during which at least one kernel ran, to the nearest whole one.
    #[must_use]
    pub fn utilization(&self, end: u64, period: u64) -> u32 {
        percent(covered(&self.busy, end.saturating_sub(period), end), period)
    }

    /// Percent of the period during which device memory was read or written.
    #[must_use]
    pub fn memory(&self, end: u64, period: u64) -> u32 {
        let start = end.saturating_sub(period);
        let kernels = covered(&self.busy, start, end) * KERNEL_MEMORY_PERCENT / 100;
        percent((kernels + covered(&self.copies, start, end)).min(period), period)
    }

    /// Mean over the second that ends at `end`, milliwatts.
    #[must_use]
    pub fn power_mw(&self, end: u64) -> u32 {
        let start = end.saturating_sub(POWER_WINDOW_NS);
        let share = |of: &[Interval], milliwatts: u64| {
            u128::from(covered(of, start, end)) * u128::from(milliwatts) / u128::from(POWER_WINDOW_NS)
        };
        let power = u128::from(POWER_BARE_MW)
            + share(&self.contexts, POWER_CONTEXT_MW - POWER_BARE_MW)
            + share(&self.busy, u64::from(POWER_LIMIT_MW) - POWER_CONTEXT_MW);
        u32::try_from(power).unwrap_or(POWER_LIMIT_MW).min(POWER_LIMIT_MW)
    }
}

/// Ends of the sample periods of `device` in `(after, now]`, oldest first, at most the number a driver keeps.
#[must_use]
pub fn period_ends(timeline: &Timeline, device: u32, period: u64, after: u64, now: u64) -> Vec<u64> {
    let period = period.max(1);
    // Devices do not sample in step.
    let origin = timeline.created() + u64::from(device) * (period / 7);
    let newest = now.saturating_sub(origin) / period;
    let oldest = newest.saturating_sub(KEPT - 1).max(1);
    (oldest..=newest).map(|k| origin + k * period).filter(|&end| end > after).collect()
}

fn percent(part: u64, whole: u64) -> u32 {
    ((part * 100 + whole / 2) / whole.max(1)).min(100) as u32
}
