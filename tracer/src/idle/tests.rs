//! Laws of mass and placement, and what each rule does to a small trace.

use proptest::prelude::{Just, Strategy as _};

use super::watch::UNWATCHED;
use super::{DeviceIdle, Known, PlacedIdle, UnknownReason, UnplacedIdle, locate, place};
use crate::timeline::build;
use crate::timeline::testing::{MS, TraceBuilder, US, key};
use crate::trace::{CudaFamily, Record, Span};

/// A process with one thread on device 0, windows of 100 ms.
pub(super) fn job(readings: &[f64]) -> TraceBuilder {
    let mut trace = TraceBuilder::new(0, readings.len() as u64 * 100 * MS)
        .device(0)
        .on_device(0, 1)
        .thread(1, 1, "train");
    for (i, &busy) in readings.iter().enumerate() {
        trace = trace.reading(0, i as u64 * 100 * MS, (i as u64 + 1) * 100 * MS, busy);
    }
    trace
}

pub(super) fn placed(trace: TraceBuilder) -> DeviceIdle {
    let idle = place(&build(trace.records()), None).remove(0);
    laws(&idle);
    idle
}

pub(super) fn laws(idle: &DeviceIdle) {
    assert_eq!(idle.window.len(), idle.busy_ns + idle.idle_ns + idle.unknown_ns);
    let placed: u64 = idle.placed.iter().map(|p| p.span.len()).sum();
    let unplaced: u64 = idle.unplaced.iter().map(|u| u.ns).sum();
    assert_eq!(placed + unplaced, idle.idle_ns);
    assert_eq!(idle.unknown.iter().map(|u| u.0.len()).sum::<u64>(), idle.unknown_ns);
    for pair in idle.placed.windows(2) {
        assert!(pair[0].span.end <= pair[1].span.start, "{pair:?} overlap");
    }
    for rest in &idle.unplaced {
        assert_eq!(rest.span.intersect(idle.window), Some(rest.span), "{rest:?} is outside the window");
        assert!(rest.ns <= rest.span.len());
    }
    for piece in &idle.placed {
        assert!(!piece.span.is_empty());
        assert_eq!(piece.span.intersect(idle.window), Some(piece.span), "{piece:?} is outside the window");
    }
}

pub(super) fn spans(idle: &DeviceIdle) -> Vec<(u64, u64, Known)> {
    idle.placed.iter().map(|p| (p.span.start / US, p.span.end / US, p.known)).collect()
}

#[test]
fn a_drained_silence_is_idle_to_the_next_submit() {
    let idle = placed(
        job(&[40.0])
            .submits(1, 0, 10 * MS, 10)
            .call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 11 * MS, 40 * MS)
            .submits(1, 100 * MS, 101 * MS, 10),
    );
    assert_eq!(spans(&idle), [(40_000, 100_000, Known::Drained)]);
    let piece = idle.placed[0];
    assert_eq!((piece.feeder, piece.submit), (Some(key(1)), Some(100 * MS)));
    assert!(!piece.device_inferred);
}

#[test]
fn a_silence_without_a_call_is_idle_at_its_end() {
    let idle = placed(job(&[60.0]).submits(1, 0, 0, 1).submits(1, 100 * MS, 100 * MS, 1));
    assert_eq!(spans(&idle), [(60_000, 100_000, Known::Inferred)]);
}

#[test]
fn submits_share_the_busy_time() {
    let trace = job(&[40.0]).call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 0, 0);
    let idle = placed(trace.submits(1, 0, 0, 3).submits(1, 50 * MS, 50 * MS, 1));
    assert_eq!(spans(&idle), [(30_000, 50_000, Known::Inferred), (60_000, 100_000, Known::Inferred)]);
}

#[test]
fn a_window_read_as_zero_is_idle_whatever_calls_wait_for() {
    let idle = placed(job(&[0.0]).submits(1, 0, 0, 1).call(
        1,
        CudaFamily::Synchronize,
        "cuCtxSynchronize",
        MS,
        90 * MS,
    ));
    assert_eq!(idle.idle_ns, 100 * MS);
    assert_eq!(idle.placed.iter().map(|p| p.span.len()).sum::<u64>(), 100 * MS);
}

#[test]
fn idle_inside_waits_is_not_placed() {
    let idle = placed(job(&[50.0]).submits(1, 0, 0, 1).call(
        1,
        CudaFamily::Synchronize,
        "cuCtxSynchronize",
        0,
        90 * MS,
    ));
    assert_eq!(spans(&idle), [(90_000, 100_000, Known::Drained)]);
    assert_eq!((idle.unplaced[0].ns, idle.unplaced[0].launch_bound), (40 * MS, false));
    assert!(idle.unplaced[0].reason.starts_with("inside synchronise calls"));
    let rounded = placed(job(&[89.6]).submits(1, 0, 0, 1).call(
        1,
        CudaFamily::Synchronize,
        "cuCtxSynchronize",
        0,
        90 * MS,
    ));
    assert!(rounded.unplaced[0].reason.contains("rounding"));
}

