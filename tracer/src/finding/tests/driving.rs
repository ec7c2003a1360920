//! What the report says of launches, copies, ranks and running accounts.

use super::*;
use crate::trace::{
    CopyDirection, CudaCall, FaultTotal, FileReads, IoctlTotal, NvidiaIoctl, Reclaim, ReclaimKind,
    SubmitGroup, Watched,
};

const WINDOW: Span = Span { start: 0, end: 1000 * MS };

fn job() -> TraceBuilder {
    TraceBuilder::new(0, 1000 * MS).device(0).on_device(0, 10).thread(10, 10, "trainer")
}

fn placed(gaps: &[(u64, u64)]) -> DeviceIdle {
    let placed: Vec<PlacedIdle> = gaps
        .iter()
        .map(|&(start, end)| PlacedIdle {
            span: Span::new(start, end),
            known: Known::Drained,
            feeder: Some(key(10)),
            submit: Some(end),
            device_inferred: false,
        })
        .collect();
    let idle_ns = placed.iter().map(|p| p.span.len()).sum();
    DeviceIdle { window: WINDOW, idle_ns, busy_ns: 1000 * MS - idle_ns, placed, ..DeviceIdle::default() }
}

fn reported(trace: TraceBuilder, gaps: &[(u64, u64)]) -> Report {
    let timeline = build(trace.records());
    let idle = placed(gaps);
    let ledger = attribute(&timeline, &idle);
    report(&timeline, &[(idle, ledger)])
}

fn gpu_of(trace: TraceBuilder, gaps: &[(u64, u64)]) -> Gpu {
    reported(trace, gaps).gpus.swap_remove(0)
}

