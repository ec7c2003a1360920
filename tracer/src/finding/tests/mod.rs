//! The report's rules on hand-made ledgers.

mod driving;
mod laws;

use super::*;
use crate::cause::{Mechanism, attribute};
use crate::idle::{PlacedIdle, UnplacedIdle, place};
use crate::timeline::build;
use crate::timeline::testing::{MS, TraceBuilder, key};
use crate::trace::{CudaFamily, GovernorStep, Loss, LossCause, LossClass, Record, Span};

fn slow_disk() -> (Timeline, Vec<(DeviceIdle, Ledger)>) {
    let stack = &["schedule", "io_schedule", "folio_wait_bit_common", "filemap_read"];
    let trace = TraceBuilder::new(0, 10_000 * MS)
        .device(0)
        .on_device(0, 10)
        .thread(10, 10, "trainer")
        .file(7, "/data/train/a.jpg", |_| ())
        .wait(10, 1000 * MS, 4000 * MS, 4000 * MS, |w| w.read(3, 7).kernel(stack).interrupt(&["bio_endio"]))
        .samples(10, 4000 * MS, 5000 * MS, &["libjpeg.so!idct"])
        .call(10, CudaFamily::Synchronize, "cuCtxSynchronize", 0, 1000 * MS)
        .call(10, CudaFamily::Synchronize, "cuCtxSynchronize", 5000 * MS, 10_000 * MS)
        .record(Record::Step(GovernorStep { at: 2000 * MS, what: "samples at 49 Hz".into() }))
        .record(Record::Step(GovernorStep { at: 2500 * MS, what: "samples at 49 Hz".into() }))
        .record(loss(Some(1), 3))
        .record(loss(Some(1), 4))
        .record(loss(None, 1));
    let timeline = build(trace.records());
    let gap = |start, end| PlacedIdle {
        span: Span::new(start, end),
        known: Known::Bounded,
        feeder: Some(key(10)),
        submit: Some(end),
        device_inferred: false,
    };
    let placed = vec![gap(1000 * MS, 4000 * MS), gap(4000 * MS, 4100 * MS)];
    let idle = DeviceIdle {
        window: timeline.span,
        busy_ns: 6000 * MS,
        idle_ns: 3200 * MS,
        unknown_ns: 800 * MS,
        placed,
        unplaced: vec![UnplacedIdle {
            span: Span::new(5000 * MS, 6000 * MS),
            ns: 100 * MS,
            reason: "no silence held it".into(),
            launch_bound: false,
            in_waits: false,
            feeder: None,
        }],
        unknown: vec![(Span::new(9000 * MS, 9800 * MS), UnknownReason::PowerContradicts)],
        launches_per_second: Some(12.0),
        ..DeviceIdle::default()
    };
    let ledger = attribute(&timeline, &idle);
    (timeline, vec![(idle, ledger)])
}

fn loss(cpu: Option<u32>, count: u64) -> Record {
    let (class, cause) = (LossClass::OffCpu, LossCause::RingFull);
    Record::Loss(Loss { at: 5000 * MS, class, cpu, cause, count, ns_at_risk: count * MS })
}

#[test]
fn the_ledger_of_the_report_sums_and_the_largest_is_the_finding() {
    let (timeline, devices) = slow_disk();
    let report = report(&timeline, &devices);
    let gpu = &report.gpus[0];
    assert_eq!(gpu.busy_ns + gpu.idle_ns + gpu.unknown_ns, gpu.window_ns);
    assert_eq!(gpu.causes.iter().map(|c| c.ns).sum::<u64>(), gpu.idle_ns);
    assert_eq!(gpu.placed.bounded_ns, 3100 * MS);
    assert_eq!(gpu.unknown_reasons.len(), 1);
    // Of a second's decoding 100 ms lie in a gap: under 200 ms, and under 5 % of the window.
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    let finding = &report.findings[0];
    assert_eq!(finding.mechanism, Mechanism::StorageRead);
    assert!(finding.title.ends_with("/data/train"));
    assert!(
        finding.evidence.iter().any(|e| e.starts_with("3.00 s of 3.20 s idle (30.0 % of the window)")),
        "{finding:#?}"
    );
    assert!(
        finding.evidence.iter().any(|e| e.starts_with("1 wait of 100 us or more for 1 file,")),
        "{finding:#?}"
    );
    assert!(finding.gain_ns <= gpu.idle_ns);
}