#[test]
fn a_host_that_launches_back_to_back_is_launch_bound() {
    let idle = placed(job(&[30.0]).submits(1, 0, 100 * MS, 1001));
    assert_eq!(idle.placed, []);
    let rest: u64 = idle.unplaced.iter().map(|u| u.ns).sum();
    assert_eq!(rest, 70 * MS);
    assert!(idle.unplaced.iter().all(|u| u.launch_bound && u.feeder == Some(key(1))));
    assert_eq!(idle.launches_per_second.map(f64::round), Some(10_010.0));
}

#[test]
fn copies_end_no_silence() {
    let copies = |trace: TraceBuilder| {
        trace.record(Record::Submits(crate::trace::Submits {
            thread: key(1),
            pid: 1,
            first: 80 * MS,
            last: 80 * MS,
            copies: 5,
            ..crate::trace::Submits::default()
        }))
    };
    let trace = || job(&[60.0]).submits(1, 0, 0, 1).submits(1, 100 * MS, 100 * MS, 1);
    assert_eq!(placed(copies(trace())), placed(trace()));
}

#[test]
fn a_submit_that_blocks_counts_from_its_return() {
    let idle = placed(job(&[20.0]).submits(1, 10 * MS, 10 * MS, 1).call(
        1,
        CudaFamily::Launch,
        "cuLaunchKernel",
        10 * MS,
        80 * MS,
    ));
    assert_eq!(idle.placed[0].span.end, 80 * MS);
    assert_eq!(idle.placed[0].submit, Some(80 * MS));
}

#[test]
fn adjacent_pieces_of_one_silence_are_one() {
    let idle = placed(
        job(&[50.0, 0.0, 0.0])
            .submits(1, 0, 0, 1)
            .call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 0, 50 * MS)
            .submits(1, 300 * MS, 300 * MS, 1),
    );
    assert_eq!(spans(&idle), [(50_000, 300_000, Known::Drained)]);
}

#[test]
fn a_silence_that_nobody_ends_is_the_last_feeders() {
    let idle = placed(job(&[10.0, 0.0]).submits(1, 0, 0, 1));
    let last = idle.placed.last().unwrap();
    assert_eq!((last.span.end, last.feeder, last.submit), (200 * MS, Some(key(1)), None));
}

#[test]
fn without_edges_idle_lies_at_the_windows_end() {
    let idle = placed(job(&[30.0, 100.0]));
    let piece = PlacedIdle {
        span: Span::new(30 * MS, 100 * MS),
        known: Known::Inferred,
        feeder: None,
        submit: None,
        device_inferred: false,
    };
    assert_eq!(idle.placed, [piece]);
}

#[test]
fn nonsense_and_holes_are_unknown() {
    let trace = TraceBuilder::new(0, 700 * MS)
        .device(0)
        .reading_with(0, 0, 100 * MS, |_| ())
        .reading(0, 100 * MS, 200 * MS, 120.0)
        .reading(0, 200 * MS, 300 * MS, f64::NAN)
        .reading(0, 400 * MS, 500 * MS, 100.0)
        .reading_with(0, 500 * MS, 600 * MS, |r| {
            (r.busy_percent, r.memory_percent) = (Some(0.0), Some(3.0));
        })
        .reading(0, 650 * MS, 750 * MS, 0.0);
    let idle = placed(trace);
    let reasons: Vec<_> = idle.unknown.iter().map(|u| u.1).collect();
    use UnknownReason::{MemoryContradicts, NoReading, NoValue};
    assert_eq!(reasons, [NoValue, NoValue, NoValue, NoReading, MemoryContradicts]);
    assert_eq!((idle.idle_ns, idle.window), (0, Span::new(0, 600 * MS)));
}

#[test]
fn zero_under_high_power_is_unknown_only_if_it_lasts() {
    let hot = |windows: u64| {
        let mut trace = TraceBuilder::new(0, 30_000 * MS).device(0);
        for i in 0..windows {
            trace = trace.reading_with(0, i * 100 * MS, (i + 1) * 100 * MS, |r| {
                (r.busy_percent, r.power_mw) = (Some(0.0), Some(150_000));
            });
        }
        placed(trace).unknown_ns
    };
    assert_eq!(hot(19), 0);
    assert_eq!(hot(20), 2_000 * MS);
}

