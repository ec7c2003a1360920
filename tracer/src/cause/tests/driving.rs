//! What a thread does inside driver calls, and what it waits for there.

use super::*;
use crate::trace::{CopyDirection, SubmitGroup};

#[test]
fn the_holder_of_the_drivers_lock_is_named_inside_any_call() {
    let locked = wait(
        |t| node(t).call(FEEDER, CudaFamily::Free, "cuMemFree_v2", 50 * MS, 250 * MS),
        |w| {
            w.nvidia_ioctl(9, 50, 0x2a)
                .woken_by(WORKER)
                .with(|o| o.waker.as_mut().unwrap().in_nvidia_ioctl = true)
        },
    );
    assert_eq!(locked.mechanism, Mechanism::DriverLock);
    let synchronising = wait(
        |t| node(t).call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", 50 * MS, 250 * MS),
        |w| {
            w.nvidia_ioctl(9, 50, 0x2a)
                .woken_by(WORKER)
                .with(|o| o.waker.as_mut().unwrap().in_nvidia_ioctl = true)
        },
    );
    assert_eq!(synchronising.mechanism, Mechanism::DriverLock);
}

fn node(t: TraceBuilder) -> TraceBuilder {
    t.file(50, "/dev/nvidia0", |f| {
        f.mode = 0o020_666;
        f.rdev = 195 << 20;
    })
}

/// A launch of function 9 from 50 to 250 ms.
fn long_launch(t: TraceBuilder) -> TraceBuilder {
    t.call_with(FEEDER, CudaFamily::Launch, "cuLaunchKernel", (50 * MS, 250 * MS), |c| c.object = 9)
}

fn launched(t: TraceBuilder, at: Ns) -> TraceBuilder {
    let group = SubmitGroup { function: 9, count: 1, first: at, last: at, ..SubmitGroup::default() };
    t.run(FEEDER, vec![group])
}

#[test]
fn a_long_launch_loads_unless_its_function_ran_before_or_it_had_no_processor() {
    let first = ledger(launched(long_launch(trace()), 50 * MS));
    assert_eq!(first.causes[0].mechanism, Mechanism::DriverLoad);
    let ioctl = wait(|t| node(long_launch(t)), |w| w.nvidia_ioctl(9, 50, 0x2a).interrupt(&["nvidia_isr"]));
    assert_eq!(ioctl.mechanism, Mechanism::DriverLoad);
    let read = wait(long_launch, |w| w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT));
    assert_eq!(read.mechanism, Mechanism::StorageRead, "the module's file");
    let again = ledger(launched(launched(long_launch(trace()), 10 * MS), 50 * MS));
    assert_eq!(again.causes[0].mechanism, Mechanism::Unexplained);
    assert!(again.causes[0].note.as_ref().unwrap().contains("launched before"), "{:?}", again.causes[0]);
    // All but half a millisecond of it waited for a processor.
    let starved = long_launch(trace())
        .preempted(FEEDER, 50 * MS + MS / 2, 250 * MS, |o| o.throttled = true)
        .record(Record::CgroupTick(CgroupTick {
            path: "/job".into(),
            quota_us: Some(1),
            period_us: Some(2),
            throttled_count: 1,
            ..CgroupTick::default()
        }));
    assert_eq!(ledger(starved).causes[0].mechanism, Mechanism::ScheduleThrottled);
    let quick = trace().call(FEEDER, CudaFamily::Launch, "cuLaunchKernel", 150 * MS, 150 * MS + MS / 2);
    assert!(ledger(quick).causes.iter().all(|c| c.mechanism != Mechanism::DriverLoad));
}

#[test]
fn copies_are_pageable_only_where_their_memory_may_be() {
    let copy = |name: &'static str, pinned, direction| {
        ledger(trace().call_with(FEEDER, CudaFamily::Copy, name, (50 * MS, 250 * MS), |c| {
            c.pinned = pinned;
            c.direction = direction;
        }))
        .causes[0]
            .mechanism
    };
    let to = Some(CopyDirection::HostToDevice);
    assert_eq!(copy("cuMemcpyHtoD_v2", Some(false), to), Mechanism::CopyPageable);
    assert_eq!(copy("cuMemcpyHtoDAsync_v2", None, to), Mechanism::CopyPageable);
    assert_eq!(copy("cuMemcpyHtoD_v2", Some(true), to), Mechanism::CopyTransfer);
    assert_eq!(copy("cuMemcpyDtoD_v2", None, None), Mechanism::CopyTransfer);
    assert_eq!(copy("cuMemcpyPeer", None, Some(CopyDirection::Peer)), Mechanism::CopyTransfer);
    let back = copy("cuMemcpyAsync", None, Some(CopyDirection::DeviceToHost));
    assert_eq!(back, Mechanism::CopyTransfer);
    let blocked = wait(
        |t| t.call(FEEDER, CudaFamily::Copy, "cuMemcpyHtoD_v2", 50 * MS, 250 * MS),
        |w| w.syscall(libc::SYS_poll, [0; 6]).interrupt(&["nvidia_isr"]),
    );
    assert_eq!(blocked.mechanism, Mechanism::CopyPageable);
    let faulted = wait(
        |t| t.call(FEEDER, CudaFamily::Copy, "cuMemcpyHtoD_v2", 50 * MS, 250 * MS),
        |w| {
            w.kernel(&["schedule", "io_schedule", "filemap_fault", "handle_mm_fault"])
                .interrupt(DISK_INTERRUPT)
        },
    );
    assert_eq!(faulted.mechanism, Mechanism::StorageFault, "a page of a mapped file");
}