#[test]
fn launches_are_told_by_rate_call_and_silence() {
    let timed = SubmitGroup {
        count: 100,
        first: 100 * MS,
        last: 200 * MS,
        timed: 50,
        call_ns: 300_000,
        ..SubmitGroup::default()
    };
    let graph = SubmitGroup {
        family: CudaFamily::GraphLaunch,
        count: 1,
        first: 205 * MS,
        last: 205 * MS,
        ..SubmitGroup::default()
    };
    let trace = job()
        .run(10, vec![timed])
        .run(10, vec![graph])
        .submits(10, 205 * MS + MS / 2, 500 * MS, 99)
        .call(10, CudaFamily::Synchronize, "cuCtxSynchronize", 500 * MS, 700 * MS);
    let report = reported(trace, &[(600 * MS, 1000 * MS)]);
    let told = report.gpus[0].launches.clone().expect("launches were seen");
    assert_eq!((told.kernels, told.graphs, told.call_ns), (199, 1, Some(6_000)));
    assert_eq!(told.per_second, Some(200.0));
    let silences: Vec<_> = told.silences.iter().map(|s| (s.count, s.ns)).collect();
    // Half a millisecond after the graph, 5 ms before it, 100 ms at the start and 500 ms at the end.
    assert_eq!(silences, [(1, MS / 2), (1, 5 * MS), (0, 0), (2, 600 * MS)]);
    assert_eq!(told.host_ahead_ns, Some(100 * MS), "in the call, while the device worked");
    let text = &report.questions[1].text;
    for part in [
        "GPU 0: kernels are not too small",
        "200 launches a second, 1 of 200 of whole graphs, 6.0 us a call",
        "1 of 200 us to 1 ms (0.5 ms in all), 1 of 1 ms to 10 ms (5.0 ms in all), 2 of 100 ms or more (0.60 s in all)",
        "for the device to end its work 10.0 % of the time",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn silences_are_told_only_where_launches_were_watched() {
    let trace = job()
        .watch(0, Watched::All)
        .watch(200 * MS, Watched::Rare)
        .watch(600 * MS, Watched::Nothing)
        .watch(800 * MS, Watched::Burst)
        .submits(10, 0, 100 * MS, 40)
        .submits(10, 850 * MS, 1000 * MS, 30);
    let mut idle = placed(&[(150 * MS, 450 * MS), (550 * MS, 700 * MS)]);
    idle.idle_ns += 50 * MS;
    idle.busy_ns -= 50 * MS;
    idle.unplaced.push(UnplacedIdle {
        span: Span::new(400 * MS, 500 * MS),
        ns: 50 * MS,
        reason: "between submits".into(),
        launch_bound: true,
        in_waits: false,
        feeder: Some(key(10)),
    });
    let timeline = build(trace.records());
    let ledger = attribute(&timeline, &idle);
    let mut report = report(&timeline, &[(idle, ledger)]);
    let note = "For 0.40 s in all, from 0.20 s on, driver calls were watched without launches: to test.";
    assert!(report.notes.iter().any(|n| n == note), "{:#?}", report.notes);
    let gpu = report.gpus.swap_remove(0);
    let told = gpu.launches.expect("launches were seen");
    assert_eq!(told.watched_ns, 400 * MS);
    assert_eq!(
        told.silences.iter().map(|s| (s.count, s.ns)).collect::<Vec<_>>(),
        [(0, 0), (0, 0), (1, 50 * MS), (1, 100 * MS)]
    );
    let expected = Unwatched { no_calls_ns: 100 * MS, no_launches_ns: 300 * MS, extrapolated_ns: 50 * MS };
    assert_eq!(gpu.unwatched, expected);
}

#[test]
fn a_trace_that_says_nothing_of_watching_holds_all_calls() {
    let gpu = gpu_of(job().submits(10, 0, 1000 * MS, 10), &[(0, 100 * MS)]);
    assert_eq!(gpu.unwatched, Unwatched::default());
    assert_eq!(gpu.launches.map(|l| l.watched_ns), Some(1000 * MS));
    let silent = gpu_of(job(), &[(0, 100 * MS)]);
    assert_eq!((silent.launches, silent.copies, silent.collective_ns), (None, None, None));
}

#[test]
fn copies_are_told_by_bytes_memory_gaps_and_what_ran_beside() {
    let to = |at: u64, pinned| {
        move |trace: TraceBuilder| {
            trace.copies(10, 0, at, at, 1, 1_000_000).call_with(
                10,
                CudaFamily::Copy,
                "cuMemcpyHtoD_v2",
                (at, at + 100 * MS),
                move |c| {
                    c.pinned = pinned;
                    c.bytes = 1_000_000;
                    c.direction = Some(CopyDirection::HostToDevice);
                },
            )
        }
    };
    let trace = to(700 * MS, None)(to(300 * MS, Some(false))(to(100 * MS, Some(true))(job())));
    // Of 300 ms in calls 150 ms lie in idle time.
    let report = reported(trace, &[(100 * MS, 200 * MS), (750 * MS, 800 * MS)]);
    let told = report.gpus[0].copies.expect("copies were seen");
    assert_eq!((told.count, told.to_device), (3, CopyWay { count: 3, bytes: 3_000_000 }));
    assert_eq!(told.bytes_per_second, Some(3_000_000.0));
    assert_eq!((told.pinned, told.pageable, told.memory_unknown), (1, 1, 1));
    assert_eq!((told.in_calls_ns, told.with_compute_ns), (300 * MS, 150 * MS));
    assert_eq!((told.mean_gap_ns, told.longest_gap_ns), (Some(200 * MS), Some(300 * MS)));
    let answer = &report.questions[3];
    assert!(answer.known);
    for part in [
        "Copies: 3 to the device (3.0 MB); 3.0 MB a second.",
        "Between two to the device lie 0.20 s on average, 0.30 s at most.",
        "1 pinned, 1 pageable, 1 not seen",
        "50.0 % of the 0.30 s",
        "idle 50.0 ms during blocking copies from memory not seen to be pinned and 0.10 s during others",
    ] {
        assert!(answer.text.contains(part), "{part}: {}", answer.text);
    }
}

#[test]
fn what_was_counted_twice_counts_once_and_what_has_no_group_by_its_call() {
    let named = job().call(10, CudaFamily::Copy, "cuMemcpyDtoH_v2", 100 * MS, 200 * MS);
    let told = gpu_of(named, &[]).copies.expect("a copy was seen");
    assert_eq!((told.count, told.to_host.count, told.bytes_per_second), (1, 1, None));
}

#[test]
fn ranks_that_wait_stand_beside_the_ledger_with_who_came_last() {
    let ranks = |late: u64| {
        let mut trace = job().device(1).on_device(1, 20).thread(20, 20, "trainer");
        trace = trace.submits(10, 0, 0, 1).submits(20, 0, 0, 1);
        for i in 0..4 {
            let at = (100 + 200 * i) * MS;
            trace = trace.all_reduce(10, at, i, 7, (0, 2)).all_reduce(20, at + late, i, 7, (1, 2));
        }
        trace
    };
    let gpu = gpu_of(ranks(30 * MS), &[(110 * MS, 120 * MS)]);
    // No kernel waits while the device is idle.
    assert_eq!(gpu.collective_ns, Some(110 * MS));
    let told = gpu.collectives.expect("collectives were seen");
    assert_eq!((told.unknown_reason, told.operations), (None, 4));
    assert_eq!(told.last, [LastRank { rank: 1, pid: 20, operations: 4, behind_ns: 120 * MS }]);
    assert_eq!(gpu.causes.iter().map(|c| c.ns).sum::<u64>(), gpu.idle_ns);
    let together = gpu_of(ranks(0), &[]).collectives.expect("collectives were seen");
    assert!(together.last.is_empty(), "nobody is late");
}

/// 600 ms of a wait in which `frames` are the kernel's.
fn waiting(trace: TraceBuilder, frames: &[&str]) -> Finding {
    let trace = trace
        .file(7, "/data/a", |_| ())
        .wait(10, 100 * MS, 700 * MS, 700 * MS, |w| w.read(3, 7).kernel(frames).interrupt(&["bio_endio"]));
    let mut findings = reported(trace, &[(100 * MS, 700 * MS)]).findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.swap_remove(0)
}

fn says(finding: &Finding, line: &str) {
    assert!(finding.evidence.iter().any(|e| e == line), "{line}: {:#?}", finding.evidence);
}

#[test]
fn memory_findings_tell_pages_and_faults() {
    let reclaim = |kind, ns: u64, pages| {
        Record::Reclaim(Reclaim {
            thread: key(10),
            pid: 10,
            kind,
            span: Span::new(200 * MS, 300 * MS),
            count: 2,
            ns,
            pages,
        })
    };
    let faults = FaultTotal { span: Span::new(0, 500 * MS), pid: 10, minor: 5000, major: 5 };
    let trace = job()
        .record(reclaim(ReclaimKind::Direct, 40 * MS, 320))
        .record(reclaim(ReclaimKind::Compaction, 10 * MS, 0))
        .record(Record::FaultTotal(faults));
    let finding = waiting(trace, &["schedule", "io_schedule_timeout", "shrink_node", "try_to_free_pages"]);
    assert_eq!(finding.mechanism, Mechanism::MemoryReclaim);
    says(
        &finding,
        "Threads freed memory themselves, as the host had none 2 times, 40.0 ms in all, 320 pages in all.",
    );
    says(&finding, "Threads compacted memory 2 times, 10.0 ms in all.");
    says(&finding, "Page faults: 10000 minor and 10.0 major (that waited for a file or for swap) a second.");
}

#[test]
fn storage_findings_tell_reads_and_how_long_they_were_watched() {
    let reads = FileReads {
        span: Span::new(0, 100 * MS),
        pid: 10,
        file: 7,
        reads: 50,
        bytes: 5_000_000,
        ns: 10 * MS,
        histogram: [0; 24],
    };
    let trace = job().record(Record::FileReads(reads));
    let finding = waiting(trace, &["schedule", "io_schedule", "folio_wait_bit_common", "filemap_read"]);
    assert_eq!(finding.mechanism, Mechanism::StorageRead);
    says(
        &finding,
        "50 reads of 1 file, 100.0 KB and 0.2 ms each on average; 500 reads and 50.0 MB a second (watched for \
         0.10 s of 1.00 s).",
    );
}

#[test]
fn driver_findings_tell_the_commands_that_took_longest() {
    let mut trace = job().call(10, CudaFamily::Free, "cuMemFree_v2", 100 * MS, 700 * MS);
    for i in 0..7_u32 {
        trace = trace.record(Record::IoctlTotal(IoctlTotal {
            span: WINDOW,
            pid: 10,
            major: 195,
            ioctl: NvidiaIoctl { command: 0xc020_462a, inner: Some(0x2080_1300 + i) },
            count: 3,
            ns: u64::from(i + 1) * MS,
            longest_ns: MS,
            histogram: [0; 24],
        }));
    }
    let mut findings = reported(trace, &[(100 * MS, 700 * MS)]).findings;
    let finding = findings.swap_remove(0);
    assert_eq!(finding.mechanism, Mechanism::DriverAlloc);
    says(&finding, "Driver command RM_CONTROL 2080:1306: 3 calls, 7.0 ms in all, 1.0 ms at most.");
    says(&finding, "And 2 driver commands that took less.");
}

#[test]
fn a_peer_finding_tells_the_rank_and_its_own_first_cause() {
    let trace = job()
        .device(1)
        .on_device(1, 20)
        .thread(20, 20, "trainer")
        .submits(20, 10 * MS, 11 * MS, 1)
        .all_reduce(10, 90 * MS, 0, 7, (0, 2))
        .all_reduce(20, 95 * MS, 0, 7, (1, 2))
        .file(7, "/data/a", |_| ())
        .file(8, "", |f| {
            f.mode = 0o010_600;
            f.path = None;
        })
        .wait(20, 50 * MS, 690 * MS, 690 * MS, |w| {
            w.read(3, 7)
                .kernel(&["schedule", "io_schedule", "folio_wait_bit_common", "filemap_read"])
                .interrupt(&["bio_endio"])
        })
        .wait(10, 100 * MS, 700 * MS, 700 * MS, |w| w.read(4, 8).woken_by(20));
    let mut findings = reported(trace, &[(100 * MS, 700 * MS)]).findings;
    let finding = findings.swap_remove(0);
    assert_eq!(finding.mechanism, Mechanism::PeerCollective);
    says(
        &finding,
        "Rank 1 (pid 20) came last in 1 of 1 collective operations, 5.0 ms after the first rank on average.",
    );
    assert!(
        finding
            .evidence
            .iter()
            .any(|e| e
                .contains("waiting for rank 1 (pid 20, GPU 1), that one's own first cause is storage.read")),
        "{:#?}",
        finding.evidence
    );
}

#[test]
fn calls_are_told_by_their_own_time_where_they_were_seen_to_return() {
    let alloc = |c: &mut CudaCall| c.probe_ns = 100 * MS;
    let by_next = |c: &mut CudaCall| c.exit_by_next = true;
    let trace = job()
        .submits(10, 50 * MS, 50 * MS, 1)
        .call_with(10, CudaFamily::Allocate, "cuMemAlloc_v2", (100 * MS, 500 * MS), alloc)
        .submits(10, 500 * MS, 500 * MS, 1)
        .call_with(10, CudaFamily::Synchronize, "cuCtxSynchronize", (600 * MS, 700 * MS), by_next);
    let findings = reported(trace, &[(100 * MS, 500 * MS)]).findings;
    assert_eq!(findings[0].mechanism, Mechanism::DriverAlloc, "{findings:#?}");
    for line in [
        "1 call of family Allocate, 1.0 a second, 0.30 s each on average.",
        "1 call of family Synchronize, 1.0 a second, whose returns were not seen.",
    ] {
        assert!(findings[0].evidence.iter().any(|e| e == line), "{:#?}", findings[0].evidence);
    }
}
