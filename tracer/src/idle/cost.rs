//! What submits cost the device, relative to each other, learned from its readings.
//!
//! A kernel is the same work each time it is launched with the same grid, and a larger grid mostly is more work.
//! The grid gives a first guess, which the windows of the recording correct as far as they tell kinds apart.

use std::collections::BTreeMap;

use super::mass::Window;
use super::runs::{Kind, Run};

/// The relative cost of an average submit.
pub(super) const AVERAGE: u64 = 1 << 10;
/// No submit is taken to be more than this much dearer or cheaper than the average.
const WITHIN: u64 = 1 << 10;
/// Steps of the fit. Few, so that what windows do not tell stays near the first guess.
const STEPS: usize = 8;

/// First guess for a kernel beside its process's main stream, in averages.
const BESIDE: f64 = 4.0;

/// Submits of one kind in one window.
struct Share {
    kind: usize,
    window: usize,
    count: f64,
}

/// Relative costs by kind, around [`AVERAGE`]: each window's busy time is the sum of its submits' costs.
/// Multiplicative steps from the first guess (Richardson and Lucy's), which stay positive and move only what the
/// windows tell apart. Each takes time in proportion to the number of (run, window) pairs that meet.
pub(super) fn fit(runs: &[Run], windows: &[Window]) -> BTreeMap<Kind, u64> {
    let kinds: BTreeMap<Kind, usize> = runs.iter().map(|r| (r.kind, 0)).collect();
    let kinds: BTreeMap<Kind, usize> = kinds.into_keys().zip(0..).collect();
    let shares = shares(runs, windows, &kinds);
    let busy = windows.iter().map(|w| w.idle.map_or(0.0, |idle| real(w.span.len() - idle)));
    let busy: Vec<f64> = busy.collect();
    let mut number = vec![0.0; kinds.len()];
    for run in runs {
        number[kinds[&run.kind]] += real(run.count);
    }
    let mut costs = guess(&kinds, &number);
    if costs.len() > 1 {
        for _ in 0..STEPS {
            step(&shares, &busy, &mut costs);
        }
    }
    relative(&kinds, &number, &costs)
}

/// In order of kinds and windows, so that sums are the same however runs are cut.
fn shares(runs: &[Run], windows: &[Window], kinds: &BTreeMap<Kind, usize>) -> Vec<Share> {
    let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for run in runs {
        let kind = kinds[&run.kind];
        let from = windows.partition_point(|w| w.span.end <= run.first);
        for (window, i) in windows[from..].iter().zip(from..) {
            if window.span.start > run.last {
                break;
            }
            if window.idle.is_ok() {
                let count = counts.entry((kind, i)).or_insert(0);
                *count = count.saturating_add(run.counts(window.span).0);
            }
        }
    }
    let share = |((kind, window), count)| Share { kind, window, count: real(count) };
    counts.into_iter().filter(|&(_, count)| count > 0).map(share).collect()
}

/// A grid of four times the blocks takes twice the time: the first fill the device's idle units, further ones
/// wait for them. Where there is no grid, the average of those that have one. Beside the stream a process uses
/// most, kernels mostly wait for other devices in a few blocks, and what little is known of them is that they are
/// long.
fn guess(kinds: &BTreeMap<Kind, usize>, number: &[f64]) -> Vec<f64> {
    let main = main_streams(kinds, number);
    let beside = |kind: &Kind| kind.function != 0 && main.get(&kind.pid).is_some_and(|&s| s != kind.stream);
    let by_grid = |kind: &Kind| (kind.blocks > 0 && !beside(kind)).then(|| real(kind.blocks).sqrt());
    let (mut sum, mut known) = (0.0, 0.0);
    for (kind, &i) in kinds {
        if let Some(cost) = by_grid(kind) {
            sum += cost * number[i];
            known += number[i];
        }
    }
    let average = if known > 0.0 { sum / known } else { 1.0 };
    let otherwise = |kind: &Kind| if beside(kind) { BESIDE * average } else { average };
    kinds.keys().map(|kind| by_grid(kind).unwrap_or_else(|| otherwise(kind))).collect()
}