#[test]
fn the_five_questions_are_answered_in_order_or_not_known() {
    let (timeline, devices) = slow_disk();
    let questions = report(&timeline, &devices).questions;
    assert_eq!(questions.len(), 5);
    assert!(
        questions[0].text.starts_with("GPU 0 stood idle 3.20 s of 10.00 s (32.0 %): 3.10 s for data"),
        "{}",
        questions[0].text
    );
    assert!(questions[1].text.contains("12 launches a second"));
    assert!(questions[2].text.starts_with("GPU 0: storage 3.00 s"));
    assert!(!questions[3].known && questions[3].text.starts_with("not known: "));
    let empty = report(&build(TraceBuilder::new(0, MS).records()), &[]);
    assert!(
        empty.questions.iter().all(|a| !a.known && a.text.starts_with("not known: ")),
        "{:#?}",
        empty.questions
    );
}

#[test]
fn losses_add_up_and_steps_are_told() {
    let (timeline, devices) = slow_disk();
    let report = report(&timeline, &devices);
    let lost: Vec<_> = report.losses.iter().map(|l| (l.cpu, l.count, l.ns_at_risk)).collect();
    assert_eq!(lost, [(None, 1, MS), (Some(1), 7, 7 * MS)]);
    let steps: Vec<_> = report.notes.iter().filter(|n| n.contains("samples at 49 Hz")).collect();
    assert!(matches!(steps[..], [step] if step.contains("after 2.00 s, and once more")), "{steps:?}");
    assert!(report.notes.iter().any(|n| n.contains("could not be placed")));
}

#[test]
fn without_a_device_the_waits_are_told() {
    let (timeline, _) = slow_disk();
    let report = report(&timeline, &[]);
    assert!(report.gpus.is_empty() && report.findings.is_empty());
    assert!(report.notes[0].starts_with("No device was read"));
    assert!(
        report.waits.iter().any(|n| n == "trainer (pid 10): read of files in /data/train, 3.00 s in 1 wait."),
        "{:#?}",
        report.waits
    );
    assert!(super::report(&slow_disk().0, &slow_disk().1).waits.is_empty());
}

#[test]
fn a_cut_trace_says_so() {
    let mut records = TraceBuilder::new(0, MS).records();
    records.pop();
    let report = report(&build(records), &[]);
    assert!(report.notes[0].starts_with("The recording is cut"));
}

#[test]
fn a_trace_without_its_first_record_says_so_and_gains_no_idle_time() {
    let trace = TraceBuilder::new(1000 * MS, 3000 * MS)
        .device(0)
        .on_device(0, 10)
        .thread(10, 10, "trainer")
        .reading(0, 0, 1000 * MS, 0.0)
        .reading(0, 1000 * MS, 2000 * MS, 50.0)
        .reading(0, 2000 * MS, 3000 * MS, 50.0);
    let of = |records: Vec<Record>| {
        let timeline = build(records);
        let devices = place(&timeline, None).into_iter().map(|idle| {
            let ledger = attribute(&timeline, &idle);
            (idle, ledger)
        });
        report(&timeline, &devices.collect::<Vec<_>>())
    };
    let says = |report: &Report| report.notes.iter().any(|n| n.contains("lost the record of its start"));
    let whole = of(trace.clone().records());
    let lost = of(trace.records().split_off(1));
    assert_eq!((whole.gpus[0].idle_ns, whole.gpus[0].window_ns), (1000 * MS, 2000 * MS));
    assert_eq!((lost.gpus[0].idle_ns, lost.gpus[0].window_ns), (1000 * MS, 2000 * MS));
    assert!(says(&lost) && !says(&whole), "{:#?}", lost.notes);
}

#[test]
fn the_report_keeps_the_contracts_names() {
    let (timeline, devices) = slow_disk();
    let json = serde_json::to_value(report(&timeline, &devices)).unwrap();
    for field in ["schema", "window", "gpus", "findings", "losses", "probes", "questions", "notes", "host"] {
        assert!(!json[field].is_null(), "{field}");
    }
    let gpu = &json["gpus"][0];
    assert!(gpu.get("collective_ns").is_some_and(serde_json::Value::is_null));
    assert_eq!(gpu["causes"][0]["mechanism"], "storage.read");
    assert_eq!(gpu["causes"][0]["stage"], "storage");
    assert_eq!(gpu["causes"][0]["culprit"]["kind"], "directory");
    assert_eq!(gpu["placed"]["inferred_ns"], 0);
}
