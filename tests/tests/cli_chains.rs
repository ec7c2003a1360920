//! Wait chains of real processes, followed to their end.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use serial_test::file_serial;
use whyidle_tests::binary;
use whyidle_tests::case::{Case, missing};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::privileged::leaves_out;

/// A folder on the disk that the build lies on.
fn data(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let folder = test.ancestors().nth(3).expect("target/PROFILE/deps/test").join("case-data").join(name);
    fs::create_dir_all(&folder).expect("a folder of the build's");
    folder
}

/// The report on a case, recorded while it counted its steps; `None` where it cannot be run.
fn report(name: &str, steps: u32) -> Option<Value> {
    let data = data(name);
    if let Some(what) = missing(&data) {
        leaves_out(what);
        return None;
    }
    let device = SimulatedDevice::new(&[]);
    let mut case = Case::start(name, steps, &device, &data);
    let trace = device.folder().join("trace.whyidle");
    let (pid, nvml) = (case.pid().to_string(), device.nvml());
    let path = |p: &PathBuf| p.display().to_string();
    let recording = binary::start(["record", "--pid", &pid, "--nvml", &path(&nvml), "-o", &path(&trace)]);
    case.done();
    kill_process(Pid::from_child(&recording.child), Signal::INT).expect("it runs");
    let ran = recording.end();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    drop(case);
    let ran = binary::run(["report", &path(&trace), "--format", "json"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    Some(serde_json::from_str(&ran.stdout).expect("JSON"))
}

/// The chains of a mechanism's causes as names, the device's side first, with their parts of the idle time.
fn chains(report: &Value, mechanism: &str) -> Vec<(Vec<String>, f64)> {
    let gpu = &report["gpus"][0];
    let idle = gpu["idle_ns"].as_f64().expect("a number");
    let causes = gpu["causes"].as_array().expect("causes");
    let of_it = causes.iter().filter(|c| c["mechanism"] == mechanism);
    of_it
        .map(|cause| {
            let links = cause["chain"].as_array().expect("links").iter();
            let names = links.map(|l| l["comm"].as_str().expect("a name").to_owned()).collect();
            (names, cause["ns"].as_f64().expect("a number") / idle)
        })
        .collect()
}

/// Most of the idle time must lie in such chains.
fn most(chains: &[(Vec<String>, f64)], wanted: &[&str]) {
    let share: f64 = chains.iter().filter(|(names, _)| names == wanted).map(|(_, share)| share).sum();
    assert!(share > 0.6, "{share} by {wanted:?}: {chains:#?}");
}

#[test]
#[file_serial(probes)]
fn a_chain_of_five_links_ends_in_the_disk() {
    let Some(report) = report("five-links", 160) else { return };
    // The device waits for the main thread, that for a thread of its own, that for another process, that for the
    // daemon of a mount, and that for a disk.
    let chains = chains(&report, "storage.read");
    most(&chains, &["python3", "collector", "loader-0", "served"]);
}

#[test]
#[file_serial(probes)]
fn a_chain_crosses_loopback_to_the_disk_of_a_service() {
    let Some(report) = report("local-service", 100) else { return };
    most(&chains(&report, "storage.read"), &["python3", "features"]);
    let named = report["gpus"][0]["causes"][0]["culprit"]["name"].as_str().expect("a culprit");
    assert!(named.ends_with("/features"), "{named}");
}