#[test]
fn a_device_that_says_nothing_is_unknown() {
    let idle = placed(TraceBuilder::new(0, 500 * MS).device(0));
    assert_eq!((idle.unknown_ns, idle.unknown[0].1), (500 * MS, UnknownReason::NoReading));
    let mig = crate::trace::Device { mig: true, ..crate::trace::Device::default() };
    let idle = placed(TraceBuilder::new(0, 500 * MS).record(Record::Device(mig)));
    assert_eq!(idle.unknown[0].1, UnknownReason::Mig);
}

#[test]
fn submits_of_a_process_on_another_device_do_not_count() {
    let trace = |second: u32| {
        let trace = job(&[50.0]).device(1).on_device(second, 2).thread(2, 2, "other");
        trace.submits(1, 0, 0, 1).submits(2, 10 * MS, 10 * MS, 1)
    };
    assert_eq!(placed(trace(1)).submits, 1);
    let shared = placed(trace(0));
    assert_eq!(shared.submits, 2);
    assert!(!shared.placed[0].device_inferred);
    let unlisted = placed(job(&[50.0]).device(1).thread(2, 2, "other").submits(2, 10 * MS, 10 * MS, 1));
    assert!(unlisted.placed[0].device_inferred);
}

#[test]
fn another_process_may_still_keep_the_device_busy() {
    let trace = |drained| {
        let trace = job(&[50.0]).thread(2, 2, "other").on_device(0, 2).submits(2, 0, 0, 1);
        let trace = trace.submits(1, 0, 0, 1);
        let sync = CudaFamily::Synchronize;
        let trace = trace.call(1, sync, "cuCtxSynchronize", 0, 50 * MS);
        if drained { trace.call(2, sync, "cuCtxSynchronize", 0, 40 * MS) } else { trace }
    };
    assert_eq!(placed(trace(true)).placed[0].known, Known::Drained);
    assert_eq!(placed(trace(false)).placed[0].known, Known::Inferred);
}

#[test]
fn a_copy_thread_proves_nothing_while_the_job_waits() {
    let trace = || {
        let trace = job(&[80.0]).thread(1, 2, "copy").submits(1, 0, 0, 1);
        trace.call(1, CudaFamily::Synchronize, "cuStreamSynchronize", 0, 80 * MS)
    };
    let alone = placed(trace());
    assert_eq!(spans(&alone), [(80_000, 100_000, Known::Drained)]);
    for name in ["cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"] {
        assert_eq!(placed(trace().call(2, CudaFamily::Copy, name, 10 * MS, 20 * MS)), alone, "{name}");
    }
}

#[test]
fn a_copy_threads_stream_says_nothing_of_kernels() {
    let trace = || job(&[60.0]).thread(1, 2, "copy").submits(1, 0, 0, 1).submits(1, 100 * MS, 100 * MS, 1);
    let sync = CudaFamily::Synchronize;
    let copies = trace().call(2, sync, "cuStreamSynchronize", 5 * MS, 20 * MS);
    assert_eq!(placed(copies), placed(trace()));
    let own = || trace().call(1, sync, "cuStreamSynchronize", MS, 60 * MS);
    let copies = own().call(2, sync, "cuStreamSynchronize", 50 * MS, 80 * MS);
    assert_eq!(placed(copies), placed(own()));
    assert_eq!(spans(&placed(own())), [(60_000, 100_000, Known::Drained)]);
    let context = placed(trace().call(2, sync, "cuCtxSynchronize", 5 * MS, 60 * MS));
    assert_eq!(spans(&context), [(60_000, 100_000, Known::Drained)]);
}

#[test]
fn a_stream_that_threads_may_share_is_no_proof() {
    let trace = |name| {
        let trace = job(&[60.0]).thread(1, 2, "backward").submits(1, 0, 0, 1).submits(2, MS, MS, 1);
        placed(trace.call(1, CudaFamily::Synchronize, name, 2 * MS, 60 * MS)).placed[0].known
    };
    assert_eq!(trace("cuStreamSynchronize"), Known::Bounded);
    assert_eq!(trace("cuCtxSynchronize"), Known::Drained);
}

