//! Where a device's busy time comes from, and how good that source is here.

use crate::timeline::{DeviceTrack, Timeline};
use crate::trace::{DeviceClock, ReadingSource};

/// One sentence a device whose clock was recorded.
pub(super) fn notes(timeline: &Timeline) -> impl Iterator<Item = String> {
    timeline.devices.iter().filter_map(|(index, track)| Some(format!("GPU {index}: {}.", sentence(track)?)))
}

fn sentence(track: &DeviceTrack) -> Option<String> {
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
            stamps(clock)
        ));
    }
    has(ReadingSource::NvmlRates)
        .then(|| format!("busy time from NVML's rates, up to {} late, as it gave no samples", ms(window)))
}

fn stamps(clock: &DeviceClock) -> String {
    let domain = match clock.domain.as_str() {
        name @ ("monotonic" | "boottime" | "realtime") => format!("stamped on the {name} clock"),
        sentence => format!("their clock {sentence}"),
    };
    let lag = clock.lag_ns.map_or(String::new(), |lag| {
        format!(
            ", ending {:.1} ms {} than stamped by fit",
            lag.unsigned_abs() as f64 / 1e6,
            if lag < 0 { "earlier" } else { "later" }
        )
    });
    format!("{domain}, seen {} after their end{lag}", ms(clock.age_ns))
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};
    use crate::trace::Record;

    fn said(source: ReadingSource, domain: &str, lag_ns: Option<i64>) -> Vec<String> {
        let clock =
            DeviceClock { at: MS, domain: domain.into(), age_ns: 83 * MS, lag_ns, ..DeviceClock::default() };
        let trace = (0..3).fold(TraceBuilder::new(0, 1_000 * MS).device(0), |trace, n| {
            trace.reading_with(0, n * 166 * MS, (n + 1) * 166 * MS, |r| {
                (r.source, r.busy_percent) = (source, Some(5.0));
            })
        });
        notes(&build(trace.record(Record::DeviceClock(clock)).records())).collect()
    }

    #[test]
    fn the_source_is_said_once_with_its_windows_clock_age_and_lag() {
        assert_eq!(
            said(ReadingSource::NvmlSamples, "boottime", Some(-12_500_000)),
            [
                "GPU 0: busy time from NVML's sample buffers, windows of 166.0 ms, stamped on the boottime clock, seen \
              83.0 ms after their end, ending 12.5 ms earlier than stamped by fit."
            ]
        );
        let unsettled = said(ReadingSource::NvmlSamples, "not settled: none", None);
        assert!(unsettled[0].contains("their clock not settled: none, seen 83.0 ms"), "{unsettled:?}");
        assert!(said(ReadingSource::Gpm, "boottime", None)[0].contains("GPM's graphics-engine utilisation"));
        assert!(said(ReadingSource::NvmlRates, "x", None)[0].contains("NVML's rates, up to 166.0 ms late"));
    }

    #[test]
    fn a_trace_without_clocks_says_nothing() {
        assert_eq!(notes(&build(TraceBuilder::new(0, MS).device(0).records())).count(), 0);
    }
}
