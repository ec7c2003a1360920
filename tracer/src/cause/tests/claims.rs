//! Links that claim, and what they leave alone.

use super::*;

#[test]
fn a_remote_file_system_claims_unless_the_daemon_waits_for_its_disk() {
    let fuse = |t: TraceBuilder| t.file(40, "/mnt/remote/x", |f| f.fs_magic = 0x6573_5546);
    let stack: &[&str] = &["request_wait_answer", "fuse_simple_request", "vfs_read"];
    let leaf = wait(fuse, |w| w.read(3, 40).kernel(stack));
    assert_eq!((leaf.mechanism, culprit(&leaf)), (Mechanism::NetworkFs, "/mnt/remote"));
    let computing = wait(
        |t| fuse(t).samples(WORKER, 0, 300 * MS, &["libfuse.so!serve"]),
        |w| w.read(3, 40).kernel(stack).woken_by(WORKER),
    );
    assert_eq!((computing.mechanism, computing.leaf), (Mechanism::NetworkFs, Mechanism::PrepareCompute));
    let on_disk = |t: TraceBuilder| {
        let read = |w: Wait| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT);
        fuse(t).wait(WORKER, 0, 200 * MS, 200 * MS, read)
    };
    let disk = wait(on_disk, |w| w.read(3, 40).kernel(stack).woken_by(WORKER));
    assert_eq!((disk.mechanism, culprit(&disk)), (Mechanism::StorageRead, "/data/train"));
}

#[test]
fn locks_claim_whatever_their_holder_does() {
    let busy = |t: TraceBuilder| t.samples(WORKER, 0, 300 * MS, &["libjpeg.so!idct"]);
    let mutex =
        |w: Wait| w.syscall(libc::SYS_futex, [0x500, 128, 2, 0, 0, 0]).with(|o| o.futex_value = Some(2));
    let futex = wait(busy, |w| mutex(w).woken_by(WORKER));
    assert_eq!((futex.mechanism, futex.leaf), (Mechanism::LockFutex, Mechanism::PrepareCompute));
    assert_eq!(culprit(&futex), "held by worker");
    let gil = wait(busy, |w| {
        w.futex(0x600, 0).user(&["libc.so.6!cond_wait", "python3.11!take_gil"]).woken_by(WORKER)
    });
    assert_eq!(gil.mechanism, Mechanism::LockGil);
    let kernel = wait(busy, |w| {
        w.syscall(libc::SYS_write, [1, 0, 0, 0, 0, 0])
            .kernel(&["schedule", "rwsem_down_write_slowpath", "ext4_buffered_write_iter"])
            .woken_by(WORKER)
    });
    assert_eq!(kernel.mechanism, Mechanism::LockKernel);
    let queue = wait(busy, |w| w.futex(0x700, 0).woken_by(WORKER));
    assert_eq!(queue.mechanism, Mechanism::PrepareCompute, "a condition variable is not a lock");
}

#[test]
fn the_driver_claims_its_ioctls_and_calls() {
    let node = |t: TraceBuilder| {
        t.file(50, "/dev/nvidia0", |f| {
            f.mode = 0o020_666;
            f.rdev = 195 << 20;
        })
    };
    let ioctl = |w: Wait| w.nvidia_ioctl(9, 50, 0x2a);
    assert_eq!(wait(node, |w| ioctl(w).interrupt(&["nvidia_isr"])).mechanism, Mechanism::DriverIoctl);
    let locked =
        wait(node, |w| ioctl(w).woken_by(WORKER).with(|o| o.waker.as_mut().unwrap().in_nvidia_ioctl = true));
    assert_eq!((locked.mechanism, culprit(&locked)), (Mechanism::DriverLock, "held by worker"));
    let call = |family, name: &'static str| {
        move |t: TraceBuilder| node(t).call(FEEDER, family, name, 50 * MS, 250 * MS)
    };
    let free = wait(call(CudaFamily::Free, "cuMemFree_v2"), |w| ioctl(w).interrupt(&["nvidia_isr"]));
    assert_eq!((free.mechanism, culprit(&free)), (Mechanism::DriverAlloc, "cuMemFree_v2"));
    let load = wait(call(CudaFamily::Load, "cuModuleLoadData"), |w| ioctl(w).interrupt(&["nvidia_isr"]));
    assert_eq!(load.mechanism, Mechanism::DriverLoad);
    let file = wait(call(CudaFamily::Load, "cuModuleLoad"), |w| {
        w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT)
    });
    assert_eq!(file.mechanism, Mechanism::StorageRead, "a wait for a file is the file's");
}

#[test]
fn a_child_that_has_execed_and_delivered_nothing_is_starting() {
    let exec = |t: TraceBuilder| {
        t.record(Record::ThreadExec(ThreadExec {
            at: 50 * MS,
            key: key(WORKER),
            pid: WORKER,
            comm: "worker".into(),
        }))
        .samples(WORKER, 50 * MS, 200 * MS, &["python3.11!marshal_load"])
    };
    let first = wait(exec, |w| w.read(3, PIPE).woken_by(WORKER));
    assert_eq!((first.mechanism, first.leaf), (Mechanism::ProcessSpawn, Mechanism::PreparePython));
    let before = |t: TraceBuilder| {
        exec(t).wait(FEEDER, 60 * MS, 80 * MS, 80 * MS, |w| w.read(3, PIPE).woken_by(WORKER))
    };
    let later =
        wait(|t| before(t).submits(FEEDER, 90 * MS, 91 * MS, 1), |w| w.read(3, PIPE).woken_by(WORKER));
    assert_eq!(later.mechanism, Mechanism::PreparePython);
}

#[test]
fn waiting_for_the_device_is_no_cause_and_a_short_run_after_it_is_launch_sync() {
    let sync = |exit: Ns| trace().call(FEEDER, CudaFamily::Synchronize, "cuStreamSynchronize", 10 * MS, exit);
    let inside = ledger(sync(200 * MS));
    assert_eq!(inside.causes[0].mechanism, Mechanism::Unexplained);
    assert!(inside.causes[0].note.as_ref().unwrap().contains("cuStreamSynchronize"));
    let samples = |t: TraceBuilder| t.samples(FEEDER, 100 * MS, 200 * MS, &["python3!step"]);
    // Busy for 100 ms before the gap, and 100 ms from the return to the submit: not less.
    assert_eq!(ledger(samples(sync(100 * MS))).causes[0].mechanism, Mechanism::PreparePython);
    let timeline = build(samples(sync(100 * MS)).records());
    let short = attribute(&timeline, &idle(&timeline, FEEDER, &[(100 * MS, 150 * MS)]));
    assert_eq!(
        (short.causes[0].mechanism, short.causes[0].leaf),
        (Mechanism::LaunchSync, Mechanism::PreparePython)
    );
}

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
    assert_eq!((locked.mechanism, culprit(&locked)), (Mechanism::DriverLock, "held by worker"));
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
            .wait(WORKER, 50 * MS, 190 * MS, 190 * MS, |w| {
                w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT)
            })
    };
    let rank = wait(|t| other(t, 1), |w| w.read(3, PIPE).woken_by(WORKER));
    assert_eq!((rank.mechanism, rank.leaf), (Mechanism::PeerCollective, Mechanism::StorageRead));
    assert_eq!(culprit(&rank), "rank 3 (pid 20, GPU 1)");
    let same_device = wait(|t| other(t, 0), |w| w.read(3, PIPE).woken_by(WORKER));
    assert_eq!(same_device.mechanism, Mechanism::StorageRead);
}
