//! Turns samples and rates into windows: in order, not overlapping, without holes where there were none.

use std::collections::VecDeque;

use crate::trace::{Ns, Reading, ReadingSource, Span};

/// What NVML documents for current products; used until stamps show the real one.
pub(super) const USUAL_PERIOD_NS: u64 = 166_666_667;
/// Documented range, with room: a period outside was no period.
const PERIODS: std::ops::RangeInclusive<u64> = 10_000_000..=2_000_000_000;
/// Distances between stamps the median is taken of.
const DISTANCES: usize = 101;

/// A device's sample period, as the median distance between stamps.
#[derive(Debug, Default)]
pub(super) struct Period {
    distances: VecDeque<u64>,
}

impl Period {
    /// Adds the distances between stamps of one buffer, oldest first, microseconds.
    pub(super) fn add(&mut self, stamps_us: &[u64]) {
        for pair in stamps_us.windows(2) {
            let distance = pair[1].saturating_sub(pair[0]).saturating_mul(1000);
            if PERIODS.contains(&distance) {
                self.distances.push_back(distance);
            }
        }
        while self.distances.len() > DISTANCES {
            self.distances.pop_front();
        }
    }

    /// `None` until two samples were seen.
    pub(super) fn measured(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.distances.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    pub(super) fn ns(&self) -> u64 {
        self.measured().unwrap_or(USUAL_PERIOD_NS)
    }
}

/// What is known of one window, beside its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sampled {
    pub(super) end: Ns,
    pub(super) busy_percent: Option<f64>,
    pub(super) power_mw: Option<u32>,
    pub(super) memory_percent: Option<f64>,
}

/// What was read at the poll itself and holds for its newest windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    pub(super) at: Ns,
    pub(super) sm_clock_mhz: Option<u32>,
    pub(super) throttle_reasons: Option<u64>,
}

/// One device's windows so far.
#[derive(Debug)]
pub(super) struct Windows {
    device: u32,
    /// Windows that began earlier are not complete.
    opened: Ns,
    /// End of the last window given out; `opened` before the first.
    end: Ns,
    begun: bool,
    /// End of the last window that GPM gave: samples begun before it tell of time that is told of already.
    by_gpm: Ns,
    /// Rates read while no sample came: given out once it is clear that none will.
    held: VecDeque<Reading>,
}

impl Windows {
    pub(super) fn new(device: u32, opened: Ns) -> Self {
        Self { device, opened, end: opened, begun: false, by_gpm: 0, held: VecDeque::new() }
    }

    /// New samples, oldest first, each the end of a window of `period` ns.
    pub(super) fn samples(&mut self, new: &[Sampled], period: u64, moment: Moment, out: &mut Vec<Reading>) {
        for sample in new {
            let start = sample.end.saturating_sub(period);
            let told = sample.end <= self.end || start < self.by_gpm;
            if told || sample.end > moment.at.saturating_add(period / 8) {
                continue;
            }
            if self.begun && start.saturating_sub(self.end) >= jitter(period) {
                self.release(start, out);
            }
            self.held.clear();
            self.give(self.reading(start, sample, ReadingSource::NvmlSamples, moment), period, out);
        }
    }

    /// Rates read at the poll: the window that ends with it. Where `samples` may still come for it, it is
    /// held back for two periods.
    pub(super) fn rates(
        &mut self,
        rates: &Sampled,
        period: u64,
        moment: Moment,
        samples: bool,
        out: &mut Vec<Reading>,
    ) {
        let after = self.held.back().map_or(self.end, |held| held.span.end);
        let start = rates.end.saturating_sub(period).max(after);
        if start < rates.end {
            let mut reading = self.reading(start, rates, ReadingSource::NvmlRates, moment);
            // The rates are those of the last whole period, which may have ended up to one ago.
            reading.age_ns = period;
            self.held.push_back(reading);
        }
        let settled = if samples { moment.at.saturating_sub(2 * period) } else { Ns::MAX };
        while self.held.front().is_some_and(|held| held.span.end <= settled) {
            if let Some(held) = self.held.pop_front() {
                self.give(held, period, out);
            }
        }
    }

    /// A window between two samples of our own.
    pub(super) fn gpm(&mut self, span: Span, measured: &Sampled, moment: Moment, out: &mut Vec<Reading>) {
        self.held.clear();
        let mut reading = self.reading(span.start, measured, ReadingSource::Gpm, moment);
        // The second sample was taken a moment ago, whenever the window is looked at.
        reading.age_ns = moment.at.saturating_sub(span.end);
        self.by_gpm = span.end;
        self.give(reading, 0, out);
    }

