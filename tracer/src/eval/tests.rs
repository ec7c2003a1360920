use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use super::Recording;
use crate::idle::locate;
use crate::import::testing::Written;
use crate::import::{NVML_WINDOW_NS, Windows};
use crate::timeline::build;
use crate::trace::{Record, Span};

/// Steps of some launches each, a synchronise call after every fifth, and pauses that differ.
fn training(shift_us: i64) -> Written {
    let mut written = Written::default();
    written.shift_us = shift_us;
    let (mut at, mut device) = (1000_u64, 0_u64);
    written.op(1, "warm-up", 0, 900);
    for step in 0..120_u64 {
        for i in 0..20 + step * 7 % 11 {
            let length = 40 + (step * 13 + i * 29) % 160;
            device = device.max(at + 12);
            written.launch(1, if i % 3 == 0 { "gemm" } else { "relu" }, 7 + i % 2, at, device, length);
            (at, device) = (at + 25, device + length);
        }
        if step % 5 == 0 {
            let until = device.max(at + 10);
            written.call(1, "cudaDeviceSynchronize", at, until - at);
            at = until;
        }
        at += 1000 + step * 17 % 5 * 1500;
    }
    written.op(1, "last", at, 500_000);
    written
}

fn read(text: &[u8]) -> Recording {
    Recording::read(text, &tempfile::tempfile).unwrap()
}

/// Where an import begins and ends is settled by what happened last, which may be the device's.
fn without_ends(records: impl Iterator<Item = Record>) -> Vec<Record> {
    let mut records: Vec<Record> = records.collect();
    for record in &mut records {
        match record {
            Record::Host(host) => (host.start_ns, host.start_unix_ns) = (0, 0),
            Record::End(end) => end.at = 0,
            Record::Thread(thread) => thread.at = 0,
            _ => {}
        }
    }
    records
}

/// Places `shifted` by the readings of `original`, and compares with the placement of that.
#[track_caller]
fn places_alike(original: &Recording, shifted: &Recording) {
    let window = NVML_WINDOW_NS;
    let of = |r: &Recording| -> Vec<(u32, Vec<Span>)> { r.busy.clone().into_iter().collect() };
    assert_ne!(of(original), of(shifted), "nothing was shifted");
    assert_eq!(without_ends(original.records.iter().cloned()), without_ends(shifted.records.iter().cloned()));
    let readings = || {
        let of_device = |(&device, busy): (&u32, &Vec<Span>)| Windows::of(device, window, busy);
        original.busy.iter().flat_map(of_device).map(Record::Reading)
    };
    let mut timelines = [original, shifted].map(|r| build(r.records.iter().cloned().chain(readings())));
    timelines[1].span = timelines[0].span;
    let [a, b] = timelines.map(|timeline| format!("{:?}", locate(&timeline, None)));
    assert!(a.len() > 100, "{a}");
    assert_eq!(a, b);
}

#[test]
fn shifting_the_devices_times_alone_changes_no_placement() {
    for shift in [-300, 7_000, 90_000] {
        places_alike(&read(training(0).json().as_bytes()), &read(training(shift).json().as_bytes()));
    }
}

#[test]
fn mass_error_is_the_rounding_and_shares_sum_to_one() {
    let recording = read(training(0).json().as_bytes());
    for window in [NVML_WINDOW_NS, 100_000_000, 20_000_000] {
        let [placement] = &recording.placement(window)[..] else { panic!("one device") };
        let off = placement.read_idle_ns.abs_diff(placement.true_idle_ns);
        assert!(off <= placement.span_ns / 200 + 1, "{placement:?}");
        let shares = placement.drained + placement.bounded + placement.inferred + placement.unplaced;
        assert!((shares - 1.0).abs() < 1e-6, "{placement:?}");
        assert!(placement.drained > 0.05, "synchronise calls prove something: {placement:?}");
        assert!(placement.all.f1 > 0.7 && placement.all.f1 >= placement.placed.f1 - 0.05, "{placement:?}");
    }
}

#[test]
fn a_better_placement_scores_higher() {
    let recording = read(training(0).json().as_bytes());
    let timeline = build(recording.records(NVML_WINDOW_NS));
    let mut located = locate(&timeline, None).remove(0);
    let busy = &recording.busy[&0];
    let score = |located: &_| super::placement(located, busy, NVML_WINDOW_NS).all;
    let before = score(&located);
    // The truth itself, then nothing.
    located.between_submits = super::gaps(busy);
    located.idle.placed.clear();
    assert!((score(&located).f1 - 1.0).abs() < 1e-9);
    located.between_submits.clear();
    assert!(score(&located).f1 < 1e-9 && before.f1 < 1.0);
}

/// Where recordings of real jobs lie: `WHYIDLE_TRACES`, or `shared/traces` beside the repository.
fn recorded(name: &str) -> Option<String> {
    let folder = std::env::var_os("WHYIDLE_TRACES").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces")),
        PathBuf::from,
    );
    let file = std::fs::File::open(folder.join(format!("{name}.json.gz"))).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    Some(text)
}

#[test]
fn shifting_the_devices_times_of_real_jobs_changes_no_placement() {
    for name in ["event_sync", "alexnet", "sampled_rank0"] {
        let Some(text) = recorded(name) else {
            // Straight to the terminal: a passing test's prints are not shown.
            let line = format!("SKIPPED {}: no recording {name}\n", module_path!());
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            continue;
        };
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for event in json["traceEvents"].as_array_mut().unwrap() {
            let on_device = ["kernel", "gpu_memset", "gpu_memcpy", "cuda_sync"];
            if on_device.contains(&event["cat"].as_str().unwrap_or_default()) {
                event["ts"] = serde_json::json!(event["ts"].as_f64().unwrap() + 1234.0);
            }
        }
        places_alike(&read(text.as_bytes()), &read(json.to_string().as_bytes()));
    }
}
