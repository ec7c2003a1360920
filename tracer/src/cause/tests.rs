//! Leaves and links, each on a trace written by hand.

use super::{Cause, Ledger, Mechanism, attribute};
use crate::idle::{DeviceIdle, Known, PlacedIdle, UnplacedIdle};
use crate::timeline::testing::{MS, TraceBuilder, Wait, key};
use crate::timeline::{Timeline, build};
use crate::trace::{
    CgroupTick, CudaFamily, File, HostTick, Ns, Record, Socket, Span, State, TargetKind, ThreadExec,
    WakerContext,
};

pub(super) const FEEDER: u32 = 10;
pub(super) const WORKER: u32 = 20;
/// A wait in which a page comes from a disk.
pub(super) const PAGE: &[&str] =
    &["schedule", "io_schedule", "folio_wait_bit_common", "filemap_get_pages", "vfs_read"];
pub(super) const DISK_INTERRUPT: &[&str] =
    &["folio_end_read", "bio_endio", "blk_mq_complete_request", "asm_common_interrupt"];
const TIMER: &[&str] = &["hrtimer_wakeup", "__hrtimer_run_queues", "asm_sysvec_apic_timer_interrupt"];
const NETWORK: &[&str] = &["sock_def_readable", "tcp_v4_rcv", "net_rx_action", "asm_common_interrupt"];
pub(super) const IMAGE: u64 = 7;
pub(super) const PIPE: u64 = 8;

/// A second of recording with a feeder, a worker of another process, an image file and a pipe.
pub(super) fn trace() -> TraceBuilder {
    TraceBuilder::new(0, 1000 * MS)
        .device(0)
        .on_device(0, FEEDER)
        .thread(FEEDER, FEEDER, "trainer")
        .thread(WORKER, WORKER, "worker")
        .file(IMAGE, "/data/train/a.jpg", |_| ())
        .file(PIPE, "", |f| {
            f.mode = 0o010_600;
            f.path = None;
        })
}

/// A device idle exactly in `gaps`, which `feeder` ended.
pub(super) fn idle(timeline: &Timeline, feeder: u32, gaps: &[(Ns, Ns)]) -> DeviceIdle {
    let placed: Vec<PlacedIdle> = gaps
        .iter()
        .map(|&(start, end)| PlacedIdle {
            span: Span::new(start, end),
            known: Known::Drained,
            feeder: Some(key(feeder)),
            submit: Some(end),
            device_inferred: false,
        })
        .collect();
    let idle_ns: u64 = placed.iter().map(|p| p.span.len()).sum();
    DeviceIdle {
        window: timeline.span,
        idle_ns,
        busy_ns: timeline.span.len() - idle_ns,
        placed,
        ..DeviceIdle::default()
    }
}

/// The ledger of one gap from 100 to 200 ms; it must sum.
fn ledger(trace: TraceBuilder) -> Ledger {
    let timeline = build(trace.records());
    let ledger = attribute(&timeline, &idle(&timeline, FEEDER, &[(100 * MS, 200 * MS)]));
    assert_eq!(ledger.causes.iter().map(|c| c.ns).sum::<u64>(), 100 * MS);
    assert_eq!(ledger.pieces.iter().map(|p| p.ns).sum::<u64>(), 100 * MS);
    ledger
}

/// The only cause of a feeder that waits all through the gap.
fn wait(prepare: impl FnOnce(TraceBuilder) -> TraceBuilder, change: impl FnOnce(Wait) -> Wait) -> Cause {
    let ledger = ledger(prepare(trace()).wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, change));
    assert_eq!(ledger.causes.len(), 1, "{:#?}", ledger.causes);
    ledger.causes.into_iter().next().unwrap()
}

fn same(trace: TraceBuilder) -> TraceBuilder {
    trace
}

fn culprit(cause: &Cause) -> &str {
    cause.culprit.as_ref().map_or("", |c| &c.name)
}