#[test]
fn memory_activity_is_explained_by_copies() {
    let trace = |build: &dyn Fn(TraceBuilder) -> TraceBuilder| {
        let quiet = TraceBuilder::new(0, 100 * MS).device(0).on_device(0, 1).thread(1, 1, "a").reading_with(
            0,
            0,
            100 * MS,
            |r| (r.busy_percent, r.memory_percent) = (Some(0.0), Some(3.0)),
        );
        placed(build(quiet)).unknown_ns
    };
    let sync = CudaFamily::Synchronize;
    assert_eq!(trace(&|t| t), 100 * MS);
    assert_eq!(trace(&|t| t.call(1, CudaFamily::Copy, "cuMemcpyHtoD_v2", 10 * MS, 20 * MS)), 0);
    assert_eq!(trace(&|t| t.call(1, sync, "cuStreamSynchronize", 10 * MS, 20 * MS)), 0);
    let kernels = |t: TraceBuilder| {
        t.submits(1, 5 * MS, 5 * MS, 1).call(1, sync, "cuStreamSynchronize", 6 * MS, 7 * MS)
    };
    assert_eq!(trace(&kernels), 100 * MS);
}

#[test]
fn a_copy_to_the_host_leaves_the_device_empty() {
    let trace = |name| {
        let trace = job(&[50.0]).submits(1, 0, 0, 1).call(1, CudaFamily::Copy, name, MS, 50 * MS);
        placed(trace).placed[0].known
    };
    assert_eq!(trace("cuMemcpyDtoH_v2"), Known::Drained);
    assert_eq!(trace("cuMemcpyDtoHAsync_v2"), Known::Bounded);
    assert_eq!(trace("cuMemcpyHtoD_v2"), Known::Inferred);
}

#[test]
fn waiting_for_a_processor_in_a_synchronise_call_is_not_waiting_for_the_device() {
    let sync = |trace: TraceBuilder| {
        trace.call(1, CudaFamily::Synchronize, "cuCtxSynchronize", MS, 70 * MS + 50 * US)
    };
    let slept = job(&[40.0]).submits(1, 0, 0, 1).wait(1, 2 * MS, 40 * MS, 70 * MS, |w| w);
    assert_eq!(spans(&placed(sync(slept))), [(40_000, 100_000, Known::Drained)]);
    let spun = job(&[50.0]).submits(1, 0, 0, 1).preempted(1, 30 * MS, 70 * MS, |_| ());
    let expected = [(50_000, 70_050, Known::Inferred), (70_050, 100_000, Known::Drained)];
    assert_eq!(spans(&placed(sync(spun))), expected);
    let spins_on = job(&[50.0]).submits(1, 0, 0, 1).preempted(1, 30 * MS, 40 * MS, |_| ());
    let idle = placed(sync(spins_on));
    assert_eq!(spans(&idle).last(), Some(&(70_050, 100_000, Known::Drained)));
    assert!(idle.placed.iter().all(|p| p.span.end <= MS || p.span.start >= 70 * MS));
}

#[test]
fn a_range_takes_the_windows_inside_it_and_ranges_sum() {
    let timeline = build(
        job(&[50.0, 20.0, 0.0, 70.0])
            .submits(1, 0, 20 * MS, 300)
            .submits(1, 130 * MS, 140 * MS, 100)
            .submits(1, 390 * MS, 390 * MS, 1)
            .records(),
    );
    let of = |from: u64, to: u64| place(&timeline, Some(Span::new(from * MS, to * MS))).remove(0);
    let (whole, head, tail) = (of(0, 400), of(0, 230), of(200, 400));
    assert_eq!(head.window, Span::new(0, 200 * MS));
    assert_eq!(head.idle_ns + tail.idle_ns, whole.idle_ns);
    assert_eq!(of(10, 90).window.len(), 0);
    [&whole, &head, &tail, &of(10, 90)].into_iter().for_each(laws);
}

#[test]
fn what_lies_between_submits_is_located_too() {
    let timeline = build(job(&[30.0]).submits(1, 0, 100 * MS, 1001).records());
    let located = locate(&timeline, None).remove(0);
    assert_eq!(located.between_submits.iter().map(|s| s.len()).sum::<u64>(), 70 * MS);
}

proptest::proptest! {
    #[test]
    fn laws_hold_of_any_records(records in crate::timeline::arbitrary::records()) {
        let timeline = build(records);
        for located in locate(&timeline, None) {
            laws(&located.idle);
            // Where launches were not watched there are no submits to lie between.
            let watched = |u: &&UnplacedIdle| u.launch_bound && !u.reason.starts_with(UNWATCHED);
            let bound = located.idle.unplaced.iter().filter(watched).map(|u| u.ns);
            let between = located.between_submits.iter().map(|s| s.len());
            proptest::prop_assert_eq!(between.sum::<u64>(), bound.sum::<u64>());
        }
    }

    #[test]
    fn the_order_of_records_does_not_matter(
        (records, shuffled) in crate::timeline::arbitrary::records()
            .prop_flat_map(|r| (Just(r.clone()), Just(r).prop_shuffle())),
    ) {
        proptest::prop_assert_eq!(locate(&build(records), None), locate(&build(shuffled), None));
    }
}
