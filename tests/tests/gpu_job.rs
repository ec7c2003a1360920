//! The training job on the simulated device.

use std::thread::sleep;
use std::time::Duration;

use gpu_sim_timeline::clock;
use serial_test::serial;
use whyidle::gpu::{DeviceSignal as _, NvmlSignal};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::training::{Training, python};

/// The device's busy share from readiness to the last work, and what the job said.
fn busy_share(arguments: &[&str]) -> (f64, serde_json::Value) {
    let device = SimulatedDevice::new(&[]);
    let mut job = Training::start(&python(), &device, arguments);
    job.wait_ready();
    let (from, timeline) = (clock::now(), device.timeline());
    let summary = job.summary();
    let truth = &timeline.truth().expect("readable")[0];
    let to = truth.busy.last().expect("work").end;
    (truth.busy_ns(from, to) as f64 / (to - from) as f64, summary)
}

/// How busy it is in itself depends on what else the machine does, so the two are compared in one run.
#[test]
#[serial]
fn healthy_idles_far_less_than_slow_decoding() {
    let (healthy, summary) = busy_share(&["--seconds", "5"]);
    let (steps, seconds) = (summary["steps"].as_u64(), summary["seconds"].as_f64());
    // 100 ms of device time a step, none hidden behind another.
    assert!(steps.expect("a number") as f64 * 0.1 <= seconds.expect("a number"), "{summary}");
    let slow = ["--seconds", "3", "--step-ms", "10", "--work-factor", "20", "--workers", "1", "--cold"];
    let (slow, summary) = busy_share(&slow);
    assert!(1.0 - healthy < 0.5 * (1.0 - slow), "healthy {healthy}, slow {slow}: {summary}");
}

#[test]
#[serial]
fn a_killed_job_leaves_the_list_and_its_queued_work_is_dropped() {
    let device = SimulatedDevice::new(&[]);
    let mut signal = NvmlSignal::open(Some(&device.nvml())).expect("loads");
    // Without a synchronise a long queue builds up.
    let mut job = Training::start(&python(), &device, &["--sync", "never", "--step-ms", "500"]);
    job.wait_ready();
    let pid = job.child.id();
    let mut listed = || signal.poll().expect("answers").processes.iter().any(|p| p.pid == pid);
    assert!(listed());
    drop(job);
    assert!(!listed());
    let gone = clock::now();
    let timeline = device.timeline();
    sleep(Duration::from_millis(50));
    let truth = &timeline.truth().expect("readable")[0];
    assert!(truth.busy.last().expect("work").end <= gone, "{gone}: {:?}", truth.busy.last());
}

#[test]
#[serial]
fn the_results_may_come_through_a_thread_of_the_worker() {
    let device = SimulatedDevice::new(&[]);
    let mut job =
        Training::start(&python(), &device, &["--steps", "5", "--step-ms", "5", "--queue", "feeder"]);
    assert_eq!(job.summary()["steps"], 5);
}