#[test]
fn a_read_names_directory_and_file() {
    let cause = wait(same, |w| w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT));
    assert_eq!((cause.mechanism, culprit(&cause)), (Mechanism::StorageRead, "/data/train"));
    assert_eq!(cause.chain[0].what, "read of files in /data/train");
    assert_eq!(cause.chain[0].detail.as_deref(), Some("file /data/train/a.jpg"));
    assert_eq!(cause.chain[0].stack[1], "io_schedule");
    let bare = wait(same, |w| w.read(3, IMAGE).interrupt(&[]));
    assert_eq!(bare.mechanism, Mechanism::StorageRead, "without a stack the file's kind decides");
}

#[test]
fn a_fault_names_the_file() {
    let stack = &["io_schedule", "folio_wait_bit_common", "filemap_fault", "handle_mm_fault"];
    let cause = wait(same, |w| w.with(|o| o.file = Some(IMAGE)).kernel(stack).interrupt(DISK_INTERRUPT));
    assert_eq!((cause.mechanism, culprit(&cause)), (Mechanism::StorageFault, "/data/train/a.jpg"));
}

#[test]
fn metadata_write_swap_reclaim_sleep_and_stop() {
    let open = |w: Wait| w.syscall(libc::SYS_openat, [0; 6]).with(|o| o.path_arg = Some("/data/b/c".into()));
    let cause = wait(same, |w| open(w).kernel(&["io_schedule", "bit_wait_io", "ext4_lookup"]));
    assert_eq!((cause.mechanism, culprit(&cause)), (Mechanism::StorageMetadata, "/data/b"));
    let sync =
        wait(same, |w| w.syscall(libc::SYS_fsync, [0; 6]).kernel(&["jbd2_log_wait_commit", "do_fsync"]));
    assert_eq!(sync.mechanism, Mechanism::StorageWrite);
    let swap =
        wait(same, |w| w.kernel(&["io_schedule", "folio_wait_bit", "do_swap_page", "handle_mm_fault"]));
    assert_eq!(swap.mechanism, Mechanism::MemorySwap);
    let reclaim = wait(same, |w| w.kernel(&["io_schedule", "shrink_node", "try_to_free_pages"]));
    assert_eq!(reclaim.mechanism, Mechanism::MemoryReclaim);
    let sleep = wait(same, |w| w.syscall(libc::SYS_clock_nanosleep, [0; 6]).interrupt(TIMER));
    assert_eq!(sleep.mechanism, Mechanism::TimerSleep);
    let stopped = wait(same, |w| w.state(State::Stopped).woken_by(WORKER));
    assert_eq!(stopped.mechanism, Mechanism::ProcessStopped);
}

fn socket(trace: TraceBuilder, state: u8, local: &str, peer: &str) -> TraceBuilder {
    let socket = Socket { family: 2, state, local: local.into(), peer: peer.into() };
    trace.record(Record::File(File { id: 30, mode: 0o140_777, socket: Some(socket), ..File::default() }))
}

#[test]
fn an_outgoing_connection_is_the_network_and_an_accepted_one_is_no_demand() {
    let recv = |w: Wait| {
        w.syscall(libc::SYS_recvfrom, [5, 0, 0, 0, 0, 0]).with(|o| o.file = Some(30)).interrupt(NETWORK)
    };
    let out = wait(|t| socket(t, 1, "10.0.0.1:40000", "10.0.0.2:9000"), recv);
    assert_eq!((out.mechanism, culprit(&out)), (Mechanism::NetworkRead, "10.0.0.2:9000"));
    let listener = Socket { family: 2, state: 10, local: "0.0.0.0:80".into(), peer: String::new() };
    let listening = File { id: 31, mode: 0o140_777, socket: Some(listener), ..File::default() };
    let accepted =
        wait(|t| socket(t, 1, "10.0.0.1:80", "10.0.0.2:50000").record(Record::File(listening.clone())), recv);
    assert_eq!(accepted.mechanism, Mechanism::NoDemand);
    let accept = wait(
        |t| t.record(Record::File(listening)),
        |w| w.syscall(libc::SYS_accept4, [4, 0, 0, 0, 0, 0]).with(|o| o.file = Some(31)).interrupt(NETWORK),
    );
    assert_eq!((accept.mechanism, culprit(&accept)), (Mechanism::NoDemand, "listening socket 0.0.0.0:80"));
}

