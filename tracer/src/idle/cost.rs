//! What submits cost the device, relative to each other, learned from its readings.
//!
//! A kernel is the same work each time it is launched with the same grid, and a larger grid mostly is more work.
//! The grid gives a first guess, which the windows of the recording, and the calls that waited until the device
//! was empty, correct as far as they tell kinds apart.

use std::collections::BTreeMap;

use super::mass::Window;
use super::runs::{Kind, Run};
use crate::trace::Span;

/// The relative cost of an average submit.
pub(super) const AVERAGE: u64 = 1 << 10;
/// No submit is taken to be more than this much dearer or cheaper than the average.
const WITHIN: u64 = 1 << 10;
/// Steps of the fit for classes of kinds, and then for kinds. Few of those, so that what is not told of a kind
/// stays near what its class costs.
const CLASS_STEPS: usize = 50;
const STEPS: usize = 8;
/// Grids of one class differ by no more than this many binary digits.
const CLASS_BITS: u32 = 3;

/// First guess for a kernel beside its process's main stream, in averages, were there as many as on that.
const BESIDE: f64 = 4.0;
/// A kernel of no more blocks than this does little work: what takes its time is waiting.
const FEW_BLOCKS: u64 = 64;

/// How long the submits in a stretch keep the device busy, in nanoseconds. In order and apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub span: Span,
    pub least: u64,
    pub most: u64,
}

impl Told {
    /// What a reading says, if it says something.
    pub(super) fn of_window(window: &Window) -> Option<Self> {
        let busy = window.span.len() - window.idle.ok()?;
        Some(Self { span: window.span, least: busy, most: busy })
    }

    /// How much too low the prediction is.
    fn ratio(&self, predicted: f64) -> f64 {
        predicted.max(real(self.least)).min(real(self.most)) / predicted
    }
}

/// Submits of one kind, or class of kinds, in one of the stretches.
struct Share {
    kind: usize,
    told: usize,
    count: f64,
}

/// Relative costs by kind, around [`AVERAGE`], from what readings and drains tell: each stretch's busy time is the
/// sum of its submits' costs. Multiplicative steps from the first guess (Richardson and Lucy's), which stay
/// positive and move only what is told apart. Each takes time in proportion to the number of (kind, stretch) pairs
/// that meet.
pub(super) fn fit(runs: &[Run], readings: &[Told], drains: &[Told]) -> BTreeMap<Kind, u64> {
    let kinds: BTreeMap<Kind, usize> = runs.iter().map(|r| (r.kind, 0)).collect();
    let kinds: BTreeMap<Kind, usize> = kinds.into_keys().zip(0..).collect();
    let mut number = vec![0.0; kinds.len()];
    for run in runs {
        number[kinds[&run.kind]] += real(run.count);
    }
    let mut costs = guess(&kinds, &number);
    let mut shares = shares(runs, readings, &kinds);
    to_scale(&shares, readings, &mut costs);
    let of_drains = self::shares(runs, drains, &kinds);
    shares.extend(of_drains.into_iter().map(|s| Share { told: s.told + readings.len(), ..s }));
    let told: Vec<Told> = readings.iter().chain(drains).copied().collect();
    fit_classes(&kinds, &shares, &told, &mut costs);
    for _ in 0..STEPS {
        step(&shares, &told, &mut costs);
    }
    relative(&kinds, &number, &costs)
}

/// In order of kinds and stretches, so that sums are the same however runs are cut.
fn shares(runs: &[Run], told: &[Told], kinds: &BTreeMap<Kind, usize>) -> Vec<Share> {
    let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for run in runs {
        let kind = kinds[&run.kind];
        let from = told.partition_point(|t| t.span.end <= run.first);
        for (stretch, i) in told[from..].iter().zip(from..) {
            if stretch.span.start > run.last {
                break;
            }
            let count = counts.entry((kind, i)).or_insert(0);
            *count = count.saturating_add(run.counts(stretch.span).0);
        }
    }
    let share = |((kind, told), count)| Share { kind, told, count: real(count) };
    counts.into_iter().filter(|&(_, count)| count > 0).map(share).collect()
}

/// Brings the first guess to nanoseconds: all readings together.
fn to_scale(shares: &[Share], readings: &[Told], costs: &mut [f64]) {
    let busy: f64 = readings.iter().map(|t| real(t.least)).sum();
    let predicted: f64 = shares.iter().map(|s| s.count * costs[s.kind]).sum();
    if predicted > 0.0 {
        costs.iter_mut().for_each(|cost| *cost *= busy / predicted);
    }
}

