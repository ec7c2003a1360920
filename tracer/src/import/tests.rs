use proptest::prelude::*;

use super::testing::{Written, gzip, import};
use super::{ImportError, Imported};
use crate::timeline::{Timeline, build};
use crate::trace::{CopyDirection, CudaCall, CudaFamily, LossCause, Reading, Record, SubmitGroup, Submits};

/// One thread: an operator with three launches, a copy to the host, a synchronise, and later another launch.
pub(super) fn small() -> Written {
    let mut written = Written::default();
    written.host("user_annotation", 7, "step", 0, 40_000, "");
    written.op(7, "aten::mm", 100, 20_000);
    for i in 0..3 {
        written.launch(7, if i == 2 { "relu" } else { "gemm" }, 7, 200 + i * 20, 230 + i * 1000, 900);
    }
    let copy = written.call(7, "cudaMemcpyAsync", 300, 2900);
    written.device(copy, "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, (3130, 40), r#","bytes":4096"#);
    let wait = written.call(7, "cudaStreamSynchronize", 3210, 20);
    written.device(wait, "cuda_sync", "Stream Sync", 7, (3210, 20), "");
    written.launch(7, "gemm", 7, 30_000, 30_020, 500);
    written.call(7, "cudaStreamIsCapturing", 30_100, 1);
    written
}

pub(super) fn records(written: &Written) -> Vec<Record> {
    import(written.json().as_bytes()).unwrap().0
}

pub(super) fn submits(records: &[Record]) -> Vec<&Submits> {
    records.iter().filter_map(|r| if let Record::Submits(s) = r { Some(s) } else { None }).collect()
}

fn calls(records: &[Record]) -> Vec<&CudaCall> {
    records.iter().filter_map(|r| if let Record::CudaCall(c) = r { Some(c) } else { None }).collect()
}

fn readings(records: &[Record]) -> Vec<&Reading> {
    records.iter().filter_map(|r| if let Record::Reading(r) = r { Some(r) } else { None }).collect()
}

fn thread(timeline: &Timeline) -> &crate::timeline::Thread {
    timeline.threads.values().next().unwrap()
}

#[test]
fn calls_become_runs_with_groups_and_calls_that_lasted_or_synchronised() {
    let records = records(&small());
    assert!(matches!(records.first(), Some(Record::Host(_))));
    assert!(matches!(records.last(), Some(Record::End(_))));
    let runs = submits(&records);
    let counts: Vec<_> = runs.iter().map(|r| (r.launches, r.copies, r.last - r.first)).collect();
    assert_eq!(counts, [(3, 1, 40_000), (1, 0, 0)]);
    let groups: Vec<_> =
        runs[0].groups.iter().map(|g| (g.family, g.count, g.stream, g.grid, g.bytes, g.direction)).collect();
    assert_eq!(
        groups,
        [
            (CudaFamily::Launch, 2, 7, [8, 1, 1], 0, None),
            (CudaFamily::Launch, 1, 7, [8, 1, 1], 0, None),
            (CudaFamily::Copy, 1, 7, [0; 3], 4096, Some(CopyDirection::DeviceToHost)),
        ]
    );
    let function = |g: &SubmitGroup| g.function;
    assert_eq!(function(&runs[0].groups[0]), function(&runs[1].groups[0]), "one name, one function");
    assert_ne!(function(&runs[0].groups[0]), function(&runs[0].groups[1]));
    let seen: Vec<_> = calls(&records).iter().map(|c| (c.name.as_str(), c.stream, c.pinned)).collect();
    assert_eq!(
        seen,
        [("cuMemcpyDtoHAsync_v2", Some(7), Some(false)), ("cuStreamSynchronize", Some(7), None)]
    );
}

#[test]
fn times_keep_their_distances_to_the_nanosecond() {
    let records = records(&small());
    let (host, run) = (&records[0], submits(&records)[0]);
    let Record::Host(host) = host else { panic!("{host:?}") };
    assert_eq!(run.first - host.start_ns, 200_000);
    assert_eq!(host.start_unix_ns, super::testing::START_US * 1000 + 250);
    // The device's clock has no quarter of a microsecond.
    assert_eq!(readings(&records)[0].span.start - host.start_ns, 229_750);
}

#[test]
fn operators_are_stacks_with_names_and_samples() {
    let timeline = build(records(&small()));
    let thread = thread(&timeline);
    let frames = |id| -> Vec<String> { timeline.frames(id).into_iter().map(|f| f.name).collect() };
    assert_eq!(frames(thread.submits[0].user_stack), ["aten::mm", "step"]);
    assert_eq!(frames(thread.submits[1].user_stack), ["step"]);
    // 40 ms at 99 a second.
    assert_eq!(thread.samples.len(), 4);
    assert_eq!(frames(thread.samples[3].user_stack), ["step"]);
    assert_eq!(thread.pid, 100);
}

#[test]
fn a_window_is_read_as_a_whole_percent() {
    let records = records(&small());
    // Kernels at 230, 1230 and 2230 for 900 us each, then one at 30,020.
    let percents: Vec<f64> = readings(&records).iter().filter_map(|r| r.busy_percent).collect();
    assert_eq!(percents.len(), 31);
    assert_eq!(percents[..4], [90.0, 90.0, 90.0, 0.0]);
    let last = readings(&records)[30];
    // From 30,230 to where the last kernel ends, all of it busy.
    assert_eq!((last.span.len(), last.busy_percent), (290_000, Some(100.0)));
}

#[test]
fn the_order_of_the_events_and_the_compression_change_nothing() {
    let written = small();
    let plain = records(&written);
    let mut reversed = written.clone();
    reversed.events.reverse();
    assert!(records(&reversed) == plain);
    assert!(import(&gzip(written.json().as_bytes())).unwrap().0 == plain);
    let list = format!("[{}]", written.events.join(","));
    // Without the head the device has no name.
    assert_eq!(import(list.as_bytes()).unwrap().0.len(), plain.len());
}

#[test]
fn a_file_that_ends_early_gives_what_is_there_and_says_so() {
    let whole = small().json();
    let (full, _) = import(whole.as_bytes()).unwrap();
    let mut cut_ones = 0;
    for end in (0..whole.trim_end().len()).step_by(7) {
        match import(&whole.as_bytes()[..end]) {
            Ok((records, imported)) => {
                cut_ones += 1;
                assert_eq!(imported.cut.as_deref(), Some("the file ends in the middle"), "at {end}");
                assert!(records.len() <= full.len() + 2);
                assert!(!records.iter().any(|r| matches!(r, Record::End(_))));
                let lost = |r: &Record| matches!(r, Record::Loss(l) if l.cause == LossCause::Damaged);
                assert!(records.iter().any(lost), "at {end}");
                assert!(imported.lacks.iter().any(|l| l.what == "the recording's end"));
            }
            Err(ImportError::NotARecording(_)) => {}
            Err(other) => panic!("at {end}: {other}"),
        }
    }
    assert!(cut_ones > 100, "{cut_ones}");
}

#[test]
fn a_compressed_file_that_ends_early_gives_what_is_there() {
    let mut written = Written::default();
    for i in 0..20_000 {
        written.launch(7, &format!("k{}", i * 7919 % 1009), 7, i * 30, i * 30 + 10, 15);
    }
    let whole = gzip(written.json().as_bytes());
    let (records, imported) = import(&whole[..whole.len() / 2]).unwrap();
    assert_eq!(imported.cut.as_deref(), Some("the file ends in the middle"));
    let launches: u64 = submits(&records).iter().map(|s| s.launches).sum();
    assert!((5_000..15_000).contains(&launches), "{launches}");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0x5a);
    let (records, imported) = import(&damaged).unwrap();
    assert!(imported.cut.is_some());
    assert!(!submits(&records).is_empty());
}

