//! What queries, and calls that wait for an event, say of the device.

use super::cost::Told;
use super::edges::Edges;
use super::tests::{job, placed, spans};
use super::{DeviceIdle, DeviceMap, Known};
use crate::timeline::build;
use crate::timeline::testing::{MS, TraceBuilder, key};
use crate::trace::{CudaCall, CudaFamily, Ns, Record, Span, SubmitGroup};

const NOT_READY: i32 = 600;
const STREAM: u64 = 7;
const OTHER: u64 = 8;

/// A window of 100 ms on a device that was empty at its start, with a kernel launched at each of these ms.
fn window(busy: f64, kernels: &[Ns], calls: &[&CudaCall]) -> DeviceIdle {
    let trace = job(&[busy]).call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 0, 0);
    let launch = |trace: TraceBuilder, at: &Ns| {
        let (first, last) = (at * MS, at * MS);
        let group =
            SubmitGroup { function: 1, stream: STREAM, count: 1, first, last, ..SubmitGroup::default() };
        trace.run(1, vec![group])
    };
    let trace = kernels.iter().fold(trace, launch);
    placed(calls.iter().fold(trace, |trace, &call| trace.record(Record::CudaCall(call.clone()))))
}

/// Where idle lies from the first kernel on.
fn later(idle: &DeviceIdle) -> Vec<(Ns, Ns, Known)> {
    spans(idle).into_iter().filter(|&(start, ..)| start > 0).collect()
}

/// Of an event that was recorded at `recorded`, both in ms.
fn query(at: Ns, recorded: Ns, result: i32) -> CudaCall {
    CudaCall {
        thread: key(1),
        pid: 1,
        family: CudaFamily::EventQuery,
        name: "cuEventQuery".into(),
        entry: at * MS,
        exit: Some(at * MS),
        stream: Some(STREAM),
        object: 5,
        recorded_at: recorded * MS,
        result: Some(result),
        ..CudaCall::default()
    }
}

fn of_stream(query: CudaCall) -> CudaCall {
    CudaCall { name: "cuStreamQuery".into(), object: 0, recorded_at: 0, ..query }
}

#[test]
fn a_query_that_is_told_of_the_end_leaves_the_stream_empty() {
    let kernels = [1, 99];
    let done = query(40, 2, 0);
    let idle = window(31.0, &kernels, &[&done]);
    assert_eq!(later(&idle), [(31_000, 40_000, Known::Inferred), (40_000, 99_000, Known::Bounded)]);
    assert_eq!(window(31.0, &kernels, &[&of_stream(done.clone())]), idle);
    let nothing = window(31.0, &kernels, &[]);
    assert_eq!(later(&nothing), [(31_000, 99_000, Known::Inferred)]);
    // Of another stream, or of who knows what.
    let other = CudaCall { stream: Some(OTHER), ..done.clone() };
    assert_eq!(window(31.0, &kernels, &[&other]), nothing);
    assert_eq!(window(31.0, &kernels, &[&CudaCall { recorded_at: 0, ..done }]), nothing);
}

#[test]
fn an_event_recorded_before_the_last_submit_leaves_that_queued() {
    let kernels = [1, 10, 99];
    let nothing = window(41.0, &kernels, &[]);
    assert_eq!(window(41.0, &kernels, &[&query(30, 5, 0)]), nothing);
    let idle = window(41.0, &kernels, &[&query(60, 12, 0)]);
    assert_eq!(later(&idle), [(41_000, 60_000, Known::Inferred), (60_000, 99_000, Known::Bounded)]);
    let wait = |recorded| CudaCall {
        family: CudaFamily::Synchronize,
        name: "cuEventSynchronize".into(),
        entry: 29 * MS,
        ..query(30, recorded, 0)
    };
    assert_eq!(later(&window(41.0, &kernels, &[&wait(5)])), later(&nothing));
    assert_eq!(later(&window(30.0, &kernels, &[&wait(12)])), [(30_000, 99_000, Known::Bounded)]);
}

#[test]
fn until_a_query_that_is_told_to_wait_the_stream_is_at_work() {
    let kernels = [1, 50, 99];
    let nothing = window(61.0, &kernels, &[]);
    assert_eq!(later(&nothing), [(31_000, 50_000, Known::Inferred), (80_000, 99_000, Known::Inferred)]);
    let waits = query(45, 2, NOT_READY);
    for waits in [waits.clone(), of_stream(waits.clone())] {
        let idle = window(61.0, &kernels, &[&waits]);
        assert_eq!(later(&idle), [(45_000, 50_000, Known::Inferred), (66_000, 99_000, Known::Inferred)]);
    }
    // Of a stream without kernels: it waits for copies.
    assert_eq!(window(61.0, &kernels, &[&CudaCall { stream: Some(OTHER), ..waits.clone() }]), nothing);
    assert_eq!(window(61.0, &kernels, &[&CudaCall { recorded_at: 0, ..waits }]), nothing);
}

#[test]
fn between_two_drains_submits_took_as_long_as_calls_waited_or_more() {
    let sync = |trace: TraceBuilder, entry: Ns, exit: Ns| {
        trace.call(1, CudaFamily::Synchronize, "cuCtxSynchronize", entry * MS, exit * MS)
    };
    let trace = sync(job(&[50.0]), 0, 0).submits(1, MS, MS, 1);
    let trace = sync(trace, 2, 31).submits(1, 50 * MS, 55 * MS, 2);
    // Nothing was submitted before the last.
    let timeline = build(sync(sync(trace, 60, 80), 90, 91).records());
    let drains = Edges::of_device(&timeline, &DeviceMap::new(&timeline), 0).drains();
    let told = |start, end, least, most| Told {
        span: Span::new(start * MS, end * MS),
        least: least * MS,
        most: most * MS,
    };
    assert_eq!(drains, [told(0, 31, 29, 30), told(31, 80, 20, 30)]);
}
