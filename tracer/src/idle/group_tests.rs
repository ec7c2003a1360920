//! What the kinds of submits, and which calls are watched, do to a small trace.

use super::tests::{job, placed, spans};
use super::{DeviceIdle, Known};
use crate::timeline::testing::{MS, TraceBuilder, key};
use crate::trace::{CudaCall, CudaFamily, CudaWatch, Record, Span, SubmitGroup, Submits, Watched};

fn watch(at: u64, watched: Watched) -> Record {
    Record::CudaWatch(CudaWatch { at, watched, reason: "over the budget".into() })
}

#[test]
fn the_silence_of_launches_that_are_not_watched_is_none() {
    let trace = |watched| {
        let trace = job(&[60.0, 60.0, 0.0]).submits(1, 0, 0, 1).submits(1, 100 * MS, 100 * MS, 1);
        trace.record(watch(0, Watched::All)).record(watch(110 * MS, watched))
    };
    let idle = placed(trace(Watched::Rare));
    assert_eq!(spans(&idle)[0], (60_000, 100_000, Known::Inferred));
    // Read as 0 %: idle whoever launched what.
    assert_eq!(spans(&idle)[1..], [(200_000, 300_000, Known::Bounded)]);
    let [rest] = &idle.unplaced[..] else { panic!("{:?}", idle.unplaced) };
    assert_eq!((rest.span, rest.ns, rest.launch_bound), (Span::new(100 * MS, 200 * MS), 40 * MS, false));
    assert_eq!(rest.reason, "launches were not watched (over the budget)");
    assert_eq!(placed(trace(Watched::Burst)).unplaced, []);
}

#[test]
fn a_launch_bound_burst_is_extrapolated_and_said_so() {
    let trace = |after: f64| {
        let trace = job(&[30.0, after]).submits(1, 0, 99 * MS, 1001);
        placed(trace.record(watch(0, Watched::Burst)).record(watch(100 * MS, Watched::Rare)))
    };
    let last = |idle: DeviceIdle| idle.unplaced.last().unwrap().clone();
    let alike = last(trace(33.0));
    assert_eq!((alike.ns, alike.launch_bound, alike.feeder), (67 * MS, true, Some(key(1))));
    assert!(alike.reason.contains("extrapolated"), "{}", alike.reason);
    assert!(!last(trace(90.0)).launch_bound);
}

#[test]
fn a_window_ahead_of_the_first_burst_is_like_that_one() {
    let trace = |before: f64| {
        let trace = job(&[before, 30.0]).submits(1, 0, 0, 1).submits(1, 100 * MS, 199 * MS, 1001);
        placed(trace.record(watch(0, Watched::Rare)).record(watch(100 * MS, Watched::Burst)))
    };
    let first = |idle: DeviceIdle| idle.unplaced.first().unwrap().clone();
    let alike = first(trace(33.0));
    assert_eq!((alike.span.start, alike.ns, alike.launch_bound), (0, 67 * MS, true));
    assert!(alike.reason.ends_with("extrapolated from when they were, 0.0 s after"), "{}", alike.reason);
    assert!(!first(trace(90.0)).launch_bound);
}

#[test]
fn the_nearest_burst_that_reads_alike_counts() {
    // Launch-bound, then one long silence, then a window like both.
    let trace = job(&[30.0, 30.0, 31.0]).submits(1, 0, 99 * MS, 1001).submits(1, 100 * MS, 100 * MS, 1);
    let trace = trace.submits(1, 199 * MS, 199 * MS, 1);
    let trace = trace.record(watch(0, Watched::Burst)).record(watch(200 * MS, Watched::Rare));
    let idle = placed(trace);
    let last = idle.unplaced.last().unwrap();
    assert_eq!((last.span.start, last.launch_bound), (200 * MS, false), "{last:?}");
}

/// A run of graph launches.
fn graphs(trace: TraceBuilder, first: u64, last: u64, count: u64) -> TraceBuilder {
    let group = SubmitGroup {
        family: CudaFamily::GraphLaunch,
        function: 9,
        count,
        first,
        last,
        ..SubmitGroup::default()
    };
    trace.record(Record::Submits(Submits {
        thread: key(1),
        pid: 1,
        first,
        last,
        graph_launches: count,
        groups: vec![group],
        ..Submits::default()
    }))
}

