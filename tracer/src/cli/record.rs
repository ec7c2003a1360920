//! `whyidle record`: running processes into a trace.

use std::io::IsTerminal as _;

use std::path::PathBuf;

use clap::Args;

use super::error::CliError;
use super::live::LiveLine;
use super::options::{Common, Recording};
use super::session::{Recorded, Session};
use crate::capture::selection::Selection;
use crate::render::escape;

#[derive(Clone, Debug, Args)]
pub struct Record {
    #[command(flatten)]
    targets: Which,
    #[command(flatten)]
    recording: Recording,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// A process and its children; repeatable
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Members of a control group and of those below it, also those that join later
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Processes that NVML lists or that hold an NVIDIA device node
    #[arg(long)]
    gpu_procs: bool,
    /// Every thread on this machine
    #[arg(long)]
    all: bool,
}

impl Record {
    pub fn run(&self, common: &Common) -> Result<(), CliError> {
        let selection = self.targets.selection();
        let what = selection.describe();
        let duration = self.recording.duration;
        let session = Session::start(&selection, &what, duration, &self.recording, common)?;
        let mut live = LiveLine::new(session.path(), duration);
        let recorded = session.record(&mut live)?;
        live.clear();
        recorded.had_something(&what)?;
        say_where(&recorded);
        recorded.settle()
    }
}

impl Which {
    fn selection(&self) -> Selection {
        match self {
            Self { all: true, .. } => Selection::All,
            Self { gpu_procs: true, .. } => Selection::GpuProcesses,
            Self { cgroup: Some(path), .. } => Selection::Cgroup(path.clone()),
            Self { pid, .. } => Selection::Pids(pid.clone()),
        }
    }
}

/// Says on standard error where the trace lies and how to read it.
pub fn say_where(recorded: &Recorded) {
    let path = recorded.path.display().to_string();
    super::say(&format!(
        "trace: {path} ({}); read it with: whyidle report {}",
        recorded.ending.reason,
        escape(&path)
    ));
    if !recorded.detached() && std::io::stderr().is_terminal() {
        super::say("detaching from the CUDA driver's functions, which takes some seconds");
    }
}
