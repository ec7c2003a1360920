//! What every verb that records has in common: check all that can be checked, then attach, record, end.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::devices;
use super::error::CliError;
use super::options::{Common, Recording};
use super::output::{self, Output};
use crate::capture::devices::Feed;
use crate::capture::host::TICK;
use crate::capture::kernel::undo::Detaching;
use crate::capture::preflight::Facts;
use crate::capture::recorder::{Ending, GROUP_REMOVED, Plan, RecordError, Recorder, TARGETS_EXITED, Watch};
use crate::capture::selection::{Selection, TargetError, Targets};
use crate::capture::stop::Stop;
use crate::capture::tracer::Tracer;
use crate::capture::{descriptors, holders, host};
use crate::trace::Writer;

/// A recording that has begun.
#[derive(Debug)]
pub struct Session {
    recorder: Recorder,
    output: Output,
    path: PathBuf,
    pub stop: Stop,
    /// The limit on open files as it was, for a command that is started.
    pub open_files: Option<u64>,
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded {
    pub path: PathBuf,
    pub ending: Ending,
    pub lasted: Duration,
    /// Waited for when this is dropped, after the report.
    detaching: Detaching,
}

impl Session {
    /// Checks, in this order: privileges and kernel, targets, device library, output file; only then attaches.
    ///
    /// # Errors
    /// Any of these. Nothing is left attached, and no empty file behind.
    pub fn start(
        selection: &Selection,
        what: &str,
        duration: Option<Duration>,
        options: &Recording,
        common: &Common,
    ) -> Result<Self, CliError> {
        Facts::read().check()?;
        let selection = selection.check()?;
        let feed = devices::open(common.nvml())?;
        if selection == Selection::GpuProcesses {
            need_gpu_process(feed.as_ref(), &options.majors())?;
        }
        if let Some(trouble) = feed.trouble() {
            super::say(&format!("{trouble}; what threads wait for is recorded all the same"));
        }
        let path = options.output.clone().unwrap_or_else(output::default_trace);
        let mut output = Output::claim(&path, options.force)?;
        output.lock()?;
        let stop =
            Stop::install(&last_words(&path)).map_err(|source| CliError::Io { what: "signals", source })?;
        let plan = Plan {
            config: options.config(selection == Selection::All),
            targets: Targets::new(selection, options.majors()),
            devices: feed,
            duration,
            budget: options.budget(),
            cuda: options.cuda.unwrap_or_default(),
            command: what.to_owned(),
        };
        let open_files = descriptors::raise();
        if std::io::stderr().is_terminal() {
            super::say("loading and attaching probes, which takes some seconds");
        }
        let tracer = Tracer::attach(&plan.config)?;
        let writer = Writer::create(&path)?;
        output.keep();
        let recorder = Recorder::start(plan, tracer, writer, stop.clone()).map_err(failed)?;
        Ok(Self { recorder, output, path, stop, open_files })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Watches one more process and its children.
    ///
    /// # Errors
    /// The kernel side has no room for it.
    pub fn add(&mut self, pid: u32) -> Result<(), CliError> {
        self.recorder.add(pid).map_err(failed)
    }

    /// Detaches and removes the trace: there was nothing to record. Gives the reason back.
    #[must_use]
    pub fn give_up(self, error: CliError) -> CliError {
        drop(self.recorder);
        drop(std::fs::remove_file(&self.path));
        error
    }

    /// Records to the end. After an error too, what was recorded is brought to its end and kept.
    ///
    /// # Errors
    /// The trace could not be written to the end, or a ring not be read.
    pub fn record(mut self, watch: &mut dyn Watch) -> Result<Recorded, CliError> {
        let began = host::now();
        let ran = self.recorder.run(watch);
        let lasted = Duration::from_nanos(host::now().saturating_sub(began));
        let ending = match &ran {
            Ok(ending) => ending.clone(),
            Err(e) => Ending { reason: e.to_string(), exit_status: None },
        };
        watch.ending();
        let finished = self.recorder.finish(ending.clone());
        ran.map_err(failed)?;
        let detaching = finished.map_err(failed)?;
        self.output.still_there()?;
        Ok(Recorded { path: self.path, ending, lasted, detaching })
    }
}

impl Recorded {
    #[must_use]
    pub fn detached(&self) -> bool {
        self.detaching.done()
    }

    /// Waits until everything is detached, and looks whether it is.
    ///
    /// # Errors
    /// A link, or a change to the code of a process, is left.
    pub fn settle(self) -> Result<(), CliError> {
        let compared = self.detaching.settle()?;
        tracing::info!(
            "nothing is attached any more: no link left, {compared} places in code are as in their files"
        );
        Ok(())
    }

    /// # Errors
    /// `what` ended before the first ticks had passed.
    pub fn had_something(&self, what: &str) -> Result<(), CliError> {
        let gone = [TARGETS_EXITED, GROUP_REMOVED].contains(&self.ending.reason.as_str());
        if gone && self.lasted < TICK * 2 {
            return Err(CliError::EndedAtOnce { what: what.to_owned(), trace: self.path.clone() });
        }
        Ok(())
    }
}

/// What is said when there is no time to end in order.
fn last_words(trace: &Path) -> String {
    let path = super::shown(trace);
    format!(
        "whyidle: told to stop a second time, so it ended at once: what was recorded until then is in {path}; read \
         it with: whyidle report {path}\n"
    )
}

fn need_gpu_process(feed: &dyn Feed, majors: &[u32]) -> Result<(), CliError> {
    if feed.processes().is_empty() && holders::find(majors).is_empty() {
        return Err(TargetError::NoGpuProcess.into());
    }
    Ok(())
}

fn failed(error: RecordError) -> CliError {
    match error {
        RecordError::Capture(e) => e.into(),
        RecordError::Trace(e) => CliError::trace_cut(e),
    }
}
