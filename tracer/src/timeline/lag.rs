//! How much later a device's windows end than their stamps say, by fit against what the host saw.
//!
//! Drivers stamp a sample when they take note of it, which is not when its window ended. Where the host submits
//! work and waits for it, it knows roughly when the device was at work; the shift at which the readings follow
//! that best is the lag.

use super::model::Thread;
use crate::trace::{CudaFamily, Ns, Reading, ReadingSource, Span};

/// Fewer windows tell nothing.
const LEAST_WINDOWS: usize = 20;
/// Readings that hardly vary tell nothing: standard deviation, percent.
const LEAST_SPREAD: f64 = 2.0;
/// Under this confidence a lag is a guess.
const CERTAIN: f64 = 0.2;
/// Shifts tried in a period, at first and around the best of these.
const COARSE: i64 = 64;
const FINE: i64 = 20;

/// A lag by fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lag {
    /// To be added to a window's ends, nanoseconds.
    pub ns: i64,
    /// 0 to 1: how much of the readings' variation the work explains at this lag, and at no other.
    pub confidence: f64,
    /// Windows it was fitted to.
    pub windows: usize,
}

impl Lag {
    /// Whether work explains the readings about as well at another lag, or hardly at all.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        self.confidence < CERTAIN
    }
}

/// Fits one device's readings to the times at which the host knows of work on it (see [`work`]), in order and
/// not overlapping. `None` where there are too few windows or they all say the same.
#[must_use]
pub fn lag(readings: &[Reading], work: &[Span]) -> Option<Lag> {
    // GPM's windows lie between samples of our own: they have no lag to find.
    let windows: Vec<(Span, f64)> = readings
        .iter()
        .filter(|r| r.source == ReadingSource::NvmlSamples && !r.span.is_empty())
        .filter_map(|r| Some((r.span, r.busy_percent?)))
        .collect();
    let busy: Vec<f64> = windows.iter().map(|(_, busy)| *busy).collect();
    if windows.len() < LEAST_WINDOWS || spread(&busy) < LEAST_SPREAD || work.is_empty() {
        return None;
    }
    let mut lengths: Vec<u64> = windows.iter().map(|(span, _)| span.len()).collect();
    lengths.sort_unstable();
    let period = i64::try_from(lengths[lengths.len() / 2]).ok()?.max(COARSE * FINE);
    let coverage = Coverage::new(work);
    let fit = |shift: i64| explained(&windows, &busy, &coverage, shift);
    let step = period / COARSE;
    let coarse: Vec<(i64, f64)> = (-COARSE / 2..=2 * COARSE).map(|n| (n * step, fit(n * step))).collect();
    let near = best(coarse.iter().copied())?;
    let (ns, explains) = best((-FINE..=FINE).map(|n| near.0 + n * (step / FINE)).map(|s| (s, fit(s))))?;
    // A load that repeats fits at several shifts.
    let elsewhere = coarse.iter().filter(|(shift, _)| shift.abs_diff(ns) > period.unsigned_abs() / 4 * 3);
    let rival = best(elsewhere.copied()).map_or(0.0, |(_, explains)| explains);
    let confidence = (explains - rival).clamp(0.0, 1.0);
    (explains > 0.0).then_some(Lag { ns, confidence, windows: windows.len() })
}

/// When the host knows of work on a device: from the first submit after it was drained to the return of the
/// synchronise that drained it. In order, not overlapping. `threads`: those that feed the device.
#[must_use]
pub fn work<'a>(threads: impl Iterator<Item = &'a Thread>) -> Vec<Span> {
    // (time, whether it drains)
    let mut edges: Vec<(Ns, bool)> = Vec::new();
    for thread in threads {
        edges.extend(thread.submits.iter().map(|run| (run.first, false)));
        let drains = thread.calls.iter().filter(|call| call.family == CudaFamily::Synchronize);
        edges.extend(drains.filter_map(|call| Some((call.returned()?, true))));
    }
    edges.sort_unstable();
    let mut spans = Vec::new();
    let mut began = None;
    for (at, drained) in edges {
        if drained {
            spans.extend(began.take().map(|start| Span::new(start, at)).filter(|span| !span.is_empty()));
        } else {
            began.get_or_insert(at);
        }
    }
    spans
}

/// The shift that explains most; of equals the one nearest to none.
fn best(fits: impl Iterator<Item = (i64, f64)>) -> Option<(i64, f64)> {
    fits.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.unsigned_abs().cmp(&a.0.unsigned_abs())))
}

