//! Which device, which process: several of either, MPS, MIG, and collectives between them.

use super::*;
use crate::timeline::testing::{MS, TraceBuilder, key};
use crate::timeline::{Timeline, build};
use crate::trace::{CudaFamily, Device, Record, SubmitGroup};

const A: u64 = 0xa000;
const B: u64 = 0xb000;
const WINDOWS: u64 = 40;

fn window(i: u64) -> (u64, u64) {
    (i * 100 * MS, (i + 1) * 100 * MS)
}

/// Devices 0 and 1, each busy in percent as told by window, and process 1 on both of them.
fn two(busy: impl Fn(u64) -> [f64; 2]) -> TraceBuilder {
    let mut trace = TraceBuilder::new(0, WINDOWS * 100 * MS).thread(1, 1, "job");
    for device in [0, 1] {
        trace = trace.device(device).on_device(device, 1);
        for i in 0..WINDOWS {
            let (start, end) = window(i);
            trace = trace.reading(device, start, end, busy(i)[device as usize]);
        }
    }
    trace
}

/// Context A launches in the windows of odd number, B in the others.
fn alternating(mut trace: TraceBuilder, tid: u32) -> TraceBuilder {
    for i in 0..WINDOWS {
        let (start, end) = window(i);
        trace = trace.launches(tid, if i % 2 == 1 { A } else { B }, start + MS, end - MS, 100);
    }
    trace
}

fn group(context: u64, at: u64, count: u64) -> SubmitGroup {
    SubmitGroup { context, count, first: at, last: at, ..SubmitGroup::default() }
}

fn on(timeline: &Timeline, tid: u32, context: u64) -> On {
    let map = DeviceMap::new(timeline);
    map.of_call(&timeline.threads[&key(tid)], context, None).expect("a device").clone()
}

fn known(device: u32) -> On {
    On { devices: vec![device], inferred: false }
}