#[test]
fn idle_with_kernels_queued_is_the_devices_own() {
    let sync =
        |t: TraceBuilder| t.call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", 50 * MS, 250 * MS);
    let cause = |t: TraceBuilder| ledger(sync(t)).causes.swap_remove(0);
    let kernels = |t: TraceBuilder| t.launches(FEEDER, 0, 40 * MS, 45 * MS, 9);
    let copies = |t: TraceBuilder| t.copies(FEEDER, 0, 41 * MS, 42 * MS, 1, 1 << 20);
    assert_eq!(cause(kernels(trace())).mechanism, Mechanism::DeviceGap);
    assert_eq!(cause(copies(trace())).mechanism, Mechanism::CopyTransfer);
    let both = cause(copies(kernels(trace())));
    assert_eq!(both.mechanism, Mechanism::Unexplained);
    assert!(both.note.as_ref().unwrap().contains("kernels and copies"), "{both:?}");
    // Kernels run once they can: what they wait for is a copy that may take so long.
    let large = cause(kernels(trace()).copies(FEEDER, 0, 41 * MS, 42 * MS, 1, 200 << 20));
    assert_eq!(large.mechanism, Mechanism::CopyTransfer);
    // What an earlier synchronise waited for is no longer queued.
    let before = kernels(trace()).call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", 46 * MS, 49 * MS);
    let none = cause(before);
    assert_eq!(none.mechanism, Mechanism::Unexplained);
    let asleep = sync(kernels(trace())).wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| {
        w.syscall(libc::SYS_poll, [0; 6]).interrupt(&["nvidia_isr"])
    });
    assert_eq!(ledger(asleep).causes[0].mechanism, Mechanism::DeviceGap);
}

#[test]
fn at_the_end_of_a_copy_to_the_host_it_is_the_copy() {
    let back = |exit| {
        let trace = trace().launches(FEEDER, 0, 40 * MS, 45 * MS, 9);
        ledger(trace.call(FEEDER, CudaFamily::Copy, "cuMemcpyDtoH_v2", 50 * MS, exit)).causes.swap_remove(0)
    };
    assert_eq!(back(200 * MS).mechanism, Mechanism::CopyTransfer);
    assert_eq!(back(250 * MS).mechanism, Mechanism::Unexplained);
}

#[test]
fn a_wait_for_another_devices_feeder_names_the_rank_and_what_held_it_up() {
    let other = |t: TraceBuilder, device| {
        t.device(1)
            .on_device(device, WORKER)
            .submits(WORKER, 10 * MS, 11 * MS, 1)
            .all_reduce(WORKER, 5 * MS, 0, 7, (3, 8))
            .wait(WORKER, 0, 200 * MS, 200 * MS, |w| w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT))
    };
    let rank = wait(|t| other(t, 1), |w| w.read(3, PIPE).woken_by(WORKER));
    assert_eq!((rank.mechanism, rank.leaf), (Mechanism::PeerCollective, Mechanism::StorageRead));
    assert_eq!(culprit(&rank), "rank 3 (pid 20, GPU 1)");
    let same_device = wait(|t| other(t, 0), |w| w.read(3, PIPE).woken_by(WORKER));
    assert_eq!(same_device.mechanism, Mechanism::StorageRead);
}

#[test]
fn idle_inside_waits_is_the_devices_only_if_all_of_them_waited_for_kernels() {
    let cause = |trace: TraceBuilder| {
        let timeline = build(trace.records());
        let unplaced = UnplacedIdle {
            span: Span::new(0, 200 * MS),
            ns: 50 * MS,
            reason: "inside synchronise calls".into(),
            launch_bound: false,
            in_waits: true,
            feeder: Some(key(FEEDER)),
        };
        let idle = DeviceIdle {
            window: timeline.span,
            busy_ns: 950 * MS,
            idle_ns: 50 * MS,
            unplaced: vec![unplaced],
            ..DeviceIdle::default()
        };
        attribute(&timeline, &idle).causes.swap_remove(0)
    };
    let step = |t: TraceBuilder, at: u64, copies: bool| {
        let t = t.launches(FEEDER, 0, at * MS, at * MS + 1, 9);
        let t = if copies { t.copies(FEEDER, 0, at * MS + 2, at * MS + 2, 1, 1) } else { t };
        t.call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", (at + 1) * MS, (at + 90) * MS)
    };
    let kernels = step(step(trace(), 0, false), 100, false);
    assert_eq!(cause(kernels).mechanism, Mechanism::DeviceGap);
    let mixed = cause(step(step(trace(), 0, false), 100, true));
    assert_eq!(mixed.mechanism, Mechanism::Unexplained);
    assert_eq!(mixed.note.as_deref(), Some("inside synchronise calls"));
}
