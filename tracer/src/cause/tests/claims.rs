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
    // As kernels tell it: the sleeper's stack without the lock, the waker's with it.
    let write = |w: Wait| {
        w.syscall(libc::SYS_write, [1, 0, 0, 0, 0, 0])
            .kernel(&["ext4_buffered_write_iter", "vfs_write"])
            .woken_by(WORKER)
    };
    let kernel =
        wait(busy, |w| write(w).woken_from(&["try_to_wake_up", "wake_up_q", "rwsem_wake", "up_write"]));
    assert_eq!((kernel.mechanism, culprit(&kernel)), (Mechanism::LockKernel, "held by worker"));
    let other = wait(busy, |w| write(w).woken_from(&["try_to_wake_up", "wake_up_bit", "folio_unlock"]));
    assert_ne!(other.mechanism, Mechanism::LockKernel);
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
    let ioctl = |w: Wait| {
        w.nvidia_ioctl(9, 50, 0xc020_462a).with(|o| o.ioctl.as_mut().unwrap().inner = Some(0x2080_1303))
    };
    assert_eq!(wait(node, |w| ioctl(w).interrupt(&["nvidia_isr"])).mechanism, Mechanism::DriverIoctl);
    let locked =
        wait(node, |w| ioctl(w).woken_by(WORKER).with(|o| o.waker.as_mut().unwrap().in_nvidia_ioctl = true));
    let holder = Culprit { kind: CulpritKind::Process, name: "worker (pid 20)".into() };
    assert_eq!((locked.mechanism, locked.culprit), (Mechanism::DriverLock, Some(holder)));
    assert_eq!(locked.chain[0].what, "waits for worker 20 (ioctl RM_CONTROL FB_GET_INFO_V2)");
    // Nobody's records were kept: the name is all there is.
    let stranger = |t: TraceBuilder| node(t).bystander(900, 900, "nvidia-smi");
    let by =
        wait(stranger, |w| ioctl(w).woken_by(900).with(|o| o.waker.as_mut().unwrap().in_nvidia_ioctl = true));
    assert_eq!((by.mechanism, culprit(&by)), (Mechanism::DriverLock, "nvidia-smi (pid 900)"));
    let interrupted = wait(node, |w| {
        ioctl(w).woken_by(WORKER).with(|o| {
            let waker = o.waker.as_mut().unwrap();
            (waker.in_nvidia_ioctl, waker.context) = (true, WakerContext::Interrupt);
        })
    });
    assert_eq!(interrupted.mechanism, Mechanism::DriverIoctl, "an interrupt in its time is not its doing");
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
            image: 1,
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
    // It was over by the next call, and nobody knows since when: what the thread ran is its own.
    let name = "cuStreamSynchronize";
    let by_next = |t: TraceBuilder| {
        t.call_with(FEEDER, CudaFamily::Synchronize, name, (10 * MS, 200 * MS), |c| c.exit_by_next = true)
    };
    assert_eq!(ledger(samples(by_next(trace()))).causes[0].mechanism, Mechanism::PreparePython);
    // Busy for 100 ms before the gap, and 100 ms from the return to the submit: not less.
    assert_eq!(ledger(samples(sync(100 * MS))).causes[0].mechanism, Mechanism::PreparePython);
    let timeline = build(samples(sync(100 * MS)).records());
    let short = attribute(&timeline, &idle(&timeline, FEEDER, &[(100 * MS, 150 * MS)]));
    assert_eq!(
        (short.causes[0].mechanism, short.causes[0].leaf),
        (Mechanism::LaunchSync, Mechanism::PreparePython)
    );
}