/// Kernels of one stream and about as many blocks mostly do alike; what their costs have in common is told by far
/// more submits than any kind's own.
fn fit_classes(kinds: &BTreeMap<Kind, usize>, shares: &[Share], told: &[Told], costs: &mut [f64]) {
    let class = |kind: &Kind| {
        let size = kind.blocks.checked_ilog2().map_or(0, |bits| u64::from(bits / CLASS_BITS) + 1);
        Kind { function: 0, blocks: size, ..*kind }
    };
    let classes: BTreeMap<Kind, usize> = kinds.keys().map(|kind| (class(kind), 0)).collect();
    let classes: BTreeMap<Kind, usize> = classes.into_keys().zip(0..).collect();
    let of_kind: Vec<usize> = kinds.keys().map(|kind| classes[&class(kind)]).collect();
    let mut sums: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for share in shares {
        *sums.entry((of_kind[share.kind], share.told)).or_default() += share.count * costs[share.kind];
    }
    let shares: Vec<Share> =
        sums.into_iter().map(|((kind, told), count)| Share { kind, told, count }).collect();
    let mut factors = vec![1.0; classes.len()];
    for _ in 0..CLASS_STEPS {
        step(&shares, told, &mut factors);
    }
    for (cost, class) in costs.iter_mut().zip(of_kind) {
        *cost *= factors[class];
    }
}

/// A grid of four times the blocks takes twice the time: the first fill the device's idle units, further ones
/// wait for them. Where there is no grid, the average of those that have one.
///
/// Beside the stream a process uses most, kernels of a few blocks mostly move data between devices and wait for
/// them, so that their length has nothing to do with their grid. The fewer there are, the more each has to move.
fn guess(kinds: &BTreeMap<Kind, usize>, number: &[f64]) -> Vec<f64> {
    let main = main_streams(kinds, number);
    let beside = |kind: &Kind| {
        let few = kind.function != 0 && (1..=FEW_BLOCKS).contains(&kind.blocks);
        main.get(&kind.pid).filter(|&&(stream, _)| few && stream != kind.stream).map(|&(_, count)| count)
    };
    let by_grid = |kind: &Kind| (kind.blocks > 0 && beside(kind).is_none()).then(|| real(kind.blocks).sqrt());
    let (mut sum, mut known) = (0.0, 0.0);
    let mut numbers: BTreeMap<(u32, u64), f64> = BTreeMap::new();
    for (kind, &i) in kinds {
        match by_grid(kind) {
            Some(cost) => (sum, known) = (sum + cost * number[i], known + number[i]),
            None => *numbers.entry((kind.pid, kind.stream)).or_default() += number[i],
        }
    }
    let average = if known > 0.0 { sum / known } else { 1.0 };
    let otherwise = |kind: &Kind| match beside(kind) {
        Some(on_main) => BESIDE * average * (on_main / numbers[&(kind.pid, kind.stream)]).sqrt(),
        None => average,
    };
    kinds.keys().map(|kind| by_grid(kind).unwrap_or_else(|| otherwise(kind))).collect()
}

/// The stream of each process that got most of its kernels, and how many those are.
fn main_streams(kinds: &BTreeMap<Kind, usize>, number: &[f64]) -> BTreeMap<u32, (u64, f64)> {
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
    main
}

