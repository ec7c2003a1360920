//! What the host's calls into the NVIDIA driver and its bottom halves show.

use std::collections::BTreeMap;

use crate::cause::{nvidia_command, seconds};
use crate::timeline::Timeline;
use crate::trace::Span;

/// Commands shown.
const SHOWN: usize = 4;
/// A bottom half that runs less than this share of the window, in percent, is no sign of anything.
const THRASH: u64 = 5;

/// How the recorder names the run time of the memory manager's bottom halves.
const BOTTOM_HALF: &str = " BH";

/// The commands that took the most time in the given processes (all where none is given), one sentence each.
pub(super) fn commands(timeline: &Timeline, window: Span, pids: &[u32]) -> Vec<String> {
    #[derive(Default)]
    struct Calls {
        count: u64,
        ns: u64,
        longest_ns: u64,
    }
    let mut by: BTreeMap<String, Calls> = BTreeMap::new();
    let inside = timeline.ioctls.iter().filter(|t| t.span.intersect(window).is_some());
    for total in inside.filter(|t| pids.is_empty() || pids.contains(&t.pid)) {
        let calls = by.entry(nvidia_command(Some(total.major), total.ioctl)).or_default();
        calls.count = calls.count.saturating_add(total.count);
        calls.ns = calls.ns.saturating_add(total.ns);
        calls.longest_ns = calls.longest_ns.max(total.longest_ns);
    }
    let mut longest: Vec<_> = by.into_iter().filter(|(_, c)| c.count > 0).collect();
    longest.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.cmp(&b.0)));
    let watched = watched(timeline, window);
    longest
        .into_iter()
        .take(SHOWN)
        .map(|(name, calls)| {
            format!(
                "ioctl {name}: {} calls, {} each on average, the longest {}, {} in all{watched}.",
                calls.count,
                seconds(calls.ns / calls.count),
                seconds(calls.longest_ns),
                seconds(calls.ns),
            )
        })
        .collect()
}

/// Said where calls were watched for a part of the window only.
fn watched(timeline: &Timeline, window: Span) -> String {
    let mut spans: Vec<Span> = timeline.ioctls.iter().filter_map(|t| t.span.intersect(window)).collect();
    spans.sort_unstable();
    let (mut end, mut ns) = (0, 0u64);
    for span in spans {
        let from = span.start.max(end);
        ns += span.end.saturating_sub(from);
        end = end.max(span.end);
    }
    if ns >= window.len() / 10 * 9 {
        String::new()
    } else {
        format!(" (watched for {} of the window)", seconds(ns))
    }
}

/// Run time of the memory manager's bottom halves, where it says that managed memory moves back and forth.
pub(super) fn managed_memory(timeline: &Timeline, window: Span) -> Option<String> {
    let mut first: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let inside = timeline.counters.iter().filter(|c| window.start <= c.at && c.at <= window.end);
    for counter in inside.filter(|c| c.name.starts_with("UVM GPU") && c.name.ends_with(BOTTOM_HALF)) {
        let seen = first.entry(&counter.name).or_insert((counter.value, counter.value));
        *seen = (seen.0.min(counter.value), seen.1.max(counter.value));
    }
    let (name, ns) = first.into_iter().map(|(name, (a, b))| (name, b - a)).max_by_key(|(_, ns)| *ns)?;
    let large = u128::from(ns) * 100 > u128::from(window.len()) * u128::from(THRASH);
    large.then(|| {
        format!(
            "The kernel thread {name}, which serves page faults of the GPU, ran {} of the window's {}: managed memory \
             moves between host and device while kernels wait for it.",
            seconds(ns),
            seconds(window.len()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};
    use crate::trace::{Counter, IoctlTotal, NvidiaIoctl, Record};

    const WINDOW: Span = Span { start: 0, end: 1_000 * MS };

    fn total(start: u64, end: u64, pid: u32, inner: u32, count: u64, ns: u64) -> Record {
        Record::IoctlTotal(IoctlTotal {
            span: Span::new(start, end),
            pid,
            major: 195,
            ioctl: NvidiaIoctl { command: 0xc020_462a, inner: Some(inner) },
            count,
            ns,
            longest_ns: ns / count,
            histogram: [0; 24],
        })
    }

    #[test]
    fn commands_are_added_up_and_the_watched_part_is_said() {
        let all = TraceBuilder::new(0, 1_000 * MS)
            .record(total(0, 500 * MS, 7, 0x2080_1303, 2, 40 * MS))
            .record(total(500 * MS, 1_000 * MS, 7, 0x2080_1303, 2, 20 * MS))
            .record(total(500 * MS, 1_000 * MS, 8, 0x0101, 1, 500 * MS));
        let timeline = build(all.records());
        let lines = commands(&timeline, WINDOW, &[7]);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("ioctl RM_CONTROL FB_GET_INFO_V2: 4 calls, "), "{line}");
        assert!(!line.contains("watched"), "{line}");
        assert_eq!(commands(&timeline, WINDOW, &[]).len(), 2);
        let burst = TraceBuilder::new(0, 1_000 * MS).record(total(0, 300 * MS, 7, 0x0101, 1, MS));
        assert!(commands(&build(burst.records()), WINDOW, &[7])[0].contains("watched for "));
    }

    #[test]
    fn a_busy_bottom_half_is_a_sign_and_a_quiet_one_is_none() {
        let ran = |ns: u64| {
            let counter = |at, value| Record::Counter(Counter { at, name: "UVM GPU1 BH".into(), value });
            let trace = TraceBuilder::new(0, 1_000 * MS)
                .record(counter(0, 5_000 * MS))
                .record(counter(900 * MS, 5_000 * MS + ns));
            managed_memory(&build(trace.records()), WINDOW)
        };
        assert!(ran(60 * MS).expect("over the limit").contains("UVM GPU1 BH"));
        assert_eq!(ran(40 * MS), None);
        assert_eq!(managed_memory(&build(TraceBuilder::new(0, MS).records()), WINDOW), None);
    }
}
