//! Do the clocks run as fast as they can, and are the tensor cores in use?

use crate::cause::seconds;
use crate::timeline::DeviceTrack;
use crate::trace::Span;

/// NVML's clock-throttle reasons that mean lost speed, and what to do about each.
const SLOWED: &[(u64, &str, &str)] = &[
    (0x4, "software power cap", "the load needs more power than the limit: raise it, or accept it"),
    (0x8, "hardware slowdown", "look at cooling and power supply"),
    (0x20, "software thermal slowdown", "look at cooling and air flow"),
    (0x40, "hardware thermal slowdown", "look at cooling and air flow now"),
    (0x80, "power brake", "the power supply asked for it: look at it, and at the rack's limit"),
];

/// From here on tensor cores count as used, percent of the time.
const TENSOR_PERCENT: f64 = 1.0;

pub(super) fn words(track: &DeviceTrack) -> Vec<String> {
    let mut words = Vec::new();
    let known = track.readings.iter().filter(|r| r.throttle_reasons.is_some());
    let whole: u64 = known.clone().map(|r| r.span.len()).sum();
    if known.clone().next().is_some() {
        let before = words.len();
        for (bit, name, remedy) in SLOWED {
            let slowed = known.clone().filter(|r| r.throttle_reasons.is_some_and(|all| all & bit != 0));
            let ns: u64 = slowed.map(|r| r.span.len()).sum();
            if ns > 0 {
                words.push(format!("{name} for {} of {} ({remedy})", seconds(ns), seconds(whole)));
            }
        }
        if words.len() == before {
            words.push("clocks not throttled".into());
        }
    }
    words.extend(tensor(track).map(|percent| {
        if percent < TENSOR_PERCENT {
            "tensor cores not in use (16-bit or TF32 types and sizes divisible by 8 use them)".into()
        } else {
            format!("tensor cores in use {percent:.0} % of the busy time")
        }
    }));
    words
}

/// Share of the busy time in which the tensor cores worked, percent; `None` where that is not measured.
pub(super) fn tensor(track: &DeviceTrack) -> Option<f64> {
    let (mut tensor, mut busy) = (0.0, 0.0);
    for activity in &track.activities {
        let Some(percent) = activity.tensor_percent else { continue };
        tensor += percent * activity.span.len() as f64;
        busy += busy_in(track, activity.span);
    }
    (busy > 0.0).then(|| (tensor / busy).min(100.0))
}

/// Busy time within a span, nanoseconds.
fn busy_in(track: &DeviceTrack, span: Span) -> f64 {
    let first = track.readings.partition_point(|r| r.span.end <= span.start);
    track.readings[first..]
        .iter()
        .take_while(|r| r.span.start < span.end)
        .filter_map(|r| Some(r.busy_percent? / 100.0 * r.span.intersect(span)?.len() as f64))
        .sum()
}
