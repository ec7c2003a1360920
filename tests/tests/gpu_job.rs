//! The training job on the simulated device.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use gpu_sim_timeline::clock;
use serial_test::serial;
use whyidle::gpu::{DeviceSignal as _, NvmlSignal};
use whyidle_tests::device::SimulatedDevice;

/// The system's, because it is the one with Pillow from a package; another may be named.
fn python() -> String {
    std::env::var("WHYIDLE_PYTHON").unwrap_or_else(|_unset| "/usr/bin/python3".into())
}

struct Job {
    child: Child,
    ready: PathBuf,
}

impl Job {
    fn start(device: &SimulatedDevice, arguments: &[&str]) -> Self {
        let ready = device.folder().join("ready");
        let child = Command::new(python())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/job/train.py"))
            .arg("--data")
            .arg(device.folder().join("data"))
            .arg("--cuda")
            .arg(device.cuda())
            .arg("--ready-file")
            .arg(&ready)
            .args(["--images", "64"])
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        Self { child, ready }
    }

    fn wait_ready(&mut self) {
        while !self.ready.exists() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("the job ended before it was ready ({status}); it needs Pillow (python3-pil)");
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Its last line, once it has ended.
    fn summary(&mut self) -> serde_json::Value {
        let mut text = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut text).expect("readable");
        assert!(self.child.wait().expect("a child").success(), "{text}");
        serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Fails where it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The device's busy share from readiness to the last work, and what the job said.
fn busy_share(arguments: &[&str]) -> (f64, serde_json::Value) {
    let device = SimulatedDevice::new(&[]);
    let mut job = Job::start(&device, arguments);
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
    let mut job = Job::start(&device, &["--sync", "never", "--step-ms", "500"]);
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
    let mut job = Job::start(&device, &["--steps", "5", "--step-ms", "5", "--queue", "feeder"]);
    assert_eq!(job.summary()["steps"], 5);
}
