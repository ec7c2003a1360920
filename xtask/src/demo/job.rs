//! The training job on the simulated device, as a process group of its own.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Deserialize;

use crate::device::Device;
use crate::place;

/// What the job says when it ends.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Summary {
    pub steps: u64,
    pub steps_per_second: f64,
}

#[derive(Debug)]
pub struct Job {
    child: Child,
    ready: PathBuf,
}

impl Job {
    /// Starts it, a member of the control group whose `members` file is given.
    pub fn start(
        python: &Path,
        arguments: &[String],
        device: &Device,
        folder: &Path,
        members: Option<&Path>,
    ) -> Result<Self> {
        let ready = folder.join("ready");
        drop(fs::remove_file(&ready));
        let mut command = match members {
            Some(members) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(members).arg(python);
                shell
            }
            None => Command::new(python),
        };
        command
            .arg(place::root().join("tests/job/train.py"))
            .args(arguments)
            .arg("--cuda")
            .arg(device.cuda())
            .arg("--ready-file")
            .arg(&ready)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("job.log"))?);
        let child = command.spawn().with_context(|| python.display().to_string())?;
        Ok(Self { child, ready })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Until it has warmed up.
    pub fn wait_ready(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while !self.ready.exists() {
            ensure!(!stopped(), "interrupted");
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.ready.with_file_name("job.log")).unwrap_or_default();
                bail!("the job ended before it was ready: {status}\n{}", log.trim());
            }
            ensure!(began.elapsed().as_secs() < 180, "the job was not ready within 180 s");
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Lets it end by itself: the truth is written then.
    pub fn stop(mut self) -> Result<Summary> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(began.elapsed().as_secs() < 30, "the job did not end within 30 s of SIGTERM");
            sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        self.child.stdout.take().context("piped")?.read_to_string(&mut said)?;
        let last = said.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("the job's last line: `{last}`"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The whole group: workers outlive a killed parent. It may be gone already.
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        drop(self.child.wait());
    }
}
