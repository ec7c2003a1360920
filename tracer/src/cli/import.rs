//! `whyidle import`: what other tools recorded becomes a trace.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::error::CliError;
use super::output::Output;
use super::say;
use crate::import::{self, Activity, ImportError, Imported};
use crate::trace::{TraceError, Writer};

#[derive(Clone, Debug, Args)]
pub struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Clone, Debug, Subcommand)]
enum From {
    /// A recording of the PyTorch profiler (Kineto), .json or .json.gz
    Kineto(Kineto),
}

#[derive(Clone, Debug, Args)]
struct Kineto {
    /// The recording
    file: PathBuf,
    /// Where the trace goes
    #[arg(short, long, value_name = "TRACE")]
    output: PathBuf,
    /// Overwrite it
    #[arg(long)]
    force: bool,
    /// The device's busy share is known for each of these: 166ms as NVML has it, 100ms as GPM can
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "166ms")]
    window: Duration,
}

impl Import {
    pub fn run(&self) -> Result<(), CliError> {
        let From::Kineto(kineto) = &self.from;
        kineto.run()
    }
}

impl Kineto {
    fn run(&self) -> Result<(), CliError> {
        let file = open(&self.file)?;
        let mut output = Output::claim_apart(&self.output, self.force, &[&self.file])?;
        output.lock()?;
        let draft = output.draft().ok_or_else(|| CliError::NotRegular(self.output.clone()))?;
        let scratch = || tempfile::tempfile_in(draft.beside.parent().unwrap_or(Path::new(".")));
        let unwritten = |error| CliError::unwritten(self.output.clone(), error);
        let mut writer = Writer::create(&draft.beside).map_err(unwritten)?;
        let mut failed: Option<TraceError> = None;
        let activity = Activity::Readings(nanoseconds(self.window));
        let imported = import::kineto(file, &scratch, activity, &mut |record| {
            writer.append(&record).map_err(|error| {
                failed = Some(error);
                io::ErrorKind::Other.into()
            })
        });
        if let Some(error) = failed {
            return Err(unwritten(error));
        }
        let imported = imported.map_err(|source| error(&self.file, &self.output, source))?;
        writer.finish().map_err(unwritten)?;
        output.place(draft)?;
        self.tell(&imported);
        Ok(())
    }

    fn tell(&self, imported: &Imported) {
        for line in lines(imported) {
            say(&format!("{}: {line}", self.file.display()));
        }
        let tally = &imported.tally;
        let took = format!("{} events over {}", tally.events, time(imported.span.len()));
        say(&format!("{took}; read the trace with: whyidle report {}", self.output.display()));
    }
}

/// What a recording lacks and what of it could not be used, a line each.
pub fn lines(imported: &Imported) -> Vec<String> {
    let tally = &imported.tally;
    let mut lines: Vec<String> =
        imported.lacks.iter().map(|lack| format!("without {}: {}", lack.what, lack.why)).collect();
    for (count, what) in [
        (tally.malformed, "events left out: not as an event should be, or of an impossible time"),
        (tally.negative, "events left out: they end before they start"),
        (tally.ambiguous, "calls of which nothing more is known: others have the same correlation id"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines
}

/// # Errors
/// It is not there or may not be read.
pub fn open(path: &Path) -> Result<File, CliError> {
    File::open(path).map_err(|source| error(path, path, ImportError::Read(source)))
}

pub fn error(path: &Path, output: &Path, source: ImportError) -> CliError {
    match source {
        ImportError::Scratch(source) => CliError::Write { path: output.to_owned(), source },
        source => CliError::Import { path: path.to_owned(), source },
    }
}

/// A device window, at least a millisecond.
pub fn window(text: &str) -> Result<Duration, String> {
    let window = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&window) {
        return Err("a device's window lasts from 1ms to 1h".into());
    }
    Ok(window)
}

pub fn nanoseconds(window: Duration) -> u64 {
    u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)
}

fn time(ns: u64) -> String {
    humantime::format_duration(Duration::from_micros(ns / 1000)).to_string()
}