fn step(shares: &[Share], told: &[Told], costs: &mut [f64]) {
    let mut predicted = vec![0.0; told.len()];
    for share in shares {
        predicted[share.told] += share.count * costs[share.kind];
    }
    let (mut sum, mut weight) = (vec![0.0; costs.len()], vec![0.0; costs.len()]);
    for share in shares {
        if predicted[share.told] > 0.0 {
            sum[share.kind] += share.count * told[share.told].ratio(predicted[share.told]);
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
    use crate::trace::CudaFamily;

    fn kind(function: u64, blocks: u64) -> Kind {
        Kind { pid: 1, thread: None, family: CudaFamily::Launch, stream: 0, function, blocks }
    }

    fn run(kind: Kind, at: u64, count: u64) -> Run {
        let thread = key(1);
        Run { first: at, last: at, thread, pid: 1, count, launches: count, exact: true, late: 0, kind }
    }

    fn told(i: u64, least: u64, most: u64) -> Told {
        Told { span: Span::new(i * 100 * MS, (i + 1) * 100 * MS), least: least * MS, most: most * MS }
    }

    fn reading(i: u64, busy: u64) -> Told {
        told(i, busy, busy)
    }

    #[test]
    fn one_kind_costs_the_average() {
        let costs = fit(&[run(kind(1, 9), 0, 10)], &[reading(0, 70)], &[]);
        assert_eq!(costs[&kind(1, 9)], AVERAGE);
    }

    #[test]
    fn the_dearer_function_is_told_apart() {
        let runs = [run(kind(1, 1), 0, 10), run(kind(2, 1), 100 * MS, 10)];
        let costs = fit(&runs, &[reading(0, 20), reading(1, 60)], &[]);
        assert_eq!((costs[&kind(1, 1)], costs[&kind(2, 1)]), (AVERAGE / 2, AVERAGE * 3 / 2));
    }

    #[test]
    fn what_grids_of_a_size_have_in_common_is_told_by_all_of_them() {
        // Of four functions of one size, two windows tell that they are dearer than the small ones; of the
        // fifth and sixth nobody tells but their sizes.
        let big = |function| kind(function, 1 << 12);
        let small = |function| kind(function, 1);
        let runs = [
            run(big(1), 0, 10),
            run(big(2), 1, 10),
            run(small(3), 100 * MS, 10),
            run(small(4), 101 * MS, 10),
        ];
        let untold = [run(big(5), 900 * MS, 1), run(small(6), 900 * MS, 1)];
        let runs: Vec<Run> = runs.into_iter().chain(untold).collect();
        let costs = fit(&runs, &[reading(0, 50), reading(1, 5)], &[]);
        for (dear, cheap) in [(1, 3), (2, 4), (5, 6)] {
            let ratio = real(costs[&big(dear)]) / real(costs[&small(cheap)]);
            assert!((9.5..10.5).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn a_drain_bounds_what_was_submitted_before_it() {
        // One window holds both functions; ten of the first took 30 to 40 ms.
        let runs = [run(kind(1, 1), 0, 10), run(kind(2, 1), 50 * MS, 10)];
        let drain = |least, most| Told { span: Span::new(0, 40 * MS), ..told(0, least, most) };
        let first = |drains: &[Told]| fit(&runs, &[reading(0, 40)], drains)[&kind(1, 1)];
        assert_eq!(first(&[]), AVERAGE);
        assert_eq!(first(&[drain(10, 40)]), AVERAGE, "20 ms are within these bounds");
        assert!(first(&[drain(30, 40)]) > AVERAGE * 5 / 4);
        assert!(first(&[drain(0, 10)]) < AVERAGE * 3 / 4);
    }

    #[test]
    fn a_few_blocks_beside_the_main_stream_are_long_ones() {
        let beside = |blocks| Kind { stream: 1, ..kind(2, blocks) };
        let costs = |blocks| {
            let runs = [run(kind(1, 16), 0, 100), run(beside(blocks), 1, 4)];
            let costs = fit(&runs, &[], &[]);
            real(costs[&beside(blocks)]) / real(costs[&kind(1, 16)])
        };
        assert!((costs(8) / 20.0 - 1.0).abs() < 0.05, "four times the root of 25: {}", costs(8));
        assert!((costs(1600) / 10.0 - 1.0).abs() < 0.05, "by its grid: {}", costs(1600));
    }

    #[test]
    fn windows_that_tell_nothing_leave_the_grids_guess() {
        let runs = [run(kind(1, 1), 0, 10), run(kind(1, 7), 1, 5), run(kind(0, 0), 2, 5)];
        let costs = fit(&runs, &[], &[]);
        let small = costs[&kind(1, 1)];
        assert!((real(costs[&kind(1, 7)]) - 7_f64.sqrt() * real(small)).abs() <= 2.0);
        let average = (10.0 + 5.0 * 7_f64.sqrt()) / 15.0;
        assert!((real(costs[&kind(0, 0)]) - average * real(small)).abs() <= 2.0);
    }

    #[test]
    fn nothing_told_is_no_time() {
        let silent = Window { span: Span::new(0, MS), idle: Err(super::super::UnknownReason::NoValue) };
        assert_eq!(Told::of_window(&silent), None);
        let busy = Window { idle: Ok(MS / 4), ..silent };
        assert_eq!(Told::of_window(&busy).map(|t| (t.least, t.most)), Some((MS * 3 / 4, MS * 3 / 4)));
    }
}