/// The stream of each process that got most of its kernels.
fn main_streams(kinds: &BTreeMap<Kind, usize>, number: &[f64]) -> BTreeMap<u32, u64> {
    let mut counts: BTreeMap<(u32, u64), f64> = BTreeMap::new();
    for (kind, &i) in kinds.iter().filter(|(kind, _)| kind.function != 0) {
        *counts.entry((kind.pid, kind.stream)).or_default() += number[i];
    }
    let mut main: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for ((pid, stream), count) in counts {
        let most = main.entry(pid).or_insert((stream, count));
        if count > most.1 {
            *most = (stream, count);
        }
    }
    main.into_iter().map(|(pid, (stream, _))| (pid, stream)).collect()
}

fn step(shares: &[Share], busy: &[f64], costs: &mut [f64]) {
    let mut predicted = vec![0.0; busy.len()];
    for share in shares {
        predicted[share.window] += share.count * costs[share.kind];
    }
    let (mut sum, mut weight) = (vec![0.0; costs.len()], vec![0.0; costs.len()]);
    for share in shares {
        if predicted[share.window] > 0.0 {
            sum[share.kind] += share.count * busy[share.window] / predicted[share.window];
            weight[share.kind] += share.count;
        }
    }
    for ((cost, sum), weight) in costs.iter_mut().zip(sum).zip(weight) {
        if weight > 0.0 {
            *cost *= sum / weight;
        }
    }
}

/// Costs as whole parts, the average over all submits being [`AVERAGE`].
fn relative(kinds: &BTreeMap<Kind, usize>, number: &[f64], costs: &[f64]) -> BTreeMap<Kind, u64> {
    let sum: f64 = costs.iter().zip(number).map(|(cost, number)| cost * number).sum();
    let submits: f64 = number.iter().sum();
    let scaled = |cost: f64| {
        let scaled = cost * submits / sum * real(AVERAGE);
        // A cast of a float saturates, and of none is 0.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let whole = scaled.round() as u64;
        if scaled.is_finite() { whole.clamp(AVERAGE / WITHIN, AVERAGE * WITHIN) } else { AVERAGE }
    };
    kinds.iter().map(|(&kind, &i)| (kind, scaled(costs[i]))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a fit needs no more")]
fn real(whole: u64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::testing::{MS, key};
    use crate::trace::{CudaFamily, Span};

    fn kind(function: u64, blocks: u64) -> Kind {
        Kind { pid: 1, thread: None, family: CudaFamily::Launch, stream: 0, function, blocks }
    }

    fn run(kind: Kind, at: u64, count: u64) -> Run {
        let thread = key(1);
        Run { first: at, last: at, thread, pid: 1, count, launches: count, exact: true, late: 0, kind }
    }

    fn window(i: u64, idle: u64) -> Window {
        Window { span: Span::new(i * 100 * MS, (i + 1) * 100 * MS), idle: Ok(idle * MS) }
    }

    #[test]
    fn one_kind_costs_the_average() {
        let costs = fit(&[run(kind(1, 9), 0, 10)], &[window(0, 30)]);
        assert_eq!(costs[&kind(1, 9)], AVERAGE);
    }

    #[test]
    fn the_dearer_function_is_told_apart() {
        let runs = [run(kind(1, 1), 0, 10), run(kind(2, 1), 100 * MS, 10)];
        let costs = fit(&runs, &[window(0, 80), window(1, 40)]);
        assert_eq!((costs[&kind(1, 1)], costs[&kind(2, 1)]), (AVERAGE / 2, AVERAGE * 3 / 2));
    }

    #[test]
    fn windows_that_tell_nothing_leave_the_grids_guess() {
        let runs = [run(kind(1, 1), 0, 10), run(kind(1, 9), 1, 5), run(kind(0, 0), 2, 5)];
        let silent = Window { idle: Err(super::super::UnknownReason::NoValue), ..window(1, 0) };
        for windows in [&[window(0, 80), silent][..], &[]] {
            let costs = fit(&runs, windows);
            let small = costs[&kind(1, 1)];
            assert!(costs[&kind(1, 9)].abs_diff(3 * small) <= 2);
            // The average of ten that cost 1 and five that cost 3.
            assert!((3 * costs[&kind(0, 0)]).abs_diff(5 * small) <= 4);
        }
    }
}
