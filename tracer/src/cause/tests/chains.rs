//! Chains of several links, pools, and gaps that nobody ended.

use super::*;

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
    // A thread of the same process that copied later submitted nothing.
    let copied = trace()
        .thread(FEEDER, 11, "copier")
        .submits(FEEDER, 5 * MS, 6 * MS, 1)
        .copies(11, 0, 50 * MS, 60 * MS, 1, 1)
        .wait(11, 100 * MS, 200 * MS, 200 * MS, |w| w.syscall(libc::SYS_accept, [3, 0, 0, 0, 0, 0]))
        .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, read);
    assert_eq!(gap(&build(copied.records())).mechanism, Mechanism::StorageRead);
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
        in_waits: false,
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

/// A worker process (main 20, queue writer 21) behind a trainer (main 10, index writer 11), as CPython's
/// multiprocessing queues wire them: 40 ms for the index, then 60 ms of reading, then the delivery.
fn queues(index_writer_held: u64) -> Ledger {
    let disk = |w: Wait| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT);
    let asked = 140 * MS - index_writer_held;
    let trace = trace()
        .thread(FEEDER, 11, "trainer")
        .thread(WORKER, 21, "worker")
        .samples(11, 0, 1000 * MS, &["python3!put"])
        // The last items before the gap.
        .wait(FEEDER, 20 * MS, 60 * MS, 60 * MS, |w| w.read(3, PIPE).woken_by(21))
        .submits(FEEDER, 70 * MS, 71 * MS, 1)
        .wait(11, 10 * MS, asked, asked, |w| w.futex(0x11, 0).woken_by(FEEDER))
        .wait(WORKER, 100 * MS, 140 * MS, 140 * MS, |w| w.read(5, 9).woken_by(11))
        .wait(WORKER, 140 * MS, 200 * MS, 200 * MS, disk)
        .wait(21, 61 * MS, 200 * MS, 200 * MS, |w| w.futex(0x21, 0).woken_by(WORKER))
        .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| w.read(3, PIPE).woken_by(21));
    ledger(trace)
}

#[test]
fn a_queue_between_processes_is_followed_through_its_writer_thread() {
    let ledger = queues(MS);
    let cause = &ledger.causes[0];
    assert_eq!((cause.mechanism, cause.ns), (Mechanism::StorageRead, 99_285_714), "{:#?}", ledger.causes);
    assert_eq!(cause.chain.iter().map(|l| l.tid).collect::<Vec<_>>(), [FEEDER, 21, WORKER]);
}

#[test]
fn a_thread_that_held_a_request_for_long_is_not_merely_its_messenger() {
    let ledger = queues(30 * MS);
    assert!(ledger.causes.iter().any(|c| c.mechanism == Mechanism::PreparePython), "{:#?}", ledger.causes);
}

#[test]
fn a_pair_that_hands_over_all_the_time_is_followed_in_time_that_grows_with_it() {
    // Every wait is on a new lock, so that no earlier one is on the same object, and both wait for the other.
    let mut trace = TraceBuilder::new(0, 20_000 * MS)
        .device(0)
        .on_device(0, FEEDER)
        .thread(FEEDER, FEEDER, "trainer")
        .thread(WORKER, WORKER, "worker");
    let mut gaps = Vec::new();
    for turn in 0..20_000_u64 {
        let at = turn * MS;
        let word = 0x1000 + turn * 64;
        let hop = |by| move |w: Wait| w.futex(word, 0).woken_by(by);
        trace = trace.wait(FEEDER, at, at + MS / 2, at + MS / 2, hop(WORKER));
        trace = trace.wait(WORKER, at + MS / 2, at + MS, at + MS, hop(FEEDER));
        gaps.push((at + 1, at + MS / 2));
    }
    let timeline = build(trace.samples(WORKER, 0, 20_000 * MS, &["decode.so!run"]).records());
    let ledger = attribute(&timeline, &idle(&timeline, FEEDER, &gaps));
    let computing: u64 =
        ledger.causes.iter().filter(|c| c.mechanism == Mechanism::PrepareCompute).map(|c| c.ns).sum();
    let idle: u64 = ledger.causes.iter().map(|c| c.ns).sum();
    assert!(computing * 100 >= idle * 99, "{:#?}", ledger.causes);
}

#[test]
fn a_chain_that_reaches_the_look_back_says_so() {
    let end = 100_000 * MS;
    let at = |woken: Ns| {
        let trace = TraceBuilder::new(0, end)
            .device(0)
            .on_device(0, FEEDER)
            .thread(FEEDER, FEEDER, "trainer")
            .thread(WORKER, WORKER, "worker")
            .samples(WORKER, 0, end, &["decode.so!run"])
            .wait(FEEDER, woken - 100 * MS, woken, woken, |w| w.futex(0x1, 0).woken_by(WORKER));
        let timeline = build(trace.records());
        attribute(&timeline, &idle(&timeline, FEEDER, &[(woken - 100 * MS, woken)])).causes.swap_remove(0)
    };
    assert_eq!(at(59_000 * MS).mechanism, Mechanism::PrepareCompute);
    let beyond = at(90_000 * MS);
    assert_eq!(beyond.mechanism, Mechanism::Unexplained);
    assert!(beyond.note.as_ref().unwrap().starts_with("beyond look-back"), "{beyond:#?}");
}

/// Both ends of a loopback connection: the feeder's (file 60) and the service's (file 61).
fn loopback(trace: TraceBuilder) -> TraceBuilder {
    let end = |id, local: &str, peer: &str| {
        let socket = Socket { family: 2, state: 1, local: local.into(), peer: peer.into() };
        Record::File(File { id, mode: 0o140_777, socket: Some(socket), ..File::default() })
    };
    trace.record(end(60, "127.0.0.1:40000", "127.0.0.1:9000")).record(end(
        61,
        "127.0.0.1:9000",
        "127.0.0.1:40000",
    ))
}

#[test]
fn a_chain_crosses_a_socket_to_a_service_on_the_same_host() {
    let receive = |fd, file| {
        move |w: Wait| w.syscall(libc::SYS_recvfrom, [fd, 0, 0, 0, 0, 0]).with(move |o| o.file = Some(file))
    };
    // The service is asked at 100 ms, reads its own disk until 199 ms, and answers at 200 ms.
    let answered = |by_interrupt: bool| {
        ledger(
            loopback(trace())
                .samples(WORKER, 0, 300 * MS, &["service!answer"])
                .wait(WORKER, 0, 100 * MS, 100 * MS, |w| receive(4, 61)(w).woken_by(FEEDER))
                .wait(WORKER, 100 * MS, 199 * MS, 199 * MS, |w| {
                    w.read(5, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT)
                })
                .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| {
                    let wait = receive(3, 60)(w);
                    if by_interrupt { wait.interrupt(NETWORK) } else { wait.woken_by(WORKER) }
                }),
        )
    };
    for by_interrupt in [false, true] {
        let causes = answered(by_interrupt).causes;
        let found: Vec<_> = causes.iter().map(|c| (c.mechanism, c.ns)).collect();
        assert_eq!(found, [(Mechanism::StorageRead, 99 * MS), (Mechanism::PrepareCompute, MS)]);
        assert_eq!(
            causes[0].chain[0].what,
            "waits for worker 20 (recvfrom on a connection to 127.0.0.1:9000)"
        );
    }
}