    /// Gives out what was held back for the time before `until`.
    fn release(&mut self, until: Ns, out: &mut Vec<Reading>) {
        while self.held.front().is_some_and(|held| held.span.start < until) {
            if let Some(mut held) = self.held.pop_front() {
                held.span.end = held.span.end.min(until);
                self.give(held, 0, out);
            }
        }
    }

    fn reading(&self, start: Ns, sample: &Sampled, source: ReadingSource, moment: Moment) -> Reading {
        Reading {
            device: self.device,
            span: Span::new(start, sample.end),
            source,
            busy_percent: sample.busy_percent.filter(|percent| (0.0..=100.0).contains(percent)),
            power_mw: sample.power_mw,
            memory_percent: sample.memory_percent.filter(|percent| (0.0..=100.0).contains(percent)),
            age_ns: moment.at.saturating_sub(sample.end),
            sm_clock_mhz: moment.sm_clock_mhz,
            throttle_reasons: moment.throttle_reasons,
        }
    }

    /// Fits the window to the one before: no overlap, and no hole where stamps merely jitter.
    fn give(&mut self, mut reading: Reading, period: u64, out: &mut Vec<Reading>) {
        if !self.begun && reading.span.start < self.opened {
            return;
        }
        let hole = reading.span.start.saturating_sub(self.end);
        if self.begun && hole < jitter(period) {
            reading.span.start = self.end;
        }
        reading.span.start = reading.span.start.max(self.end);
        if reading.span.start < reading.span.end {
            self.end = reading.span.end;
            self.begun = true;
            out.push(reading);
        }
    }
}

