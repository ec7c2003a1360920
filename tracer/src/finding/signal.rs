//! Where a device's busy time comes from, and how good that source is here.

use crate::idle::{DeviceMap, feeders};
use crate::timeline::{DeviceTrack, Lag, Timeline, lag, work};
use crate::trace::{DeviceClock, ReadingSource};

/// One sentence a device whose clock was recorded.
pub(super) fn notes(timeline: &Timeline, map: &DeviceMap) -> impl Iterator<Item = String> {
    let note = move |(&index, track): (&u32, &DeviceTrack)| {
        let lag = || {
            let (threads, _) = feeders(timeline, map, index);
            lag(&track.readings, &work(threads.iter().map(AsRef::as_ref)))
        };
        Some(format!("GPU {index}: {}.", sentence(track, lag)?))
    };
    timeline.devices.iter().filter_map(note)
}

fn sentence(track: &DeviceTrack, lag: impl FnOnce() -> Option<Lag>) -> Option<String> {
    let clock = track.clocks.last()?;
    let has = |source| track.readings.iter().any(|r| r.source == source && r.busy_percent.is_some());
    let mut lengths: Vec<u64> = track.readings.iter().map(|r| r.span.len()).collect();
    lengths.sort_unstable();
    let window = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    if has(ReadingSource::Gpm) {
        return Some(format!(
            "busy time from GPM's graphics-engine utilisation, windows of {}, NVML's samples beside it as a check",
            ms(window)
        ));
    }
    if has(ReadingSource::NvmlSamples) {
        return Some(format!(
            "busy time from NVML's sample buffers, windows of {}, {}",
            ms(window),
            stamps(clock, lag())
        ));
    }
    has(ReadingSource::NvmlRates)
        .then(|| format!("busy time from NVML's rates, up to {} late, as it gave no samples", ms(window)))
}

fn stamps(clock: &DeviceClock, lag: Option<Lag>) -> String {
    let domain = match clock.domain.as_str() {
        name @ ("monotonic" | "boottime" | "realtime") => format!("stamped on the {name} clock"),
        sentence => format!("their clock {sentence}"),
    };
    let lag = match lag {
        Some(lag) if !lag.is_guess() => format!(
            "ending {:.1} ms {} than stamped by fit to the submits (certainty {:.2})",
            lag.ns.unsigned_abs() as f64 / 1e6,
            if lag.ns < 0 { "earlier" } else { "later" },
            lag.confidence
        ),
        _ => "by how much they end later than stamped not known".into(),
    };
    format!("{domain}, seen {} after their end, {lag}", ms(clock.age_ns))
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};
    use crate::trace::{CudaFamily, Record};

    const PERIOD: u64 = 166 * MS;

    fn clocked(domain: &str) -> TraceBuilder {
        let clock = DeviceClock { at: MS, domain: domain.into(), age_ns: 83 * MS, ..DeviceClock::default() };
        TraceBuilder::new(0, 20_000 * MS).device(0).record(Record::DeviceClock(clock))
    }

    fn reading(trace: TraceBuilder, n: u64, source: ReadingSource, busy: f64) -> TraceBuilder {
        trace.reading_with(0, n * PERIOD, (n + 1) * PERIOD, |r| {
            (r.source, r.busy_percent) = (source, Some(busy));
        })
    }

    fn said(trace: TraceBuilder) -> Vec<String> {
        let timeline = build(trace.records());
        notes(&timeline, &DeviceMap::new(&timeline)).collect()
    }

    fn said_of(source: ReadingSource, domain: &str) -> Vec<String> {
        said((0..3).fold(clocked(domain), |trace, n| reading(trace, n, source, 5.0)))
    }

    /// Work of every other second or so for a part of it, and samples that say it `late` after their stamps.
    fn worked(late: u64) -> TraceBuilder {
        let trace = clocked("boottime").on_device(0, 1).thread(1, 1, "train");
        let bursts: Vec<(u64, u64)> = (1..16).map(|n| (n * 1_100 + n * n * 7, 300 + n * 37 % 400)).collect();
        let work = |trace: TraceBuilder, &(at, len): &(u64, u64)| {
            let (start, end) = (at * MS, (at + len) * MS);
            trace.submits(1, start, start + MS, 9).call(
                1,
                CudaFamily::Synchronize,
                "cuCtxSynchronize",
                start + 2 * MS,
                end,
            )
        };
        let busy = |n: u64| {
            let (from, to) = (n * PERIOD + late, (n + 1) * PERIOD + late);
            let inside = |&(at, len): &(u64, u64)| {
                (to.min((at + len) * MS)).saturating_sub(from.max(at * MS)) as f64 / PERIOD as f64
            };
            (100.0 * bursts.iter().map(inside).sum::<f64>()).round()
        };
        let trace = bursts.iter().fold(trace, work);
        (0..120).fold(trace, |trace, n| reading(trace, n, ReadingSource::NvmlSamples, busy(n)))
    }

    #[test]
    fn the_source_is_said_once_with_its_windows_clock_and_age() {
        assert_eq!(
            said_of(ReadingSource::NvmlSamples, "boottime"),
            [
                "GPU 0: busy time from NVML's sample buffers, windows of 166.0 ms, stamped on the boottime clock, seen \
              83.0 ms after their end, by how much they end later than stamped not known."
            ]
        );
        let unsettled = said_of(ReadingSource::NvmlSamples, "not settled: none");
        assert!(unsettled[0].contains("their clock not settled: none, seen 83.0 ms"), "{unsettled:?}");
        assert!(said_of(ReadingSource::Gpm, "boottime")[0].contains("GPM's graphics-engine utilisation"));
        assert!(said_of(ReadingSource::NvmlRates, "x")[0].contains("NVML's rates, up to 166.0 ms late"));
    }

    #[test]
    fn the_lag_is_said_where_the_submits_tell_it() {
        let lag = |late| {
            let said = said(worked(late)).remove(0);
            let (_, lag) = said.split_once("ending ").unwrap_or_else(|| panic!("{said}"));
            lag.split_once(" ms later than stamped by fit")
                .unwrap_or_else(|| panic!("{said}"))
                .0
                .parse::<f64>()
        };
        for late in [40, 120] {
            let found = lag(late * MS).unwrap();
            assert!((found - late as f64).abs() <= 3.0, "{found} for {late} ms");
        }
    }

    #[test]
    fn a_trace_without_clocks_says_nothing() {
        assert!(said(TraceBuilder::new(0, MS).device(0)).is_empty());
    }
}
