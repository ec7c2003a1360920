//! `cargo xtask demo`: a training job on a simulated device, something slowed, and what `whyidle` says of it.

pub mod case;
mod check;
mod disk;
pub mod job;
mod outputs;
mod throttle;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::device::{self, Device};
use crate::shell::{again_as_root, is_root, run, say};
use crate::{place, setup};
use case::Case;
use job::Job;
use throttle::Throttle;

#[derive(Debug, Args)]
pub struct Demo {
    #[arg(long, value_enum, default_value = "slow-disk")]
    case: Case,
    /// How long to record.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Where to make a folder `images` [default: the target folder]; for slow-disk it must lie on a disk.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Everything is built: only root's part is left.
    #[arg(long, hide = true)]
    built: bool,
}

pub fn demo(arguments: &Demo) -> Result<()> {
    if !arguments.built {
        prepare()?;
    }
    if !is_root() {
        return again_as_root("the demo attaches probes", "--built");
    }
    show(arguments)
}

const PICTURES: [(&str, &str); 3] = [
    ("idle.svg", "idle GPU time by wait chain"),
    ("offcpu.svg", "waits by stack"),
    ("oncpu.svg", "processor time by stack"),
];

/// Builds what the demo runs; needs no root.
pub fn prepare() -> Result<()> {
    setup::build_tools()?;
    setup::python()?;
    say("building whyidle and the simulated device");
    run(Command::new(place::cargo())
        .current_dir(place::root())
        .args(["build", "--release", "--package", "whyidle"])
        .args(device::PACKAGES))
}

fn show(arguments: &Demo) -> Result<()> {
    setup::tracefs()?;
    let case = arguments.case;
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    let stopped = move || stopped.load(Ordering::Relaxed);

    let base = place::target().join("demo");
    let folder = base.join(case.name());
    fs::create_dir_all(&folder)?;
    let data = match &arguments.data {
        Some(data) => std::path::absolute(data)?,
        None => base.clone(),
    };
    let data = data.join("images").join(case.name());
    fs::create_dir_all(&data)?;
    let truth = folder.join("truth.jsonl");
    let device = Device::new(&base.join("lib"), &truth, &BTreeMap::new())?;
    let throttle = case.read_bps().map(|bps| Throttle::new(disk::Device::of(&data)?, bps)).transpose()?;
    let members = throttle.as_ref().map(Throttle::members);

    let mut options = vec!["--data".to_owned(), data.display().to_string()];
    options.extend(case.job().iter().map(ToString::to_string));
    say(format!("starting the job; its images lie in {}", data.display()));
    let mut job = Job::start(&setup::python()?, &options, &device, &folder, members.as_deref())?;
    job.wait_ready(&stopped)?;

    let trace = folder.join("trace.whyidle");
    say(format!("recording process {} for {} s", job.pid(), arguments.seconds));
    let whyidle = place::target().join("release/whyidle");
    record(&whyidle, job.pid(), arguments.seconds, &device.nvml(), &trace, &stopped)?;
    let summary = job.stop()?;
    drop(throttle);
    say(format!("the job did {} steps, {:.2} a second", summary.steps, summary.steps_per_second));

    let report = outputs::write(&whyidle, &trace, &folder)?;
    println!("In {}: the trace, report.txt, report.json, and pictures for a browser:", folder.display());
    for (name, what) in PICTURES.iter().filter(|(name, _)| folder.join(name).exists()) {
        println!("  {name:<11} {what}");
    }
    check::all(case, &report, &truth)
}

fn record(
    whyidle: &Path,
    pid: u32,
    seconds: u64,
    nvml: &Path,
    trace: &Path,
    stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let mut command = Command::new(whyidle);
    command
        .args([
            "record",
            "--force",
            "--pid",
            &pid.to_string(),
            "--duration",
            &format!("{seconds}s"),
            "--nvml",
        ])
        .arg(nvml)
        .arg("-o")
        .arg(trace);
    let mut child = command.spawn().with_context(|| whyidle.display().to_string())?;
    let status = wait(&mut child, stopped)?;
    ensure!(status.success(), "whyidle record failed: {status}");
    Ok(())
}

/// Waits; when interrupted, has the child end as it would by itself.
fn wait(child: &mut Child, stopped: &dyn Fn() -> bool) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(!stopped(), "interrupted");
            return Ok(status);
        }
        if stopped() {
            // It may have had the terminal's own signal already.
            kill_process(Pid::from_child(child), Signal::TERM).ok();
            child.wait()?;
            bail!("interrupted");
        }
        sleep(Duration::from_millis(50));
    }
}