#[test]
fn what_is_no_recording_is_refused_in_one_line() {
    let not = [
        &b""[..],
        b"   \n",
        b"hello",
        b"\x00\x01\x02",
        b"PK\x03\x04",
        b"\x1f\x8b",
        b"\x1f\x8bnot really",
        b"{}",
        b"[]",
        b"{\"traceEvents\":[]}",
        b"{\"traceEvents\":7}",
        b"{\"traceEvents\":{\"ph\":\"X\"}}",
        b"{\"a\":[1,2,3]}",
        b"[1,2,3]",
        b"{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_name\"}]}",
        b"{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"something\",\"ts\":1,\"dur\":1}]}",
        b"{\"traceEvents",
        b"nul",
    ];
    for bytes in not {
        match import(bytes) {
            Err(error @ ImportError::NotARecording(_)) => {
                let line = error.to_string();
                assert!(line.starts_with("not a profiler's recording: "), "{line}");
                assert!(!line.contains('\n'), "{line}");
            }
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
        }
    }
}

#[test]
fn one_bad_event_does_not_spoil_the_others() {
    let good = records(&small()).len();
    for (bad, negative) in [
        ("7", 0),
        ("null", 0),
        ("[]", 0),
        (r#"{"name":"no phase"}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":7,"pid":1,"tid":1,"ts":1,"dur":1}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":"x","tid":1,"ts":1,"dur":1}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1e300,"dur":1}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":9223372036854775807,"dur":1}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":5,"dur":1}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1700000000000000,"dur":1e15}"#, 0),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1700000000000000,"dur":-4}"#, 1),
        (
            r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1700000000000000,"dur":9,"args":[1]}"#,
            0,
        ),
        (
            r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1700000000000000,"dur":9,"args":{"device":99999999}}"#,
            0,
        ),
    ] {
        let mut written = small();
        written.events.insert(3, bad.into());
        let (records, Imported { tally, cut, .. }) = import(written.json().as_bytes()).unwrap();
        assert_eq!(cut, None, "{bad}");
        assert_eq!((tally.malformed, tally.negative), (1 - negative, negative), "{bad}");
        // One more: what was lost.
        assert_eq!(records.len(), good + 1, "{bad}");
    }
}

