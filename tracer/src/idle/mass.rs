//! What the device says of each of its windows: how much was idle, and what is not known.

use super::model::UnknownReason;
use crate::timeline::DeviceTrack;
use crate::trace::{Reading, ReadingSource, Span};

/// Power above this share of the limit contradicts a reading of 0 %.
const POWER_SHARE: (u64, u64) = (35, 100);
/// For so long; power is a mean over 1 s, so it stays high for a while after the last kernel.
const POWER_FOR_NS: u64 = 2_000_000_000;
/// A reading's percent is taken to this many parts.
const PARTS: u64 = 1_000_000;

/// One stretch of a device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub span: Span,
    /// Idle time in it, or why that is not known.
    pub idle: Result<u64, UnknownReason>,
}

/// The device windows inside `within`, and the holes between them, in order and adjacent. `copied` tells
/// whether copies were seen in a stretch: they use the memory controller without a kernel.
pub(super) fn windows(track: &DeviceTrack, within: Span, copied: impl Fn(Span) -> bool) -> Vec<Window> {
    let inside = |r: &&Reading| within.start <= r.span.start && r.span.end <= within.end;
    let readings: Vec<&Reading> = track.readings.iter().filter(inside).collect();
    let hot = contradicted_by_power(&readings, track.device.power_limit_mw);
    let mut windows: Vec<Window> = Vec::with_capacity(readings.len());
    for (reading, hot) in readings.into_iter().zip(hot) {
        let hole = windows.last().map(|w| Span::new(w.span.end, reading.span.start));
        if let Some(hole) = hole.filter(|h| !h.is_empty()) {
            windows.push(Window { span: hole, idle: Err(UnknownReason::NoReading) });
        }
        let idle = match parts(reading) {
            _ if track.device.mig && reading.source != ReadingSource::Gpm => Err(UnknownReason::Mig),
            None => Err(UnknownReason::NoValue),
            Some(0) if hot => Err(UnknownReason::PowerContradicts),
            Some(0) if reading.memory_percent.is_some_and(|m| m > 0.0) && !copied(reading.span) => {
                Err(UnknownReason::MemoryContradicts)
            }
            Some(busy) => Ok(idle_ns(reading.span.len(), busy)),
        };
        windows.push(Window { span: reading.span, idle });
    }
    if windows.is_empty() && !within.is_empty() {
        let reason = if track.device.mig { UnknownReason::Mig } else { UnknownReason::NoReading };
        windows.push(Window { span: within, idle: Err(reason) });
    }
    windows
}

/// The busy share in [`PARTS`], `None` for no value or nonsense.
fn parts(reading: &Reading) -> Option<u64> {
    let percent = reading.busy_percent.filter(|p| (0.0..=100.0).contains(p))?;
    // In range by the filter above.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1e6")]
    let parts = (percent * 10_000.0).round() as u64;
    Some(parts.min(PARTS))
}

fn idle_ns(len: u64, busy: u64) -> u64 {
    let idle = u128::from(len) * u128::from(PARTS - busy) / u128::from(PARTS);
    u64::try_from(idle).unwrap_or(len)
}

/// For each reading, whether it is one of a streak of zeros under high power that lasted long enough.
fn contradicted_by_power(readings: &[&Reading], limit_mw: Option<u32>) -> Vec<bool> {
    let mut hot = vec![false; readings.len()];
    let Some(limit) = limit_mw.filter(|&l| l > 0) else { return hot };
    let suspect = |r: &Reading| {
        let power = r.power_mw.map_or(0, u64::from);
        parts(r) == Some(0) && power * POWER_SHARE.1 > u64::from(limit) * POWER_SHARE.0
    };
    let mut begin = 0;
    while begin < readings.len() {
        let mut end = begin;
        while end < readings.len()
            && suspect(readings[end])
            && (end == begin || readings[end].span.start == readings[end - 1].span.end)
        {
            end += 1;
        }
        if end > begin && readings[end - 1].span.end - readings[begin].span.start >= POWER_FOR_NS {
            hot[begin..end].fill(true);
        }
        begin = end.max(begin + 1);
    }
    hot
}