#[test]
fn a_run_is_split_where_its_contexts_are_on_different_devices() {
    let run = vec![group(A, 10 * MS, 3), group(B, 10 * MS + 1, 5), group(A, 10 * MS + 2, 1)];
    // CUDA's ordinals need not be NVML's indices: the lower of those seen is the lower of the list.
    let trace = two(|_| [50.0, 50.0])
        .run(1, run)
        .run(1, vec![group(A, 50 * MS, 1)])
        .run(1, vec![group(B, 70 * MS, 1)])
        .context(1, A, 4)
        .context(1, B, 7);
    let placed = place(&build(trace.records()), None);
    assert_eq!([placed[0].submits, placed[1].submits], [5, 6]);
    let ends = |i: usize| {
        let submits = placed[i].placed.iter().filter_map(|p| p.submit);
        submits.map(|at| at / MS).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(ends(0).contains(&50) && !ends(0).contains(&70), "{:?}", ends(0));
    assert!(ends(1).contains(&70) && !ends(1).contains(&50), "{:?}", ends(1));
    assert!(placed.iter().flat_map(|d| &d.placed).all(|p| !p.device_inferred));
}

#[test]
fn readings_tell_contexts_apart_whose_devices_were_not_seen() {
    let busy = |i: u64| if i % 2 == 1 { [5.0, 90.0] } else { [80.0, 10.0] };
    let timeline = build(alternating(two(busy), 1).records());
    assert_eq!([on(&timeline, 1, A), on(&timeline, 1, B)], [known(1), known(0)]);
    let placed = place(&timeline, None);
    assert!(placed.iter().flat_map(|d| &d.placed).all(|p| !p.device_inferred));
}

#[test]
fn what_readings_do_not_tell_apart_stays_inferred() {
    let both = On { devices: vec![0, 1], inferred: true };
    let busy = |i: u64| if i % 2 == 1 { [80.0, 84.0] } else { [10.0, 12.0] };
    let timeline = build(alternating(two(busy), 1).records());
    assert_eq!([on(&timeline, 1, A), on(&timeline, 1, B)], [both.clone(), both.clone()]);
    let placed = place(&timeline, None);
    assert!(placed.iter().flat_map(|d| &d.placed).all(|p| p.device_inferred));
    // A trace too short says nothing either.
    let mut short = TraceBuilder::new(0, 400 * MS).thread(1, 1, "job");
    for device in [0, 1] {
        short = short.device(device).on_device(device, 1);
        for i in 0..4 {
            short = short.reading(device, window(i).0, window(i).1, if i % 2 == 0 { 90.0 } else { 0.0 });
        }
    }
    assert_eq!(on(&build(alternating(short, 1).records()), 1, A), both);
}

#[test]
fn readings_hold_where_the_order_of_ordinals_says_otherwise() {
    let busy = |i: u64| if i % 2 == 1 { [5.0, 90.0] } else { [80.0, 10.0] };
    // As with `CUDA_VISIBLE_DEVICES=1,0`.
    let trace = alternating(two(busy), 1).context(1, A, 0).context(1, B, 1);
    let timeline = build(trace.records());
    assert_eq!([on(&timeline, 1, A), on(&timeline, 1, B)], [known(1), known(0)]);
}

#[test]
fn a_stream_and_a_thread_stand_for_the_context_they_were_seen_with() {
    let with_stream = SubmitGroup { stream: 0x77, ..group(A, 10 * MS, 1) };
    let trace = two(|_| [50.0, 50.0])
        .thread(1, 2, "late")
        .run(1, vec![with_stream, group(B, 20 * MS, 1)])
        .run(2, vec![group(0, 10 * MS, 1)])
        .run(2, vec![group(B, 30 * MS, 1)])
        .context(1, A, 0)
        .context(1, B, 1);
    let timeline = build(trace.records());
    let map = DeviceMap::new(&timeline);
    let [first, late] = [1, 2].map(|tid| &timeline.threads[&key(tid)]);
    assert_eq!(map.of_call(first, 0, Some(0x77)), Some(&known(0)));
    assert_eq!(map.of_call(late, 0, Some(0)), Some(&known(1)), "it only ever had one context");
    assert!(map.of_call(first, 0, None).is_some_and(|on| on.inferred), "it had two");
    assert_eq!(map.of_thread(late), Some(known(1)));
}

#[test]
fn on_a_shared_device_the_gap_is_whose_kernel_ends_it() {
    let trace = TraceBuilder::new(0, 100 * MS)
        .device(0)
        .reading(0, 0, 100 * MS, 40.0)
        .on_device(0, 1)
        .on_device(0, 2)
        .thread(1, 1, "one")
        .thread(2, 2, "two")
        .submits(1, 0, 0, 1)
        .call(1, CudaFamily::Synchronize, "cuCtxSynchronize", 0, 20 * MS)
        .submits(2, 50 * MS, 50 * MS, 1)
        .call(2, CudaFamily::Synchronize, "cuCtxSynchronize", 50 * MS, 70 * MS)
        .submits(1, 99 * MS, 99 * MS, 1);
    let idle = place(&build(trace.records()), None).swap_remove(0);
    let ended: Vec<_> =
        idle.placed.iter().map(|p| (p.feeder.map(|k| k.tid), p.submit.map(|at| at / MS))).collect();
    assert!(ended.contains(&(Some(2), Some(50))) && ended.contains(&(Some(1), Some(99))), "{ended:?}");
    assert!(idle.placed.iter().all(|p| !p.device_inferred));
}

#[test]
fn an_mps_server_is_no_feeder_and_its_clients_are_where_it_is_listed() {
    let trace = TraceBuilder::new(0, 100 * MS)
        .device(0)
        .device(1)
        .reading(0, 0, 100 * MS, 40.0)
        .reading(1, 0, 100 * MS, 40.0)
        .on_device(0, 9)
        .on_device(1, 5)
        .thread(9, 9, "someone")
        .thread(5, 5, "nvidia-cuda-mps")
        .thread(5, 6, "worker")
        .submits(6, MS, MS, 7)
        .thread(1, 1, "client")
        .thread(2, 2, "client")
        .submits(1, 10 * MS, 10 * MS, 1)
        .submits(2, 40 * MS, 40 * MS, 1)
        .submits(1, 80 * MS, 80 * MS, 1);
    let timeline = build(trace.records());
    let placed = place(&timeline, None);
    assert_eq!([placed[0].submits, placed[1].submits], [0, 3]);
    assert!(placed[1].placed.iter().all(|p| !p.device_inferred));
    let feeders: Vec<_> = placed[1].placed.iter().filter_map(|p| p.feeder.map(|k| k.tid)).collect();
    assert!(feeders.contains(&1) && feeders.contains(&2), "{feeders:?}");
    assert!(DeviceMap::new(&timeline).of_process(5).is_none());
}

#[test]
fn a_mig_instance_is_a_device_of_its_own_whose_use_is_unknown() {
    let mig = |index, uuid: &str| {
        Record::Device(Device { index, uuid: uuid.into(), mig: true, ..Device::default() })
    };
    let trace = TraceBuilder::new(0, 100 * MS)
        .record(mig(0, "GPU-0"))
        .record(mig(1, "MIG-1"))
        .record(mig(2, "MIG-2"))
        .reading(1, 0, 100 * MS, 0.0)
        .on_device(0, 1)
        .on_device(1, 1)
        .on_device(0, 2)
        .on_device(2, 2)
        .thread(1, 1, "one")
        .thread(2, 2, "two")
        .submits(1, 10 * MS, 10 * MS, 3)
        .submits(2, 10 * MS, 10 * MS, 5);
    let timeline = build(trace.records());
    let map = DeviceMap::new(&timeline);
    assert_eq!([1, 2].map(|pid| map.of_process(pid).cloned()), [Some(known(1)), Some(known(2))]);
    let placed = place(&timeline, None);
    assert_eq!([placed[0].submits, placed[1].submits, placed[2].submits], [0, 3, 5]);
    for idle in placed {
        assert_eq!((idle.idle_ns, idle.unknown_ns), (0, idle.window.len()));
        assert!(idle.unknown.iter().all(|(_, why)| *why == UnknownReason::Mig));
    }
}

/// Ranks 0 and 1 of process 1 and 2 on devices 0 and 1; rank 1 comes `late` ms late to each of five.
fn ranks(ranks: u32, late: u64) -> TraceBuilder {
    let mut trace = TraceBuilder::new(0, 1000 * MS);
    for rank in 0..2 {
        let pid = rank + 1;
        trace = trace.device(rank).reading(rank, 0, 1000 * MS, 50.0).on_device(rank, pid);
        trace = trace.thread(pid, pid, "rank").submits(pid, 0, 0, 1);
        for i in 0..5 {
            let at = (100 + 100 * i + u64::from(rank) * late) * MS;
            trace = trace.all_reduce(pid, at, i, 7, (rank, ranks));
        }
    }
    trace
}

fn collectives_of(trace: TraceBuilder) -> std::collections::BTreeMap<u32, DeviceCollectives> {
    let timeline = build(trace.records());
    collectives(&timeline, &DeviceMap::new(&timeline))
}

fn waited(of: &DeviceCollectives) -> Result<u64, Blind> {
    of.waits.as_ref().map(|w| w.iter().map(|s| s.len()).sum()).map_err(|e| *e)
}

#[test]
fn ranks_wait_from_their_launch_to_the_last_one() {
    let found = collectives_of(ranks(2, 30));
    assert_eq!([waited(&found[&0]), waited(&found[&1])], [Ok(150 * MS), Ok(0)]);
    let last = Latecomer { rank: 1, pid: 2, count: 5, behind_ns: 150 * MS };
    for device in [0, 1] {
        assert_eq!((found[&device].operations, &found[&device].last[..]), (5, &[last][..]));
    }
    // A second communicator's waits overlap the first one's: the time counts once.
    let twice = ranks(2, 30).all_reduce(1, 100 * MS, 0, 8, (0, 2)).all_reduce(2, 140 * MS, 0, 8, (1, 2));
    assert_eq!(waited(&collectives_of(twice)[&0]), Ok(160 * MS));
}

#[test]
fn waits_are_not_known_with_ranks_elsewhere_or_without_a_birth() {
    let elsewhere = collectives_of(ranks(3, 30));
    assert_eq!(waited(&elsewhere[&0]), Err(Blind::RanksElsewhere));
    let unborn = |record: Record| match record {
        Record::Collective(mut call) => {
            call.group = None;
            Record::Collective(call)
        }
        record => record,
    };
    let timeline = build(ranks(2, 30).records().into_iter().map(unborn));
    let found = collectives(&timeline, &DeviceMap::new(&timeline));
    assert_eq!(waited(&found[&1]), Err(Blind::NoBirth));
    assert!(collectives_of(TraceBuilder::new(0, MS).device(0)).is_empty());
}

#[test]
fn an_operation_cut_by_the_recordings_end_counts_for_nobody() {
    let cut = ranks(2, 30).all_reduce(1, 900 * MS, 5, 7, (0, 2));
    let found = collectives_of(cut);
    assert_eq!((waited(&found[&0]), found[&0].operations), (Ok(150 * MS), 5));
}

#[test]
fn ranks_whose_device_is_not_known_leave_it_open() {
    let lost = ranks(2, 30).on_device(1, 1);
    assert_eq!(waited(&collectives_of(lost)[&0]), Err(Blind::NoDevice));
}