#[test]
fn a_peer_without_records_is_named() {
    let cause = wait(|t| t.bystander(99, 99, "dbus"), |w| w.read(3, PIPE).woken_by(99));
    assert_eq!((cause.mechanism, culprit(&cause)), (Mechanism::IpcWait, "dbus (process 99)"));
}

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
fn running_is_labelled_by_samples_near_by_or_not_at_all() {
    let python = ledger(trace().samples(FEEDER, 0, 90 * MS, &["libc.so.6!memcpy", "python3.11!eval"]));
    assert_eq!(python.causes[0].mechanism, Mechanism::PreparePython);
    let none = ledger(trace());
    assert_eq!(none.causes[0].mechanism, Mechanism::Unexplained);
    assert!(none.causes[0].note.as_ref().unwrap().contains("sample"));
    let mixed = ledger(trace().samples(FEEDER, 100 * MS, 130 * MS, &["a.so!f"]).samples(
        FEEDER,
        130 * MS,
        200 * MS,
        &["python3!g"],
    ));
    let ns: Vec<_> = mixed.causes.iter().map(|c| (c.mechanism, c.ns)).collect();
    assert_eq!(ns, [(Mechanism::PreparePython, 70 * MS), (Mechanism::PrepareCompute, 30 * MS)]);
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

fn runnable(prepare: impl FnOnce(TraceBuilder) -> TraceBuilder, throttled: bool, cpus: u32) -> Cause {
    let ledger = ledger(prepare(trace()).preempted(FEEDER, 100 * MS, 200 * MS, |o| {
        o.throttled = throttled;
        o.cpus_allowed = cpus;
        o.cpu_mask = [(1 << cpus) - 1, 0, 0, 0];
    }));
    ledger.causes.into_iter().next().unwrap()
}

fn ran(target: bool, comm: &str) -> Record {
    Record::RanInstead(crate::trace::RanInstead {
        span: Span::new(50 * MS, 250 * MS),
        cpu: 0,
        thread: key(77),
        pid: 77,
        comm: comm.into(),
        ns: 90 * MS,
        target,
    })
}

#[test]
fn a_thread_without_a_processor_says_why() {
    let quota = CgroupTick {
        at: 50 * MS,
        path: "/job".into(),
        quota_us: Some(50_000),
        period_us: Some(100_000),
        throttled_count: 3,
        ..CgroupTick::default()
    };
    let throttled = runnable(|t| t.record(Record::CgroupTick(quota)), true, 4);
    assert_eq!(
        (throttled.mechanism, culprit(&throttled)),
        (Mechanism::ScheduleThrottled, "/job (quota of 0.50 processors)")
    );
    let other = runnable(|t| t.record(ran(false, "cron")), false, 4);
    assert_eq!((other.mechanism, culprit(&other)), (Mechanism::ScheduleContention, "cron"));
    let own = runnable(|t| t.record(ran(true, "trainer")), false, 4);
    assert_eq!(own.mechanism, Mechanism::ScheduleOversubscribed);
    let ticks = |idle: u64, steal: u64| {
        move |t: TraceBuilder| {
            let tick = |at, idle, steal| {
                let cpus = (0..4).map(|c| (c, idle, 0, if c == 0 { steal } else { 0 })).collect();
                Record::HostTick(HostTick { at, cpus, pressure_us: None })
            };
            t.record(tick(90 * MS, 0, 0)).record(tick(210 * MS, idle, steal)).record(ran(true, "trainer"))
        }
    };
    let mask = runnable(ticks(110 * MS, 0), false, 1);
    assert_eq!((mask.mechanism, culprit(&mask)), (Mechanism::ScheduleAffinity, "processors 0 of 4"));
    assert_eq!(runnable(ticks(110 * MS, 0), false, 4).mechanism, Mechanism::ScheduleOversubscribed);
    assert_eq!(runnable(ticks(0, 100 * MS), false, 4).mechanism, Mechanism::ScheduleSteal);
    assert_eq!(runnable(same, false, 4).mechanism, Mechanism::Unexplained);
}

#[test]
fn idle_that_nobody_ended() {
    let gap = |timeline: &Timeline| {
        let mut idle = idle(timeline, FEEDER, &[(100 * MS, 200 * MS)]);
        idle.placed[0].feeder = None;
        idle.placed[0].submit = None;
        attribute(timeline, &idle).causes.swap_remove(0)
    };
    let empty = build(TraceBuilder::new(0, 1000 * MS).device(0).thread(5, 5, "sh").records());
    assert_eq!(gap(&empty).mechanism, Mechanism::NoDemand);
    let read = |w: Wait| w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT);
    let unknown = build(trace().wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, read).records());
    assert_eq!(gap(&unknown).mechanism, Mechanism::Unexplained);
    let submitted =
        trace().submits(FEEDER, 5 * MS, 6 * MS, 1).wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, read);
    assert_eq!(gap(&build(submitted.records())).mechanism, Mechanism::StorageRead);
    let accept = |w: Wait| w.syscall(libc::SYS_accept, [3, 0, 0, 0, 0, 0]).interrupt(NETWORK);
    let server = build(trace().wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, accept).records());
    assert_eq!(gap(&server).mechanism, Mechanism::NoDemand);
}