#[test]
fn a_recording_of_the_processor_only_says_so() {
    let mut written = Written::default();
    written.op(7, "aten::mm", 0, 30_000);
    let (records, imported) = import(written.json().as_bytes()).unwrap();
    let lacks: Vec<&str> = imported.lacks.iter().map(|l| l.what).collect();
    assert_eq!(lacks, ["scheduling", "device activity", "CUDA calls", "Python functions"]);
    let rows = records.iter().filter(|r| matches!(r, Record::Probe(p) if !p.attached)).count();
    assert_eq!(rows, lacks.len());
    let device = |r: &Record| matches!(r, Record::Device(_) | Record::Reading(_) | Record::DeviceProcess(_));
    assert!(!records.iter().any(device));
    assert_eq!(thread(&build(records)).samples.len(), 3);
}

#[test]
fn the_same_thread_number_in_two_processes_is_two_threads() {
    let mut written = small();
    let other: Vec<String> =
        written.events.iter().map(|e| e.replace(r#""pid":100"#, r#""pid":200"#)).collect();
    let host = |e: &&String| e.contains(r#""pid":200"#);
    written.events.extend(other.iter().filter(host).cloned());
    let (records, imported) = import(written.json().as_bytes()).unwrap();
    let timeline = build(records);
    assert_eq!(timeline.threads.values().map(|t| t.pid).collect::<Vec<_>>(), [100, 200]);
    // Which of the two a correlation id means is not known, so neither is told anything.
    assert_eq!(imported.tally.ambiguous, 12);
    assert!(
        timeline.threads.values().all(|t| t.submits.iter().flat_map(|s| &s.groups).all(|g| g.stream == 0))
    );
}

#[test]
fn a_graphs_launch_is_one_submit_with_one_identity() {
    let mut written = Written::default();
    for step in 0..3_u64 {
        let launch = written.call(7, "cudaGraphLaunch", step * 1000, 20);
        for node in 0..5 {
            let name = format!("node{}", if step == 2 { node + 1 } else { node });
            written.device(
                launch,
                "kernel",
                &name,
                7,
                (step * 1000 + 30 + node * 10, 8),
                r#","grid":[1,1,1]"#,
            );
        }
    }
    let records = records(&written);
    let runs = submits(&records);
    assert_eq!(runs.iter().map(|r| r.graph_launches).collect::<Vec<_>>(), [1, 1, 1]);
    let graph = |i: usize| runs[i].groups[0].function;
    assert_ne!(graph(0), 0);
    assert_eq!(graph(0), graph(1));
    assert_ne!(graph(0), graph(2));
}

#[test]
fn a_drivers_call_inside_the_runtimes_is_counted_once() {
    let mut written = Written::default();
    written.launch(7, "k", 7, 100, 110, 30);
    written.host("cuda_driver", 7, "cuLaunchKernel", 101, 3, r#""correlation":1"#);
    written.launch(7, "k", 7, 200, 210, 30);
    let records = records(&written);
    assert_eq!(submits(&records).iter().map(|s| s.launches).sum::<u64>(), 2);
}

#[test]
fn more_than_32_kinds_of_submit_go_into_one_a_family() {
    let mut written = Written::default();
    for i in 0..40 {
        written.launch(7, &format!("k{i}"), 7, i * 20, i * 20 + 10, 5);
    }
    let records = records(&written);
    let [run] = submits(&records)[..] else { panic!("one run") };
    assert_eq!((run.launches, run.groups.len()), (40, 33));
    let rest = &run.groups[32];
    assert_eq!((rest.rest, rest.count, rest.function, rest.stream), (true, 8, 0, 0));
    assert_eq!(run.groups.iter().map(|g| g.count).sum::<u64>(), 40);
}

#[test]
fn a_kind_that_finds_no_room_ends_a_run_of_a_millisecond() {
    let mut written = Written::default();
    for i in 0..40 {
        written.launch(7, &format!("k{i}"), 7, i * 30, i * 30 + 10, 5);
    }
    // One that has its group goes on in the run.
    written.launch(7, "k39", 7, 1_200, 1_210, 5);
    let records = records(&written);
    let [first, second] = submits(&records)[..] else { panic!("two runs") };
    let rest = |run: &Submits| run.groups.iter().filter(|g| g.rest).map(|g| g.count).sum::<u64>();
    // The 33rd and 34th come before a millisecond is over.
    assert_eq!((first.launches, first.groups.len(), rest(first)), (34, 33, 2));
    assert_eq!((second.launches, second.groups.len(), rest(second)), (7, 6, 0));
    assert!(first.last < second.first);
}

#[test]
fn a_long_run_comes_in_pieces() {
    let mut written = Written::default();
    for i in 0..2000 {
        written.launch(7, "k", 7, i * 100, i * 100 + 10, 5);
    }
    let records = records(&written);
    let runs = submits(&records);
    assert_eq!(runs.iter().map(|r| r.launches).sum::<u64>(), 2000);
    assert!(runs.len() >= 4 && runs.iter().all(|r| r.last - r.first < 50_000_000), "{runs:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_anywhere_never_panics(at in 0_usize..4000, byte in any::<u8>(), cut in 0_usize..6000) {
        let mut bytes = small().json().into_bytes();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(cut.max(1));
        if let Ok((records, _)) = import(&bytes) {
            drop(build(records));
        }
    }
}
