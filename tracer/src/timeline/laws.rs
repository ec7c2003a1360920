//! What holds of the timeline of any records.

use proptest::prelude::*;

use super::arbitrary::{records, time};
use super::testing::{MS, TraceBuilder, key};
use super::{Activity, Thread, Timeline, build};
use crate::trace::{Ns, Span, State, TargetKind};

fn partition(timeline: &Timeline, thread: &Thread) {
    if thread.kind == TargetKind::Bystander {
        assert!(thread.slices.is_empty());
        return;
    }
    let (Some(first), Some(last)) = (thread.slices.first(), thread.slices.last()) else { return };
    let born = thread.born.unwrap_or(timeline.span.start);
    assert_eq!(first.span.start, born.clamp(timeline.span.start, timeline.span.end));
    let end = thread.exited.unwrap_or(timeline.span.end);
    assert_eq!(last.span.end, end.clamp(first.span.start, timeline.span.end));
    for slice in &thread.slices {
        assert!(slice.span.start < slice.span.end);
        match slice.activity {
            Activity::Blocked(i) => {
                let off = &thread.off_cpu[i];
                assert_eq!(slice.span, Span::new(off.left, off.woken.unwrap_or(off.ran)));
                assert!(!matches!(off.state, State::Preempted | State::Yielded | State::Dead));
            }
            Activity::Runnable(i) => {
                let off = &thread.off_cpu[i];
                assert_eq!(slice.span, Span::new(off.woken.unwrap_or(off.left), off.ran));
            }
            Activity::Running | Activity::Unseen => {}
        }
    }
    for pair in thread.slices.windows(2) {
        assert_eq!(pair[0].span.end, pair[1].span.start);
    }
}

fn running(thread: &Thread, span: Span) -> u64 {
    let runs = thread.slices_in(span).filter(|s| s.activity == Activity::Running);
    runs.map(|s| s.span.len()).sum()
}

proptest! {
    #[test]
    fn slices_partition_every_life(records in records()) {
        let timeline = build(records);
        timeline.threads.values().for_each(|t| partition(&timeline, t));
    }

    #[test]
    fn readings_are_in_order_and_apart(records in records()) {
        for track in build(records).devices.values() {
            for pair in track.readings.windows(2) {
                prop_assert!(pair[0].span.end <= pair[1].span.start);
            }
        }
    }

    #[test]
    fn neither_order_nor_repetition_matters(
        (records, shuffled) in records().prop_flat_map(|r| (Just(r.clone()), Just(r).prop_shuffle())),
    ) {
        let timeline = format!("{:?}", build(records.clone()));
        prop_assert_eq!(&timeline, &format!("{:?}", build(shuffled.clone())));
        let twice = records.into_iter().chain(shuffled);
        prop_assert_eq!(&timeline, &format!("{:?}", build(twice)));
    }

    #[test]
    fn shorts_fit_the_running_time(records in records(), a in time(), b in time()) {
        let span = Span::new(a.min(b), a.max(b));
        for thread in build(records).threads.values() {
            let shorts = thread.shorts(span);
            prop_assert!(shorts.ns() <= running(thread, span));
            prop_assert!(shorts.throttled_ns <= shorts.runnable_ns);
        }
    }

    #[test]
    fn shorts_of_adjacent_spans_sum(
        totals in prop::collection::vec((0..50_u64, 10..50_u64, 0..100_000_u64, 0..100_000_u64), 0..5),
        waits in prop::collection::vec((0..90_u64, 1..10_u64), 0..5),
        mut cuts in prop::collection::vec(0..100 * MS, 0..6),
    ) {
        let mut trace = TraceBuilder::new(0, 100 * MS).thread(1, 1, "a");
        for (i, (first, len, blocked, runnable)) in totals.into_iter().enumerate() {
            trace = trace.total(1, None, first * MS, (first + len) * MS, |t| {
                (t.blocked_ns, t.runnable_ns, t.count, t.arg0) = (blocked, runnable, 7, i as u64);
            });
        }
        for (left, len) in waits {
            trace = trace.wait(1, left * MS, (left + len) * MS, (left + len) * MS, |w| w);
        }
        let timeline = build(trace.records());
        let thread = &timeline.threads[&key(1)];
        cuts.extend([0, 100 * MS]);
        cuts.sort_unstable();
        let parts: u64 = cuts.windows(2).map(|c| thread.shorts(Span::new(c[0], c[1])).ns()).sum();
        prop_assert_eq!(parts, thread.shorts(Span::new(0, 100 * MS)).ns());
    }

    #[test]
    fn a_wait_split_into_rearmed_ones_is_the_same_wait(
        left in 1..20_u64,
        cuts in prop::collection::btree_set(21..80_u64, 1..5),
        woken in 81..90_u64,
    ) {
        let trace = |cuts: &std::collections::BTreeSet<u64>| {
            let mut trace =
                TraceBuilder::new(0, 100 * MS).thread(1, 1, "a").thread(2, 2, "b").submits(1, 0, 0, 1);
            let mut from = left;
            for &cut in cuts {
                trace = trace.wait(1, from * MS, cut * MS, cut * MS, |w| {
                    w.futex(0x10, 2).interrupt(&["hrtimer_wakeup"])
                });
                from = cut;
            }
            let trace = trace.wait(1, from * MS, woken * MS, 91 * MS, |w| w.futex(0x10, 2).woken_by(2));
            build(trace.records())
        };
        let (split, whole) = (trace(&cuts), trace(&std::collections::BTreeSet::new()));
        prop_assert_eq!(described(&split), described(&whole));
    }
}

/// Slices as one sees them through merged waits.
fn described(timeline: &Timeline) -> Vec<(Span, String)> {
    let thread = &timeline.threads[&key(1)];
    let mut out: Vec<(Span, String)> = Vec::new();
    for slice in &thread.slices {
        let what = match slice.activity {
            Activity::Blocked(i) => {
                let wait = thread.merged_wait(i).unwrap();
                let last: Ns = thread.off_cpu[*wait.members.last().unwrap()].ran;
                format!("blocked by {:?} to {last}", thread.ended_by(i).unwrap().thread)
            }
            Activity::Runnable(_) => "runnable".into(),
            Activity::Running => "running".into(),
            Activity::Unseen => "unseen".into(),
        };
        match out.last_mut() {
            Some((span, before)) if *before == what => span.end = slice.span.end,
            _ => out.push((slice.span, what)),
        }
    }
    out
}
