//! Which device's readings follow a series of submits: a straight line through both, by least squares.

use crate::timeline::Timeline;
use crate::trace::{Ns, Reading, Span};

/// Fewer windows than this that both have say nothing.
const LEAST_WINDOWS: usize = 16;
/// Share of the readings' variance that the line must explain...
const LEAST_SHARE: f64 = 0.3;
/// ...and by how much more than for any other device.
const MARGIN: f64 = 0.2;

/// Submits spread evenly from `span.start` to `span.end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    span: Span,
    count: f64,
}

impl Pace {
    pub(super) fn new(first: Ns, last: Ns, count: u64) -> Self {
        Self { span: Span::new(first, last.max(first)), count: real(count) }
    }
}

/// The one of `devices` whose readings rise and fall with these submits, if one does clearly more so than
/// the others.
pub(super) fn device(timeline: &Timeline, devices: &[u32], paces: &[Pace]) -> Option<u32> {
    let readings = |device| timeline.devices.get(device).map_or(&[][..], |t| &t.readings);
    let mut shares: Vec<(f64, u32)> =
        devices.iter().map(|device| (share(readings(device), paces), *device)).collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let &(best, device) = shares.first()?;
    let second = shares.get(1).map_or(0.0, |s| s.0);
    (best >= LEAST_SHARE && best - second >= MARGIN).then_some(device)
}

/// Share of the variance of the busy readings that a rising line through the submits' rate explains, 0 to 1.
fn share(readings: &[Reading], paces: &[Pace]) -> f64 {
    let mut counts = vec![0.0; readings.len()];
    for pace in paces {
        let from = readings.partition_point(|r| r.span.end <= pace.span.start);
        for (count, reading) in counts[from..].iter_mut().zip(&readings[from..]) {
            if reading.span.start > pace.span.end {
                break;
            }
            *count += within(pace, reading.span);
        }
    }
    let points: Vec<(f64, f64)> = readings
        .iter()
        .zip(counts)
        .filter_map(|(r, count)| {
            let busy = r.busy_percent.filter(|p| (0.0..=100.0).contains(p))?;
            (!r.span.is_empty()).then(|| (count / real(r.span.len()), busy))
        })
        .collect();
    if points.len() < LEAST_WINDOWS {
        return 0.0;
    }
    let number = real(u64::try_from(points.len()).unwrap_or(u64::MAX));
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / number;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
    let (both, of_x, of_y) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    let share = both * both / (of_x * of_y);
    if both > 0.0 && share.is_finite() { share } else { 0.0 }
}

/// How many of a pace's submits lie in a window.
fn within(pace: &Pace, window: Span) -> f64 {
    if pace.span.is_empty() {
        return if window.contains(pace.span.start) { pace.count } else { 0.0 };
    }
    let inside = pace.span.intersect(window).map_or(0, Span::len);
    pace.count * real(inside) / real(pace.span.len())
}

#[expect(clippy::cast_precision_loss, reason = "a fit needs no more")]
fn real(whole: u64) -> f64 {
    whole as f64
}
