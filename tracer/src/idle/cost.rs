//! What a submit of each thread costs the device, relative to the others, learned from the readings.
//!
//! Forward and backward passes are launched by different threads, and their kernels differ in length.

use std::collections::BTreeMap;

use super::mass::Window;
use super::runs::Run;
use crate::trace::ThreadKey;

/// The relative cost of an average submit.
pub(super) const AVERAGE: u64 = 16;
/// No thread's submits are taken to be more than this much dearer or cheaper than the average.
const WITHIN: u64 = 16;
/// Steps of the fit. Few, so that what windows do not tell stays near the average.
const STEPS: usize = 8;

/// Relative costs by thread, around [`AVERAGE`]: each window's busy time is the sum of its submits' costs.
/// Multiplicative steps from equal costs, which stay positive and move only what the windows tell apart.
pub(super) fn fit(runs: &[Run], windows: &[Window]) -> BTreeMap<ThreadKey, u64> {
    let mut counts: BTreeMap<ThreadKey, Vec<f64>> = BTreeMap::new();
    let mut busy = vec![0.0; windows.len()];
    for (busy, window) in busy.iter_mut().zip(windows) {
        *busy = window.idle.map_or(0.0, |idle| real(window.span.len() - idle));
    }
    for run in runs {
        let of_thread = counts.entry(run.thread).or_insert_with(|| vec![0.0; windows.len()]);
        let from = windows.partition_point(|w| w.span.end <= run.first);
        for (count, window) in of_thread[from..].iter_mut().zip(&windows[from..]) {
            if window.span.start > run.last {
                break;
            }
            if window.idle.is_ok() {
                *count += real(run.counts(window.span).0);
            }
        }
    }
    let mut costs: BTreeMap<ThreadKey, f64> = counts.keys().map(|&key| (key, 1.0)).collect();
    if costs.len() > 1 {
        for _ in 0..STEPS {
            step(&counts, &busy, &mut costs);
        }
    }
    relative(&counts, &costs)
}

fn step(counts: &BTreeMap<ThreadKey, Vec<f64>>, busy: &[f64], costs: &mut BTreeMap<ThreadKey, f64>) {
    let mut predicted = vec![0.0; busy.len()];
    for (key, of_thread) in counts {
        for (sum, count) in predicted.iter_mut().zip(of_thread) {
            *sum += count * costs[key];
        }
    }
    for (key, cost) in costs {
        let (mut sum, mut weight) = (0.0, 0.0);
        for ((count, busy), predicted) in counts[key].iter().zip(busy).zip(&predicted) {
            if *predicted > 0.0 {
                sum += count * busy / predicted;
                weight += count;
            }
        }
        if weight > 0.0 {
            *cost *= sum / weight;
        }
    }
}

/// Costs as whole parts, the average over all submits being [`AVERAGE`].
fn relative(
    counts: &BTreeMap<ThreadKey, Vec<f64>>,
    costs: &BTreeMap<ThreadKey, f64>,
) -> BTreeMap<ThreadKey, u64> {
    let (mut sum, mut number) = (0.0, 0.0);
    for (key, of_thread) in counts {
        let submits: f64 = of_thread.iter().sum();
        sum += submits * costs[key];
        number += submits;
    }
    let scaled = |cost: f64| {
        let scaled = cost * number / sum * real(AVERAGE);
        // A cast of a float saturates, and of none is 0.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let whole = scaled.round() as u64;
        if scaled.is_finite() { whole.clamp(AVERAGE / WITHIN, AVERAGE * WITHIN) } else { AVERAGE }
    };
    costs.iter().map(|(&key, &cost)| (key, scaled(cost))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a fit needs no more")]
fn real(whole: u64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::testing::{MS, key};
    use crate::trace::Span;

    fn run(tid: u32, at: u64, count: u64) -> Run {
        Run { first: at, last: at, thread: key(tid), pid: 1, count, launches: count, exact: true }
    }

    fn window(i: u64, idle: u64) -> Window {
        Window { span: Span::new(i * 100 * MS, (i + 1) * 100 * MS), idle: Ok(idle * MS) }
    }

    #[test]
    fn one_thread_costs_the_average() {
        let costs = fit(&[run(1, 0, 10)], &[window(0, 30)]);
        assert_eq!(costs[&key(1)], AVERAGE);
    }

    #[test]
    fn the_dearer_thread_is_told_apart() {
        let runs = [run(1, 0, 10), run(2, 100 * MS, 10)];
        let costs = fit(&runs, &[window(0, 80), window(1, 40)]);
        assert_eq!((costs[&key(1)], costs[&key(2)]), (8, 24));
    }

    #[test]
    fn windows_that_tell_nothing_move_nothing() {
        let runs = [run(1, 0, 10), run(2, 1, 10)];
        let costs = fit(
            &runs,
            &[window(0, 80), Window { idle: Err(super::super::UnknownReason::NoValue), ..window(1, 0) }],
        );
        assert_eq!((costs[&key(1)], costs[&key(2)]), (AVERAGE, AVERAGE));
        assert_eq!(fit(&runs, &[])[&key(1)], AVERAGE);
    }
}