/// Share of the readings' variance that work in the shifted windows explains; 0 where they go against it.
fn explained(windows: &[(Span, f64)], busy: &[f64], coverage: &Coverage, shift: i64) -> f64 {
    let worked: Vec<f64> = windows.iter().map(|(span, _)| coverage.share(*span, shift)).collect();
    let (mean_busy, mean_worked) = (mean(busy), mean(&worked));
    let together: f64 =
        busy.iter().zip(&worked).map(|(b, w)| (b - mean_busy) * (w - mean_worked)).sum::<f64>();
    let (spread_busy, spread_worked) = (spread(busy), spread(&worked));
    if together <= 0.0 || spread_worked <= f64::EPSILON {
        return 0.0;
    }
    let correlation = together / (busy.len() as f64 * spread_busy * spread_worked);
    (correlation * correlation).min(1.0)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn spread(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// Work up to any time.
struct Coverage<'a> {
    spans: &'a [Span],
    /// Length of all spans before each.
    before: Vec<u64>,
}

impl<'a> Coverage<'a> {
    fn new(spans: &'a [Span]) -> Self {
        let mut sum = 0_u64;
        let before = spans
            .iter()
            .map(|span| {
                let before = sum;
                sum = sum.saturating_add(span.len());
                before
            })
            .collect();
        Self { spans, before }
    }

    fn until(&self, at: Ns) -> u64 {
        let after = self.spans.partition_point(|span| span.start < at);
        after
            .checked_sub(1)
            .map_or(0, |last| self.before[last] + (at - self.spans[last].start).min(self.spans[last].len()))
    }

    fn share(&self, span: Span, shift: i64) -> f64 {
        let (start, end) = (span.start.saturating_add_signed(shift), span.end.saturating_add_signed(shift));
        self.until(end).saturating_sub(self.until(start)) as f64 / span.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};

    const PERIOD: u64 = 166_666_667;

    /// Bursts of 50 to 850 ms with pauses of 50 to 650 ms, never the same twice in a row.
    fn bursts(count: u64) -> Vec<Span> {
        let mut at = 1_000 * MS;
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        (0..count)
            .map(|_| {
                let start = at + (50 + next(600)) * MS;
                at = start + (50 + next(800)) * MS;
                Span::new(start, at)
            })
            .collect()
    }

    /// What a device says that ran `share` of its work's time, with stamps early by `lag`.
    fn readings(work: &[Span], lag: i64, share: f64) -> Vec<Reading> {
        let coverage = Coverage::new(work);
        let end = work.last().map_or(0, |span| span.end);
        (6..end / PERIOD)
            .map(|n| {
                let span = Span::new(n * PERIOD, (n + 1) * PERIOD);
                let busy = (100.0 * share * coverage.share(span, lag)).round();
                reading(span, busy)
            })
            .collect()
    }

    fn reading(span: Span, busy: f64) -> Reading {
        Reading {
            device: 0,
            span,
            source: ReadingSource::NvmlSamples,
            busy_percent: Some(busy),
            power_mw: None,
            memory_percent: None,
            age_ns: 0,
            sm_clock_mhz: None,
            throttle_reasons: None,
        }
    }

    #[test]
    fn the_lag_is_found_whatever_its_sign_and_however_full_the_work() {
        let work = bursts(60);
        for lag_ms in [0, 3, 80, 160, 250, -60] {
            for share in [1.0, 0.3] {
                let lag_ns = lag_ms * MS.cast_signed();
                let found = lag(&readings(&work, lag_ns, share), &work).expect("a fit");
                assert!(found.ns.abs_diff(lag_ns) <= 2 * MS, "{found:?} for {lag_ms} ms");
                assert!(found.confidence > 0.3, "{found:?} for {lag_ms} ms");
            }
        }
    }

    #[test]
    fn work_that_the_host_sees_only_in_part_still_shows_the_lag() {
        let work = bursts(80);
        let seen: Vec<Span> =
            work.iter().copied().enumerate().filter(|(n, _)| n % 4 != 0).map(|(_, s)| s).collect();
        let found = lag(&readings(&work, 80 * MS.cast_signed(), 0.9), &seen).expect("a fit");
        assert!(found.ns.abs_diff(80 * MS.cast_signed()) <= 10 * MS, "{found:?}");
        let whole = lag(&readings(&work, 80 * MS.cast_signed(), 0.9), &work).expect("a fit");
        assert!(found.confidence < whole.confidence, "{found:?} {whole:?}");
    }

    #[test]
    fn a_load_in_step_with_the_windows_is_a_guess() {
        let work: Vec<Span> = (20..200).map(|n| Span::new(2 * n * PERIOD, 2 * n * PERIOD + PERIOD)).collect();
        let found = lag(&readings(&work, 30 * MS.cast_signed(), 1.0), &work);
        assert!(found.is_some_and(|found| found.is_guess()), "{found:?}");
    }

    #[test]
    fn readings_that_say_nothing_have_no_lag() {
        let work = bursts(60);
        let level: Vec<Reading> =
            (0..100).map(|n| reading(Span::new(n * PERIOD, (n + 1) * PERIOD), 50.0)).collect();
        assert_eq!(lag(&level, &work), None);
        assert_eq!(lag(&readings(&work, 0, 1.0)[..LEAST_WINDOWS - 1], &work), None);
        assert_eq!(lag(&readings(&work, 0, 1.0), &[]), None);
        let by_gpm: Vec<Reading> = readings(&work, 0, 1.0)
            .into_iter()
            .map(|r| Reading { source: ReadingSource::Gpm, ..r })
            .collect();
        assert_eq!(lag(&by_gpm, &work), None);
    }

    #[test]
    fn work_is_from_the_first_submit_to_the_return_that_drained_it() {
        let trace = TraceBuilder::new(0, 1_000 * MS)
            .thread(1, 1, "feeder")
            .submits(1, 10 * MS, 20 * MS, 5)
            .submits(1, 30 * MS, 40 * MS, 5)
            .call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 45 * MS, 60 * MS)
            .call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 70 * MS, 71 * MS)
            .submits(1, 100 * MS, 110 * MS, 5);
        let timeline = build(trace.records());
        assert_eq!(work(timeline.threads.values()), [Span::new(10 * MS, 60 * MS)]);
    }
}