#[test]
fn unplaced_idle_is_launch_bound_only_where_said() {
    let timeline = build(trace().records());
    let unplaced = |launch_bound, ns| UnplacedIdle {
        span: Span::new(0, 500 * MS),
        ns,
        reason: "no silence held it".into(),
        launch_bound,
        feeder: Some(key(FEEDER)),
    };
    let idle = DeviceIdle {
        window: timeline.span,
        busy_ns: 500 * MS,
        idle_ns: 500 * MS,
        unplaced: vec![unplaced(true, 300 * MS), unplaced(false, 200 * MS)],
        ..DeviceIdle::default()
    };
    let causes = attribute(&timeline, &idle).causes;
    let found: Vec<_> = causes.iter().map(|c| (c.mechanism, c.ns)).collect();
    assert_eq!(found, [(Mechanism::LaunchBound, 300 * MS), (Mechanism::Unexplained, 200 * MS)]);
    assert_eq!(causes[1].note.as_deref(), Some("no silence held it"));
}

#[test]
fn without_the_wakers_stack_an_interrupt_is_not_taken_for_a_peer() {
    let bare = |syscall| {
        wait(
            |t| t.samples(WORKER, 0, 300 * MS, &["a.so!f"]),
            move |w| {
                w.futex(0x1, 0).woken_by(WORKER).with(move |o| {
                    let waker = o.waker.as_mut().unwrap();
                    waker.context = WakerContext::Unknown;
                    waker.syscall = syscall;
                })
            },
        )
    };
    assert_eq!(bare(Some(202)).mechanism, Mechanism::PrepareCompute);
    assert_eq!(bare(None).mechanism, Mechanism::Unexplained);
}

#[test]
fn before_a_threads_birth_its_creator_goes_on() {
    let trace = trace()
        .thread(30, 30, "launcher")
        .born(40, 40, "child", 150 * MS, 30)
        .samples(30, 0, 150 * MS, &["python3!spawn"])
        .samples(40, 150 * MS, 200 * MS, &["decode.so!run"])
        .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| w.read(3, PIPE).woken_by(40));
    let ledger = ledger(trace);
    let found: Vec<_> = ledger.causes.iter().map(|c| (c.mechanism, c.ns)).collect();
    assert_eq!(found, [(Mechanism::PreparePython, 50 * MS), (Mechanism::PrepareCompute, 50 * MS)]);
    assert_eq!(ledger.causes[0].chain.len(), 3);
    assert_eq!(ledger.causes[0].chain[1].state, "creator");
}

#[test]
fn a_chain_of_five_links_ends_in_the_disk() {
    let mut trace = trace();
    for tid in 31..=34 {
        trace = trace.thread(tid, tid, "stage");
    }
    let hop = |from: u32| move |w: Wait| w.read(3, PIPE).woken_by(from);
    let ledger = ledger(
        trace
            .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, hop(31))
            .wait(31, 0, 200 * MS, 200 * MS, hop(32))
            .wait(32, 0, 200 * MS, 200 * MS, hop(33))
            .wait(33, 0, 200 * MS, 200 * MS, hop(34))
            .wait(34, 0, 200 * MS, 200 * MS, |w| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT)),
    );
    assert_eq!(ledger.causes.len(), 1, "{:#?}", ledger.causes);
    let cause = &ledger.causes[0];
    assert_eq!(cause.mechanism, Mechanism::StorageRead);
    assert_eq!(cause.chain.iter().map(|l| l.tid).collect::<Vec<_>>(), [FEEDER, 31, 32, 33, 34]);
    assert_eq!(cause.chain[0].what, "waits for stage 31 (pipe read)");
    assert_eq!(cause.pid, Some(34));
}

