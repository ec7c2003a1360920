//! Threads in each other's way: teams at a barrier, locks, limits of their groups.

use super::*;

/// Spins in the OpenMP runtime from 0 to 300 ms, with the worker `member` of its process.
fn spinning(member: u32) -> TraceBuilder {
    trace()
        .thread(FEEDER, member, "trainer")
        .samples(FEEDER, 0, 300 * MS, &["libgomp.so.1!gomp_team_barrier_wait_end", "blas.so!solve"])
        .samples(member, 0, 50 * MS, &["solver.so!row", "libgomp.so.1!gomp_thread_start"])
}

#[test]
fn spinning_at_a_barrier_is_waiting_for_the_last_of_the_team() {
    let work: &[&str] = &["solver.so!row", "libgomp.so.1!gomp_thread_start"];
    let working = ledger(spinning(12).samples(12, 50 * MS, 300 * MS, work));
    assert_eq!((working.causes[0].mechanism, working.causes[0].ns), (Mechanism::PrepareCompute, 100 * MS));
    assert_eq!(culprit(&working.causes[0]), "row (solver.so)");
    let chain: Vec<_> = working.causes[0].chain.iter().map(|l| (l.tid, l.state.as_str())).collect();
    assert_eq!(chain, [(FEEDER, "spinning"), (12, "running")]);
    let reading = spinning(12)
        .wait(12, 60 * MS, 290 * MS, 290 * MS, |w| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT));
    assert_eq!(ledger(reading).causes[0].mechanism, Mechanism::StorageRead);
    let ran = Record::RanInstead(RanInstead {
        span: Span::new(50 * MS, 250 * MS),
        cpu: 0,
        thread: key(FEEDER),
        pid: FEEDER,
        comm: "trainer".into(),
        ns: 190 * MS,
        target: true,
    });
    let queued = spinning(12).preempted(12, 60 * MS, 290 * MS, |o| o.cpus_allowed = 4).record(ran);
    assert_eq!(ledger(queued).causes[0].mechanism, Mechanism::ScheduleOversubscribed);
    let alone = trace().samples(FEEDER, 0, 300 * MS, &["libgomp.so.1!gomp_team_barrier_wait_end"]);
    let alone = ledger(alone);
    assert_eq!(alone.causes[0].mechanism, Mechanism::Unexplained);
    assert!(alone.causes[0].note.as_ref().unwrap().contains("barrier"), "{:?}", alone.causes[0].note);
}

#[test]
fn a_large_team_that_spins_all_the_time_is_followed_in_time_that_grows_with_it() {
    let (spin, work): (&[&str], &[&str]) =
        (&["libgomp.so.1!gomp_team_barrier_wait_end"], &["solver.so!row", "libgomp.so.1!gomp_thread_start"]);
    let mut trace = trace();
    for tid in [FEEDER, 41, 42, 43, 44, 45, 46, 47, 48, 49] {
        trace = trace.thread(FEEDER, tid, "trainer");
        for turn in 0..50_u64 {
            let (start, end) = (turn * 20 * MS, (turn + 1) * 20 * MS);
            let samples = if (turn + u64::from(tid)).is_multiple_of(10) { work } else { spin };
            trace =
                trace.samples(tid, start, end - 2 * MS, samples).preempted(tid, end - 2 * MS, end, |_| ());
        }
    }
    let causes = ledger(trace).causes;
    assert!(causes.iter().any(|c| c.mechanism == Mechanism::PrepareCompute), "{causes:#?}");
}

#[test]
fn a_mathematical_library_that_computes_does_not_spin() {
    let blas = trace().samples(FEEDER, 0, 300 * MS, &["libopenblas.so.0!dgemm_kernel"]);
    assert_eq!(ledger(blas).causes[0].mechanism, Mechanism::PrepareCompute);
}

