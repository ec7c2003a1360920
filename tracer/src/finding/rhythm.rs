//! Whether a cause comes back at intervals: the start of an epoch, a checkpoint, a log that is flushed.

use crate::cause::{Ledger, Mechanism, seconds, steps};
use crate::idle::DeviceIdle;
use crate::timeline::Timeline;
use crate::trace::{Ns, Span};

/// Times it has to come before it is said to come back.
const LEAST_TIMES: usize = 3;
/// What comes with nearly every step is no rhythm of its own.
const LEAST_STEPS: usize = 3;
/// Pieces this many times smaller than the largest are not what comes back.
const SMALL: u64 = 4;
/// Share of the mechanism's time, in percent, that its large pieces hold.
const LEAST_PERCENT: u64 = 80;
/// How far intervals may be from their mean, in percent of it.
const LOOSE_PERCENT: u64 = 25;

/// What comes back: how often, and for how long each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rhythm {
    pub every_ns: u64,
    pub each_ns: u64,
    pub times: usize,
    /// Steps of the job between two of them, by the calls in which its feeder waits for the device.
    pub steps: Option<usize>,
}

/// The rhythm of a mechanism on a device, as a sentence.
pub(super) fn sentence(
    timeline: &Timeline,
    idle: &DeviceIdle,
    ledger: &Ledger,
    mechanism: Mechanism,
) -> Option<String> {
    let of_it = |i: usize| ledger.causes.get(i).is_some_and(|c| c.mechanism == mechanism);
    let pieces: Vec<(Span, u64)> =
        ledger.pieces.iter().filter(|p| of_it(p.cause)).map(|p| (p.gap, p.ns)).collect();
    let feeder = timeline.threads.get(&idle.main_feeder()?)?;
    let rhythm = of(&pieces, &steps(feeder, idle.window))?;
    let steps = rhythm.steps.map_or_else(String::new, |n| format!(" (about {n} steps)"));
    Some(format!(
        "It is periodic: it came {} times, every {}{steps}, for {} each time.",
        rhythm.times,
        seconds(rhythm.every_ns),
        seconds(rhythm.each_ns)
    ))
}

