//! One run of a case: the job on the simulated device, a recording of it, and what the device really did.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::guest;
use crate::device::{Device, truth};
use crate::{place, setup};

/// A run that takes longer hangs; the counted part of a good one lasts 30 s at most.
const PATIENCE: Duration = Duration::from_secs(120);
/// From the first byte of the trace on: tables are made, libraries searched, the driver's calls attached.
const SETTLE: Duration = Duration::from_millis(2500);

/// How one run is done.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub seed: u64,
    pub fault: bool,
    pub traced: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub told: Told,
    /// Idle time of the devices that count, in the counted part, by the device's own account.
    pub idle_ns: u64,
    /// Where it was traced.
    pub trace: Option<PathBuf>,
}

/// The result file of `tests/job/case.py`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    pub start_ns: u64,
    pub end_ns: u64,
    /// When a moving fault moved.
    pub turn_ns: Option<u64>,
}

impl Told {
    pub fn lasted_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

impl Outcome {
    /// Of the job's result and the device's truth.
    pub fn read(case: &Case, result: &Path, truth: &Path, trace: Option<PathBuf>) -> Result<Self> {
        let told: Told = serde_json::from_slice(&fs::read(result)?).context("the job's result")?;
        ensure!(told.end_ns > told.start_ns, "the job's result: it ended before it began");
        let busy = truth::read(truth)?;
        let devices = case.device.get("WHYIDLE_SIM_DEVICES").map_or(Ok(1), |n| n.parse::<u64>())?;
        let idle_ns = (0..devices)
            .filter(|&d| case.gpu.is_none_or(|gpu| d == u64::from(gpu)))
            .map(|d| told.lasted_ns().saturating_sub(truth::busy_ns(&busy, d, told.start_ns, told.end_ns)))
            .sum();
        Ok(Self { told, idle_ns, trace })
    }
}

/// A folder of the case's own.
pub fn folder(name: &str) -> Result<PathBuf> {
    let folder = place::target().join("scoreboard").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub fn run(name: &str, case: &Case, way: Way) -> Result<Outcome> {
    if let Some(kernel) = case.kernel {
        return guest::run(name, case, way, kernel);
    }
    let folder = folder(name)?;
    let truth = folder.join("truth.jsonl");
    let device = Device::new(&folder.join("lib"), &truth, &case.device)?;
    let files = Files::new(&folder);
    let mut job = Job::start(name, case, way, &device, &files, &folder)?;
    job.until("ready", &files.ready)?;
    let recording = way.traced.then(|| Recording::start(job.pid(), case, &device, &folder)).transpose()?;
    fs::write(&files.go, "")?;
    job.until("done", &files.result)?;
    let trace = recording.map(Recording::stop).transpose()?;
    job.stop()?;
    Outcome::read(case, &files.result, &truth, trace)
}

struct Files {
    ready: PathBuf,
    go: PathBuf,
    result: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Self {
        let file = |name: &str| {
            let path = folder.join(name);
            drop(fs::remove_file(&path));
            path
        };
        Self { ready: file("ready"), go: file("go"), result: file("result.json") }
    }
}

struct Job {
    child: Child,
    log: PathBuf,
}

impl Job {
    fn start(
        name: &str,
        case: &Case,
        way: Way,
        device: &Device,
        files: &Files,
        folder: &Path,
    ) -> Result<Self> {
        let log = folder.join("job.log");
        let mut command = Command::new(setup::python()?);
        command
            .arg(place::root().join("tests/job/case.py"))
            .args([name, "--steps", &case.steps.to_string(), "--seed", &way.seed.to_string()])
            .args(way.fault.then_some("--fault"))
            .arg("--cuda")
            .arg(device.cuda())
            .arg("--data")
            .arg(place::target().join("scoreboard/data").join(name))
            .arg("--ready")
            .arg(&files.ready)
            .arg("--go")
            .arg(&files.go)
            .arg("--result")
            .arg(&files.result)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        let child = command.spawn().context("python3")?;
        Ok(Self { child, log })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn until(&mut self, what: &str, file: &Path) -> Result<()> {
        let began = Instant::now();
        while !file.exists() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the job ended before it was {what} ({status}):\n{}", self.said());
            }
            ensure!(began.elapsed() < PATIENCE, "the job was not {what} in {PATIENCE:?}:\n{}", self.said());
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default().trim().to_owned()
    }

    /// Lets it end by itself: the truth is written then.
    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(began.elapsed() < PATIENCE, "the job did not end in {PATIENCE:?}:\n{}", self.said());
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The whole group: workers outlive a killed parent. It may be gone already.
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        drop(self.child.wait());
    }
}

struct Recording {
    child: Child,
    trace: PathBuf,
}

impl Recording {
    /// Returns once probes are attached.
    fn start(pid: u32, case: &Case, device: &Device, folder: &Path) -> Result<Self> {
        let trace = folder.join("trace.whyidle");
        drop(fs::remove_file(&trace));
        let child = Command::new(whyidle())
            .args(["record", "--pid", &pid.to_string(), "--nvml"])
            .arg(device.nvml())
            .args(&case.record)
            .arg("-o")
            .arg(&trace)
            .stdin(Stdio::null())
            .stderr(File::create(folder.join("record.log"))?)
            .spawn()
            .with_context(|| whyidle().display().to_string())?;
        let mut recording = Self { child, trace };
        let began = Instant::now();
        // Claimed empty, written to when all is attached.
        while fs::metadata(&recording.trace).map_or(0, |m| m.len()) == 0 {
            if let Some(status) = recording.child.try_wait()? {
                let said = fs::read_to_string(folder.join("record.log")).unwrap_or_default();
                bail!("whyidle record ended before it had begun ({status}): {}", said.trim());
            }
            ensure!(began.elapsed() < PATIENCE, "whyidle record had not begun in {PATIENCE:?}");
            sleep(Duration::from_millis(20));
        }
        sleep(SETTLE);
        Ok(recording)
    }

    fn stop(mut self) -> Result<PathBuf> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "whyidle record failed: {status}");
        Ok(self.trace.clone())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // In order, so that nothing is left attached.
            kill_process(Pid::from_child(&self.child), Signal::INT).ok();
            drop(self.child.wait());
        }
    }
}

pub fn whyidle() -> PathBuf {
    place::target().join("release/whyidle")
}