/// A mutex that the worker keeps for 20 ms of every 100, with a wait for it at the start of each.
#[test]
fn who_holds_a_lock_is_asked_only_for_what_it_did_since_it_took_it() {
    let mutex = |w: Wait| w.syscall(libc::SYS_futex, [0x500, 128, 2, 0, 0, 0]);
    let trace = trace()
        .thread(FEEDER, 12, "holder")
        .wait(12, 50 * MS, 180 * MS, 180 * MS, |w| mutex(w).woken_by(WORKER))
        .samples(12, 0, 50 * MS, &["before.so!f"])
        .samples(12, 180 * MS, 300 * MS, &["held.so!f"])
        .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| mutex(w).woken_by(12));
    let causes = ledger(trace).causes;
    let found: Vec<_> = causes.iter().map(|c| (c.mechanism, c.leaf, culprit(c))).collect();
    assert_eq!(found, [(Mechanism::LockFutex, Mechanism::PrepareCompute, "held by holder")]);
    assert_eq!(causes[0].chain[1].what, "runs f (held.so)");
}

#[test]
fn threads_that_hand_a_lock_round_are_followed_in_time_that_grows_with_their_waits() {
    let mutex = |w: Wait| w.syscall(libc::SYS_futex, [0x500, 128, 2, 0, 0, 0]);
    let mut trace = trace();
    let threads = [FEEDER, 11, 12, 13, 14];
    for &tid in &threads[1..] {
        trace = trace.thread(FEEDER, tid, "holder");
    }
    // Each waits for the one before it, 2 ms at a time, for nearly all of the second.
    for (i, &tid) in threads.iter().enumerate() {
        let before = threads[(i + 4) % 5];
        for round in 0..80_u64 {
            let woken = 10 * MS + round * 12 * MS + i as u64 * 2 * MS;
            trace = trace.wait(tid, woken - 9 * MS, woken, woken, |w| mutex(w).woken_by(before));
        }
    }
    let ledger = ledger(trace);
    let locked: u64 =
        ledger.causes.iter().filter(|c| c.mechanism == Mechanism::LockFutex).map(|c| c.ns).sum();
    assert!(locked >= 60 * MS, "{:#?}", ledger.causes);
    // Who held it is the end: nobody is asked for what it did before it had the lock.
    assert!(ledger.causes.iter().all(|c| c.chain.len() <= 3), "{:#?}", ledger.causes);
}

#[test]
fn reclaim_names_the_group_whose_limit_was_hit_and_quotas_hold_from_above() {
    let limit = |path: &str, hits| {
        let tick =
            CgroupTick { at: 50 * MS, path: path.into(), memory_limit_hits: hits, ..CgroupTick::default() };
        move |t: TraceBuilder| t.record(Record::CgroupTick(tick))
    };
    let stack: &[&str] = &["shrink_lruvec", "try_to_free_mem_cgroup_pages", "filemap_add_folio"];
    let reclaim = wait(limit("/pod", 7), |w| w.kernel(stack).interrupt(TIMER));
    assert_eq!((reclaim.mechanism, culprit(&reclaim)), (Mechanism::MemoryReclaim, "/pod"));
    let unlimited = wait(limit("/pod", 0), |w| w.kernel(stack).interrupt(TIMER));
    assert_eq!((unlimited.mechanism, unlimited.culprit), (Mechanism::MemoryReclaim, None));
}

#[test]
fn what_a_signal_cut_short_is_no_request_and_no_delivery() {
    let stopper = 30;
    let stop = |w: Wait| w.with(|o| o.state = State::Stopped).kernel(&["do_signal_stop"]).woken_by(stopper);
    let signalled =
        |w: Wait| w.read(3, PIPE).woken_by(stopper).with(|o| o.waker.as_mut().unwrap().syscall = Some(62));
    let trace = trace()
        .thread(stopper, stopper, "stopper")
        .samples(stopper, 0, 500 * MS, &["stopper.so!f"])
        .wait(WORKER, 50 * MS, 110 * MS, 110 * MS, signalled)
        .wait(WORKER, 110 * MS, 199 * MS, 199 * MS, stop)
        .wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, |w| w.read(4, PIPE).woken_by(WORKER));
    let causes = ledger(trace).causes;
    let stopped = causes.iter().find(|c| c.mechanism == Mechanism::ProcessStopped).map_or(0, |c| c.ns);
    assert!(stopped > 95 * MS, "{causes:#?}");
    assert!(causes.iter().all(|c| c.chain.iter().all(|l| l.tid != stopper)), "{causes:#?}");
}

