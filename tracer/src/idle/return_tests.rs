//! Calls whose return was not seen, and what the probes themselves add to those whose return was.

use super::runs::of_thread;
use super::tests::{job, placed, spans};
use super::{DeviceIdle, Known};
use crate::timeline::build;
use crate::timeline::testing::{MS, TraceBuilder, US, key};
use crate::trace::{CudaCall, CudaFamily, SubmitGroup};

/// 10 ms of launches, a synchronise, and the next launch at 100 ms; the device is busy for 40 ms.
fn synchronised(exit: u64, change: impl FnOnce(&mut CudaCall)) -> DeviceIdle {
    let trace = job(&[40.0]).submits(1, 0, 10 * MS, 10);
    let span = (11 * MS, exit);
    placed(trace.call_with(1, CudaFamily::Synchronize, "cuCtxSynchronize", span, change).submits(
        1,
        100 * MS,
        100 * MS,
        1,
    ))
}

#[test]
fn a_call_that_was_over_by_the_next_one_is_no_wait_until_then() {
    let idle = synchronised(100 * MS, |call| call.exit_by_next = true);
    // When in it the device was done is what the reading says, and no call proves it.
    assert_eq!(spans(&idle), [(40_000, 100_000, Known::Inferred)]);
    assert_eq!((idle.placed[0].feeder, idle.placed[0].submit), (Some(key(1)), Some(100 * MS)));
    let returned = synchronised(100 * MS, |_| {});
    assert!(returned.unplaced.iter().any(|u| u.in_waits), "{returned:?}");
}

#[test]
fn a_call_that_may_have_returned_long_before_the_end_is_no_wait_until_then() {
    let last = |by_next| {
        let trace = job(&[40.0]).submits(1, 0, 10 * MS, 10);
        let span = (11 * MS, 11 * MS);
        placed(trace.call_with(1, CudaFamily::Synchronize, "cuCtxSynchronize", span, |call| {
            (call.exit, call.exit_by_next) = (None, by_next);
        }))
    };
    assert_eq!(spans(&last(true)), [(40_000, 100_000, Known::Inferred)]);
    // Its return is looked for and did not come: it still waits.
    assert!(last(false).unplaced.iter().any(|u| u.in_waits), "{:?}", last(false));
}

#[test]
fn a_call_that_was_long_by_its_probes_alone_did_not_block() {
    let copied = |probe_ns| {
        let trace = job(&[1.0]).submits(1, 0, 0, 1).submits(1, 100 * MS, 100 * MS, 1);
        let span = (2 * MS, 2 * MS + 110 * US);
        let copy = |call: &mut CudaCall| call.probe_ns = probe_ns;
        placed(trace.call_with(1, CudaFamily::Copy, "cuMemcpyDtoHAsync_v2", span, copy))
    };
    let after = |idle: &DeviceIdle| spans(idle).last().expect("a gap").2;
    assert_eq!(after(&copied(0)), Known::Bounded);
    assert_eq!(after(&copied(20_000)), Known::Inferred);
}

#[test]
fn what_a_blocked_launch_took_is_taken_off_its_group_without_the_probes() {
    let (first, last) = (50 * MS, 50 * MS + 160 * US);
    let group = SubmitGroup {
        function: 1,
        count: 2,
        first,
        last,
        timed: 2,
        // As summed in the kernel, less the probes' own time of each: 130 us of the one that blocked.
        call_ns: 138_500,
        ..SubmitGroup::default()
    };
    let trace: TraceBuilder = job(&[50.0]).run(1, vec![group]);
    let blocked = |call: &mut CudaCall| call.probe_ns = 20_000;
    let trace = trace.call_with(1, CudaFamily::Launch, "cuLaunchKernel", (first, first + 150 * US), blocked);
    let timeline = build(trace.records());
    let runs = of_thread(&timeline.threads[&key(1)]);
    let quick = runs.iter().find(|r| r.entered().0 == last).expect("the second launch");
    // 8.5 us of call, and what the device takes to begin.
    assert_eq!(quick.late, 10_000);
}