/// `pieces`: gaps and a mechanism's parts of them, in order. `steps`: when steps began, in order.
fn of(pieces: &[(Span, u64)], steps: &[Ns]) -> Option<Rhythm> {
    let whole: u64 = pieces.iter().map(|p| p.1).sum();
    let largest = pieces.iter().map(|p| p.1).max()?;
    let large: Vec<(Span, u64)> = pieces.iter().copied().filter(|p| p.1 >= largest.div_ceil(SMALL)).collect();
    let held: u64 = large.iter().map(|p| p.1).sum();
    if u128::from(held) * 100 < u128::from(whole) * u128::from(LEAST_PERCENT) {
        return None;
    }
    let between = |from: Ns, to: Ns| {
        steps.partition_point(|&s| s < to) - steps.partition_point(|&s| s < from).min(steps.len())
    };
    // What one visit takes may lie in several gaps, a step or two apart.
    let mut visits: Vec<(Span, u64)> = Vec::new();
    for (gap, ns) in large {
        match visits.last_mut() {
            Some((visit, sum)) if between(visit.end, gap.start) < LEAST_STEPS => {
                *visit = Span::new(visit.start, gap.end.max(visit.end));
                *sum += ns;
            }
            _ => visits.push((gap, ns)),
        }
    }
    if visits.len() < LEAST_TIMES || steps.is_empty() {
        return None;
    }
    let intervals: Vec<u64> = visits.windows(2).map(|v| v[1].0.start - v[0].0.start).collect();
    let count = u64::try_from(intervals.len()).ok()?;
    let every_ns = intervals.iter().sum::<u64>() / count;
    let near =
        |i: u64| u128::from(i.abs_diff(every_ns)) * 100 <= u128::from(every_ns) * u128::from(LOOSE_PERCENT);
    if !intervals.iter().all(|&i| near(i)) {
        return None;
    }
    let (first, last) = (visits.first()?.0.start, visits.last()?.0.start);
    Some(Rhythm {
        every_ns,
        each_ns: held / u64::try_from(visits.len()).ok()?,
        times: visits.len(),
        steps: Some(between(first, last) / intervals.len()).filter(|&n| n > 0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP: u64 = 100;

    /// Steps without end; every `every`th has a gap of `each`, and all have one of `small`.
    fn job(every: u64, each: u64, small: u64) -> (Vec<(Span, u64)>, Vec<Ns>) {
        let (mut at, mut pieces, mut steps) = (1_000, Vec::new(), Vec::new());
        for i in 1..=200 {
            let gap = if i % every == 0 { each } else { small };
            if gap > 0 {
                pieces.push((Span::new(at, at + gap), gap));
            }
            at += gap;
            steps.push(at);
            at += STEP;
        }
        (pieces, steps)
    }

    #[test]
    fn what_comes_every_forty_steps_is_found_with_its_length() {
        let (pieces, steps) = job(40, 900, 0);
        let rhythm = of(&pieces, &steps).unwrap();
        assert_eq!(rhythm, Rhythm { every_ns: 40 * STEP + 900, each_ns: 900, times: 5, steps: Some(40) });
    }

    #[test]
    fn small_parts_in_between_do_not_hide_it_but_large_sums_of_them_do() {
        let (pieces, steps) = job(40, 900, 1);
        assert_eq!(of(&pieces, &steps).unwrap().times, 5);
        let (pieces, steps) = job(40, 900, 20);
        assert_eq!(of(&pieces, &steps), None);
    }

    #[test]
    fn what_comes_with_every_step_is_no_rhythm() {
        let (pieces, steps) = job(1, 50, 0);
        assert_eq!(of(&pieces, &steps), None);
        let (pieces, steps) = job(2, 50, 0);
        assert_eq!(of(&pieces, &steps), None);
    }

    #[test]
    fn twice_is_not_again_and_again() {
        let (pieces, steps) = job(90, 900, 0);
        assert_eq!((pieces.len(), of(&pieces, &steps)), (2, None));
    }

    #[test]
    fn a_visit_in_several_gaps_counts_once() {
        let (pieces, steps) = job(40, 900, 0);
        let halves: Vec<(Span, u64)> = pieces
            .iter()
            .flat_map(|(gap, ns)| {
                let middle = gap.start + gap.len() / 2;
                [(Span::new(gap.start, middle), ns / 2), (Span::new(middle, gap.end), ns / 2)]
            })
            .collect();
        assert_eq!(of(&halves, &steps).unwrap().times, 5);
    }

    proptest! {
        #[test]
        fn intervals_that_differ_are_no_rhythm(at in proptest::collection::vec(5..200_u64, 3..12)) {
            let (mut now, mut pieces) = (0, Vec::new());
            for step in &at {
                now += step * STEP;
                pieces.push((Span::new(now, now + STEP), STEP));
            }
            let steps: Vec<Ns> = (0..now / STEP).map(|i| i * STEP).collect();
            let intervals: Vec<u64> = pieces.windows(2).map(|p| p[1].0.start - p[0].0.start).collect();
            let mean = intervals.iter().sum::<u64>() / intervals.len() as u64;
            let even = intervals.iter().all(|i| i.abs_diff(mean) * 100 <= mean * LOOSE_PERCENT);
            prop_assert_eq!(of(&pieces, &steps).is_some(), even);
        }

        #[test]
        fn never_longer_than_what_it_is_made_of(
            parts in proptest::collection::vec((1..1_000_u64, 1..1_000_u64), 0..40),
            steps in proptest::collection::vec(0..40_000_u64, 0..60),
        ) {
            let mut now = 0;
            let pieces: Vec<(Span, u64)> = parts
                .into_iter()
                .map(|(rest, gap)| {
                    now += rest + gap;
                    (Span::new(now - gap, now), gap)
                })
                .collect();
            let mut steps = steps;
            steps.sort_unstable();
            if let Some(rhythm) = of(&pieces, &steps) {
                let whole: u64 = pieces.iter().map(|p| p.1).sum();
                prop_assert!(rhythm.each_ns * rhythm.times as u64 <= whole);
                prop_assert!(rhythm.every_ns <= now);
            }
        }
    }
}