#[test]
fn short_waits_in_faults_are_for_what_the_long_ones_are_for() {
    let stack: &[&str] = &["io_schedule", "folio_wait_bit_common", "shmem_swapin_folio", "handle_mm_fault"];
    let mapped: &[&str] = &["io_schedule", "folio_wait_bit_common", "filemap_fault", "handle_mm_fault"];
    let faulting = |kernel: &'static [&'static str]| {
        let trace = trace()
            .wait(FEEDER, 10 * MS, 20 * MS, 20 * MS, |w| w.kernel(kernel).interrupt(DISK_INTERRUPT))
            .total(FEEDER, None, 100 * MS, 200 * MS, |t| {
                (t.syscall, t.blocked_ns, t.count) = (-1, 100 * MS, 2_000);
            });
        ledger(trace).causes.swap_remove(0).mechanism
    };
    assert_eq!(faulting(stack), Mechanism::MemorySwap);
    assert_eq!(faulting(mapped), Mechanism::StorageFault);
}

#[test]
fn short_waits_are_over_when_their_thread_runs_unless_others_ran_instead() {
    let swapped: &[&str] = &["io_schedule", "folio_wait_bit_common", "do_swap_page", "handle_mm_fault"];
    let of = |ran: u64| {
        let instead = RanInstead {
            span: Span::new(50 * MS, 250 * MS),
            cpu: 0,
            thread: key(99),
            pid: 99,
            comm: "other".into(),
            ns: 2 * ran,
            target: false,
        };
        let trace = trace()
            .wait(FEEDER, 10 * MS, 20 * MS, 20 * MS, |w| w.kernel(swapped).interrupt(DISK_INTERRUPT))
            .total(FEEDER, None, 100 * MS, 200 * MS, |t| {
                (t.syscall, t.blocked_ns, t.runnable_ns, t.count) = (-1, 60 * MS, 40 * MS, 2_000);
            })
            .record(Record::RanInstead(instead));
        let causes = ledger(trace).causes;
        causes.into_iter().map(|c| (c.mechanism, c.ns)).collect::<Vec<_>>()
    };
    assert_eq!(of(0), [(Mechanism::MemorySwap, 100 * MS)]);
    assert_eq!(of(40 * MS), [(Mechanism::MemorySwap, 60 * MS), (Mechanism::ScheduleContention, 40 * MS)]);
    assert_eq!(of(10 * MS), [(Mechanism::MemorySwap, 90 * MS), (Mechanism::ScheduleContention, 10 * MS)]);
}

/// Ten steps of 100 ms, in half of each of which the feeder waits as `change` says.
fn waiting_half_the_time(trace: TraceBuilder, change: impl Fn(Wait) -> Wait) -> Vec<Cause> {
    let mut trace = trace.samples(FEEDER, 0, 1000 * MS, &["decode.so!run"]);
    let mut gaps = Vec::new();
    for step in 0..10 {
        let start = step * 100 * MS;
        trace = trace.wait(FEEDER, start, start + 50 * MS, start + 50 * MS, &change);
        gaps.push((start, start + 50 * MS));
    }
    let timeline = build(trace.records());
    attribute(&timeline, &idle(&timeline, FEEDER, &gaps)).causes
}

#[test]
fn the_feeding_thread_is_not_starting_because_it_wakes_nobody() {
    let exec = Record::ThreadExec(ThreadExec {
        at: MS,
        key: key(FEEDER),
        pid: FEEDER,
        image: 1,
        comm: "python3".into(),
    });
    let read = |w: Wait| w.read(3, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT);
    let causes = waiting_half_the_time(trace().record(exec), read);
    assert_eq!(causes[0].mechanism, Mechanism::StorageRead);
    assert!(causes[0].gain_ns > 400 * MS, "{causes:#?}");
}

#[test]
fn without_swapping_the_disk_is_not_the_limit() {
    let stack: &[&str] =
        &["schedule", "io_schedule", "folio_wait_bit_common", "do_swap_page", "handle_mm_fault"];
    let block = Record::Block(BlockTotal {
        span: Span::new(0, 1000 * MS),
        dev: 1,
        busy_ns: 490 * MS,
        reads: 10,
        ..BlockTotal::default()
    });
    let causes = waiting_half_the_time(trace().record(block), |w| w.kernel(stack).interrupt(DISK_INTERRUPT));
    assert_eq!(causes[0].mechanism, Mechanism::MemorySwap);
    assert!(causes[0].gain_ns > 400 * MS, "{causes:#?}");
}
