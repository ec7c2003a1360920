//! Each leaf of the taxonomy.

use super::*;

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
fn a_process_that_serves_and_asks_is_not_said_to_lack_demand() {
    let listener = Socket { family: 2, state: 10, local: "0.0.0.0:80".into(), peer: String::new() };
    let listening = File { id: 31, mode: 0o140_777, socket: Some(listener), ..File::default() };
    let serving = |t: TraceBuilder| {
        t.record(Record::File(listening.clone())).wait(FEEDER, 10 * MS, 20 * MS, 20 * MS, |w| {
            w.syscall(libc::SYS_accept4, [4, 0, 0, 0, 0, 0]).with(|o| o.file = Some(31)).interrupt(NETWORK)
        })
    };
    let asking = |t: TraceBuilder| {
        socket(t, 1, "10.0.0.1:40000", "10.0.0.2:9000").wait(FEEDER, 30 * MS, 40 * MS, 40 * MS, |w| {
            w.syscall(libc::SYS_recvfrom, [5, 0, 0, 0, 0, 0]).with(|o| o.file = Some(30)).interrupt(NETWORK)
        })
    };
    let epoll = |w: Wait| w.syscall(libc::SYS_epoll_wait, [6, 0, 0, 0, 0, 0]).interrupt(NETWORK);
    assert_eq!(wait(serving, epoll).mechanism, Mechanism::NoDemand);
    assert_eq!(wait(|t| asking(serving(t)), epoll).mechanism, Mechanism::Unexplained);
    // Of `poll` the descriptor is known.
    let poll = |w: Wait| {
        w.syscall(libc::SYS_poll, [0, 1, 0, 0, 0, 0]).with(|o| o.file = Some(30)).interrupt(NETWORK)
    };
    let asked = wait(|t| asking(serving(t)), poll);
    assert_eq!((asked.mechanism, culprit(&asked)), (Mechanism::NetworkRead, "10.0.0.2:9000"));
}

#[test]
fn a_worker_of_io_uring_that_reads_is_in_no_fault() {
    let worker = |comm: &str| {
        let trace = trace()
            .thread(FEEDER, 12, comm)
            .wait(12, 50 * MS, 199 * MS, 199 * MS, |w| w.kernel(PAGE).interrupt(DISK_INTERRUPT));
        let ring = |w: Wait| w.syscall(libc::SYS_io_uring_enter, [4, 0, 1, 1, 0, 0]).woken_by(12);
        ledger(trace.wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, ring)).causes.swap_remove(0).mechanism
    };
    assert_eq!(worker("iou-wrk-10"), Mechanism::StorageRead);
    // Of a wait of which neither end was seen, that no call is known does not make it a fault.
    let open =
        wait(same, |w| w.with(|o| (o.cut_start, o.cut_end, o.woken, o.waker) = (true, true, None, None)));
    assert_eq!(open.mechanism, Mechanism::Unexplained);
    assert_eq!(worker("reader"), Mechanism::StorageFault);
}

#[test]
fn a_peer_without_records_is_named() {
    let cause = wait(|t| t.bystander(99, 99, "dbus"), |w| w.read(3, PIPE).woken_by(99));
    assert_eq!((cause.mechanism, culprit(&cause)), (Mechanism::IpcWait, "dbus (process 99)"));
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

fn runnable(prepare: impl FnOnce(TraceBuilder) -> TraceBuilder, throttled: bool, cpus: u32) -> Cause {
    let ledger = ledger(prepare(trace()).preempted(FEEDER, 100 * MS, 200 * MS, |o| {
        o.throttled = throttled;
        o.cpus_allowed = cpus;
        o.cpu_mask = [(1 << cpus) - 1, 0, 0, 0];
    }));
    ledger.causes.into_iter().next().unwrap()
}

fn ran(own: bool, comm: &str) -> Record {
    Record::RanInstead(RanInstead {
        span: Span::new(50 * MS, 250 * MS),
        cpu: 0,
        thread: key(77),
        pid: if own { FEEDER } else { 77 },
        comm: comm.into(),
        ns: 90 * MS,
        target: own,
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
    assert_eq!((other.mechanism, culprit(&other)), (Mechanism::ScheduleContention, "cron (pid 77)"));
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