#[test]
fn graph_launches_turn_no_busy_device_into_an_idle_one() {
    let rare =
        |trace: TraceBuilder| trace.record(watch(0, Watched::Burst)).record(watch(100 * MS, Watched::Rare));
    for busy in [100.0, 50.0] {
        let mut trace = job(&[busy; 4]);
        for step in 0..4 {
            trace = graphs(trace, step * 100 * MS, step * 100 * MS, 1);
        }
        let idle = placed(rare(trace));
        let share = if busy < 100.0 { 50 * MS } else { 0 };
        assert_eq!(idle.idle_ns, 4 * share);
        // Only graphs were launched in the burst, so that nothing is missed after it: each graph's silence ends
        // in the next.
        assert_eq!(idle.unplaced, []);
        let ends: Vec<u64> = idle.placed.iter().map(|p| p.span.end / MS).collect();
        assert_eq!(ends, if share > 0 { vec![100, 200, 300, 400] } else { vec![] });
    }
}

#[test]
fn a_function_costs_the_same_each_time_it_is_launched() {
    // Long kernels alone in one window, short ones alone in another, both in a third.
    let launch = |trace: TraceBuilder, at: u64, function| {
        let group = SubmitGroup {
            function,
            grid: [8, 1, 1],
            count: 1,
            first: at,
            last: at,
            ..SubmitGroup::default()
        };
        trace.record(Record::Submits(Submits {
            thread: key(1),
            pid: 1,
            first: at,
            last: at,
            launches: 1,
            groups: vec![group],
            ..Submits::default()
        }))
    };
    let mut trace = job(&[80.0, 8.0, 44.0]);
    for (at, function) in [(0, 1), (50, 1), (100, 2), (150, 2), (200, 1), (250, 2)] {
        trace = launch(trace, at * MS, function);
    }
    let idle = placed(trace);
    let last: Vec<u64> =
        idle.placed.iter().filter(|p| p.span.start >= 200 * MS).map(|p| p.span.start / MS).collect();
    // 40 ms and 4 ms, but for the few steps of the fit.
    assert!((235..=245).contains(&last[0]) && (250..=259).contains(&last[1]), "{last:?}");
}

#[test]
fn a_kernel_starts_when_its_launch_returns() {
    let group = SubmitGroup {
        function: 1,
        grid: [1, 1, 1],
        count: 1,
        first: 50 * MS,
        last: 50 * MS,
        timed: 1,
        call_ns: 8_500,
        ..SubmitGroup::default()
    };
    let run = Submits {
        thread: key(1),
        pid: 1,
        first: 50 * MS,
        last: 50 * MS,
        launches: 1,
        groups: vec![group],
        ..Submits::default()
    };
    let idle = placed(job(&[0.0, 10.0]).submits(1, 0, 0, 1).record(Record::Submits(Submits {
        first: 150 * MS,
        last: 150 * MS,
        groups: vec![SubmitGroup { first: 150 * MS, last: 150 * MS, ..run.groups[0].clone() }],
        ..run
    })));
    let last = idle.placed.iter().rev().find(|p| p.submit == Some(150 * MS)).unwrap();
    // 8.5 us of call, and what the device takes to begin.
    assert_eq!(last.span.end, 150 * MS + 10_000);
}

#[test]
fn a_copy_to_the_host_waits_for_kernels_and_then_copies() {
    let copy = CudaCall {
        thread: key(1),
        pid: 1,
        family: CudaFamily::Copy,
        entry: MS,
        exit: Some(60 * MS),
        name: "cuMemcpyDtoH_v2".into(),
        bytes: 10_000 * 10_000,
        ..CudaCall::default()
    };
    // 100 MB take 10 ms of the call.
    let idle = placed(job(&[50.0]).submits(1, 0, 0, 1).record(Record::CudaCall(copy)));
    assert_eq!((spans(&idle)[0].0, spans(&idle)[0].2), (50_000, Known::Drained));
}
