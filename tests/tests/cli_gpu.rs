//! The whole job on a simulated device: found, watched, reported.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use gpu_sim_timeline::{Process, Timeline, clock};
use serial_test::file_serial;
use whyidle::cli::exit::Status;
use whyidle::trace::{Reader, Record};
use whyidle_tests::binary::{self, Ran};
use whyidle_tests::device::{SimulatedDevice, script};

const MS: u64 = 1_000_000;

/// This process with a context, and 30 ms of work in every 100 ms for the next minute.
fn loaded(timeline: &Timeline) -> Process<'_> {
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    let now = clock::now();
    script(timeline, &process, now, now + 60_000 * MS, 100 * MS, 30 * MS);
    process
}

/// `whyidle` without a verb, in the device's folder.
fn whole_job(device: &SimulatedDevice, duration: &str) -> Ran {
    let mut command = Command::new(binary::path());
    command.current_dir(device.folder()).args(["--duration", duration, "--nvidia-major", "4000", "--nvml"]);
    command.arg(device.nvml());
    binary::start_command(command).end()
}

fn trace(device: &SimulatedDevice) -> PathBuf {
    let mut traces: Vec<PathBuf> = fs::read_dir(device.folder())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "whyidle"))
        .collect();
    assert_eq!(traces.len(), 1, "{traces:?}");
    traces.remove(0)
}

#[test]
#[file_serial(probes)]
fn without_a_verb_it_finds_the_process_and_reports_what_the_device_says() {
    let device = SimulatedDevice::new(&[]);
    let timeline = device.timeline();
    let _process = loaded(&timeline);
    let ran = whole_job(&device, "3s");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let trace = trace(&device);
    let name = trace.file_name().unwrap().to_str().unwrap();
    assert!(ran.stderr.contains(&format!("whyidle report {name}")), "{ran:?}");
    assert!(ran.stdout.contains("GPU 0") && ran.stdout.contains("FIVE QUESTIONS"), "{ran:?}");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 100), "wider than a page: {ran:?}");

    let records: Vec<Record> = Reader::open(&trace).unwrap().map(Result::unwrap).collect();
    let own = std::process::id();
    assert!(records.iter().any(|r| matches!(r, Record::DeviceProcess(p) if p.pid == own)));
    assert!(records.iter().any(|r| matches!(r, Record::Thread(t) if t.pid == own)), "it was not watched");
    assert!(records.iter().any(|r| matches!(r, Record::Probe(p) if p.name == "nvml" && p.attached)));

    let json = binary::run(["report", trace.to_str().unwrap(), "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let gpu = &json["gpus"][0];
    let ns = |name: &str| gpu[name].as_u64().unwrap_or_else(|| panic!("{name}: {gpu}"));
    assert_eq!(ns("window_ns"), ns("busy_ns") + ns("idle_ns") + ns("unknown_ns"));
    let parts: u64 = gpu["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).sum();
    assert_eq!(parts, ns("idle_ns"));
    assert!(ns("window_ns") >= 2_000 * MS, "{gpu}");
    let (start, window) = (ns("start_ns"), ns("window_ns"));
    let truth = timeline.truth().unwrap()[0].busy_ns(start, start + window) as f64 / window as f64;
    let given = ns("busy_ns") as f64 / window as f64;
    assert!((given - truth).abs() < 0.03, "{given} given, {truth} true");

    let part = ["report", trace.to_str().unwrap(), "--gpu", "0", "--from", "1s", "--to", "2500ms"];
    assert!(binary::run(part).stdout.contains("GPU 0"));
    let other = binary::run(["report", trace.to_str().unwrap(), "--gpu", "7"]);
    other.refused(Status::NoSuchGpu, "use one of 0");
    let picture = device.folder().join("idle.svg");
    let flame = ["flame", trace.to_str().unwrap(), "--kind", "idle", "-o", picture.to_str().unwrap()];
    assert_eq!(binary::run(flame).status, Some(0));
    assert!(fs::read_to_string(picture).unwrap().contains("GPU 0 idle"));
}

#[test]
#[file_serial(probes)]
fn a_library_that_hangs_keeps_no_recording_from_its_end() {
    // Longer than a run may take before the harness says that it hangs.
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "hang=3600,hang-after=30")]);
    let timeline = device.timeline();
    let _process = loaded(&timeline);
    let ran = whole_job(&device, "4s");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let records: Vec<Record> = Reader::open(&trace(&device)).unwrap().map(Result::unwrap).collect();
    assert!(records.iter().any(|r| matches!(r, Record::Reading(_))), "it hung before the first reading");
    let Some(Record::End(end)) = records.last() else { panic!("no end") };
    let read_until = records.iter().filter_map(|r| match r {
        Record::Reading(reading) => Some(reading.span.end),
        _ => None,
    });
    assert!(read_until.max().unwrap() + 1_000 * MS < end.at, "it did not hang while recording");
}

#[test]
fn a_device_without_a_process_is_no_job() {
    let device = SimulatedDevice::new(&[]);
    whole_job(&device, "1s").refused(Status::NoGpuProcess, "no process uses a GPU");
}