#[test]
fn a_circle_of_waits_ends_the_walk_and_says_so() {
    let trace = trace()
        .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| w.read(3, PIPE).woken_by(WORKER))
        .thread_with(FEEDER, 11, "helper", |t| t.kind = TargetKind::Inherited)
        .wait(WORKER, 0, 200 * MS, 200 * MS, |w| w.futex(0x1, 0).woken_by(11))
        .wait(11, 0, 200 * MS, 200 * MS, |w| {
            w.syscall(libc::SYS_futex, [2, 128, 2, 0, 0, 0]).woken_by(WORKER)
        });
    let ledger = ledger(trace);
    let cause = &ledger.causes[0];
    assert_eq!((cause.mechanism, cause.leaf), (Mechanism::LockFutex, Mechanism::Unexplained));
    assert!(cause.note.as_ref().unwrap().starts_with("the chain comes back"), "{:?}", cause.note);
}

#[test]
fn workers_of_one_pool_are_one_cause_and_a_hidden_read_is_found() {
    let (read, decode, workers) = (300 * MS, 148 * MS, 4_u32);
    let step = (read + decode) / u64::from(workers);
    let end = 8_000 * MS;
    let mut trace = TraceBuilder::new(0, end)
        .device(0)
        .on_device(0, FEEDER)
        .thread(FEEDER, FEEDER, "trainer")
        .file(IMAGE, "/data/train/a.jpg", |_| ())
        .file(PIPE, "", |f| f.mode = 0o010_600);
    let mut deliveries = Vec::new();
    for worker in 0..workers {
        let tid = WORKER + worker;
        trace = trace.thread_with(tid, tid, "worker", |t| t.ppid = FEEDER);
        let mut at = step * u64::from(worker);
        while at + read + decode < end {
            let disk = |w: Wait| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT);
            trace = trace.wait(tid, at, at + read, at + read, disk);
            trace = trace.samples(tid, at + read, at + read + decode, &["libjpeg.so!idct"]);
            at += read + decode;
            deliveries.push((at, tid));
        }
    }
    deliveries.sort_unstable();
    let mut gaps = Vec::new();
    for pair in deliveries.windows(2) {
        let (from, (at, tid)) = (pair[0].0 + 20 * MS, pair[1]);
        trace = trace.submits(FEEDER, pair[0].0 + MS, pair[0].0 + 2 * MS, 3);
        trace = trace.wait(FEEDER, from, at, at, |w| w.read(3, PIPE).woken_by(tid));
        if at > 2_000 * MS {
            gaps.push((from, at));
        }
    }
    let timeline = build(trace.records());
    let idle = idle(&timeline, FEEDER, &gaps);
    let ledger = attribute(&timeline, &idle);
    assert_eq!(ledger.causes.len(), 2, "{:#?}", ledger.causes);
    let disk = &ledger.causes[0];
    assert_eq!(
        (disk.mechanism, ledger.causes[1].mechanism),
        (Mechanism::StorageRead, Mechanism::PrepareCompute)
    );
    let expected = u128::from(idle.idle_ns) * u128::from(read) / u128::from(read + decode);
    assert!(u128::from(disk.ns).abs_diff(expected) < 1_000, "{} of {}", disk.ns, idle.idle_ns);
    assert!(
        disk.chain[1].detail.as_ref().unwrap().starts_with("4 processes; slowest "),
        "{:?}",
        disk.chain[1]
    );
    assert_eq!(disk.count, u64::try_from(gaps.len()).unwrap());
    assert!(disk.gain_ns > ledger.causes[1].gain_ns, "{:#?}", ledger.causes);
    assert!(disk.note.as_ref().unwrap().contains("operational law"), "{:?}", disk.note);
}