/// Shorter holes between windows are the stamps' doing.
fn jitter(period: u64) -> u64 {
    period / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: u64 = 166_000_000;

    fn at(end: u64, busy: f64) -> Sampled {
        Sampled { end, busy_percent: Some(busy), ..Sampled::default() }
    }

    fn moment(at: u64) -> Moment {
        Moment { at, ..Moment::default() }
    }

    fn spans(readings: &[Reading]) -> Vec<(u64, u64, ReadingSource)> {
        readings.iter().map(|r| (r.span.start, r.span.end, r.source)).collect()
    }

    #[test]
    fn jittering_stamps_still_touch_and_a_missing_one_leaves_a_hole() {
        let (mut windows, mut out) = (Windows::new(0, 0), Vec::new());
        let new = [at(P, 1.0), at(2 * P + 9_000_000, 2.0), at(3 * P - 5_000_000, 3.0), at(5 * P, 4.0)];
        windows.samples(&new, P, moment(5 * P), &mut out);
        let samples = ReadingSource::NvmlSamples;
        assert_eq!(
            spans(&out),
            [
                (0, P, samples),
                (P, 2 * P + 9_000_000, samples),
                (2 * P + 9_000_000, 3 * P - 5_000_000, samples),
                (4 * P, 5 * P, samples),
            ]
        );
    }

    #[test]
    fn a_window_begun_before_the_signal_is_left_out() {
        let (mut windows, mut out) = (Windows::new(0, P / 2), Vec::new());
        windows.samples(&[at(P, 1.0), at(2 * P, 2.0)], P, moment(2 * P), &mut out);
        assert_eq!(spans(&out), [(P, 2 * P, ReadingSource::NvmlSamples)]);
    }

    #[test]
    fn rates_fill_in_only_where_no_samples_come() {
        let (mut windows, mut out) = (Windows::new(0, 0), Vec::new());
        windows.samples(&[at(P, 90.0)], P, moment(P), &mut out);
        // Late by one period: held, then replaced by the samples themselves.
        windows.rates(&at(2 * P, 50.0), P, moment(2 * P), true, &mut out);
        windows.samples(&[at(2 * P, 91.0), at(3 * P, 92.0)], P, moment(3 * P), &mut out);
        assert_eq!(
            out.iter().map(|r| r.busy_percent).collect::<Vec<_>>(),
            [Some(90.0), Some(91.0), Some(92.0)]
        );
        // Idle without samples: the rates stand, without a hole.
        for k in 4..=10 {
            windows.rates(&at(k * P, 0.0), P, moment(k * P), true, &mut out);
        }
        windows.samples(&[at(11 * P, 93.0)], P, moment(11 * P), &mut out);
        assert!(out.windows(2).all(|w| w[0].span.end == w[1].span.start), "{:?}", spans(&out));
        assert_eq!(out.iter().filter(|r| r.source == ReadingSource::NvmlRates).count(), 7);
        assert_eq!(out.last().map(|r| r.span), Some(Span::new(10 * P, 11 * P)));
    }

    #[test]
    fn held_rates_are_not_cut_into_slivers_by_jitter() {
        let (mut windows, mut out) = (Windows::new(0, 0), Vec::new());
        windows.samples(&[at(P, 90.0)], P, moment(P), &mut out);
        windows.rates(&at(P + 60_000_000, 50.0), P, moment(P + 60_000_000), true, &mut out);
        windows.samples(&[at(2 * P + 333, 91.0)], P, moment(2 * P + 400), &mut out);
        assert_eq!(out.iter().map(|r| r.span.end).collect::<Vec<_>>(), [P, 2 * P + 333]);
        assert_eq!(out[1].span.start, P);
    }

    #[test]
    fn the_first_window_is_a_whole_one() {
        let (mut windows, mut out) = (Windows::new(0, P / 2), Vec::new());
        windows.rates(&at(P / 2 + P + 10, 50.0), P, moment(P / 2 + P + 10), true, &mut out);
        windows.samples(&[at(2 * P, 91.0)], P, moment(2 * P), &mut out);
        assert_eq!(spans(&out), [(P, 2 * P, ReadingSource::NvmlSamples)]);
    }

    #[test]
    fn without_sample_buffers_rates_come_at_once() {
        let (mut windows, mut out) = (Windows::new(0, 0), Vec::new());
        windows.rates(&at(P, 7.0), P, moment(P), false, &mut out);
        // A late poll: the rates tell of one period only.
        windows.rates(&at(4 * P, 8.0), P, moment(4 * P), false, &mut out);
        let rates = ReadingSource::NvmlRates;
        assert_eq!(spans(&out), [(0, P, rates), (3 * P, 4 * P, rates)]);
    }

    #[test]
    fn where_gpm_stops_samples_go_on_without_telling_of_time_twice() {
        let (mut windows, mut out) = (Windows::new(0, 0), Vec::new());
        for k in 0..3 {
            let span = Span::new(k * P, (k + 1) * P);
            windows.gpm(span, &at(span.end, 40.0), moment(span.end + 7), &mut out);
        }
        windows.samples(
            &[at(3 * P - 9, 1.0), at(3 * P + P / 2, 2.0), at(4 * P + P / 2, 3.0)],
            P,
            moment(5 * P),
            &mut out,
        );
        let (gpm, samples) = (ReadingSource::Gpm, ReadingSource::NvmlSamples);
        assert_eq!(
            spans(&out),
            [(0, P, gpm), (P, 2 * P, gpm), (2 * P, 3 * P, gpm), (3 * P + P / 2, 4 * P + P / 2, samples)]
        );
        assert_eq!((out[0].age_ns, out[0].busy_percent), (7, Some(40.0)));
    }

    #[test]
    fn nonsense_has_no_value() {
        let (mut windows, mut out) = (Windows::new(0, 0), Vec::new());
        for (k, percent) in [-1.0, 100.5, 1170.0, f64::NAN, f64::INFINITY, 100.0].into_iter().enumerate() {
            windows.samples(&[at((k as u64 + 1) * P, percent)], P, moment(9 * P), &mut out);
        }
        let values: Vec<_> = out.iter().map(|r| r.busy_percent).collect();
        assert_eq!(values, [None, None, None, None, None, Some(100.0)]);
    }

    #[test]
    fn the_period_is_the_median_and_ignores_nonsense() {
        let mut period = Period::default();
        assert_eq!(period.measured(), None);
        period.add(&[0, 0, 166_000, 332_000, 900_000, 1_066_000, u64::MAX, 5]);
        assert_eq!(period.measured(), Some(166_000_000));
    }

    proptest! {
        #[test]
        fn whatever_comes_windows_are_in_order_and_do_not_overlap(
            polls in prop::collection::vec((any::<bool>(), 0..40_u64, any::<u64>(), any::<u64>()), 0..60)
        ) {
            let (mut windows, mut out) = (Windows::new(0, 1_000), Vec::new());
            let mut now = 1_000;
            for (sampled, step, end, period) in polls {
                now += step * 10_000_000;
                let end = if end % 3 == 0 { end } else { now.saturating_sub(end % 400_000_000) };
                let period = period % 2_000_000_000;
                if sampled {
                    windows.samples(&[at(end, 5.0)], period, moment(now), &mut out);
                } else {
                    windows.rates(&at(now, 5.0), period, moment(now), end % 2 == 0, &mut out);
                }
            }
            prop_assert!(out.iter().all(|r| !r.span.is_empty()));
            prop_assert!(out.windows(2).all(|w| w[0].span.end <= w[1].span.start));
        }
    }
}
