//! Options that several verbs share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::OsStringValueParser;
use clap::{ArgAction, Args};
use tracing::level_filters::LevelFilter;

use crate::capture::cuda::policy::Mode;
use crate::capture::host;
use crate::capture::tracer::Config;

#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The NVML library to use, where it lies in no usual place (GPU operator, GKE)
    #[arg(long, global = true, env = "WHYIDLE_NVML", value_name = "PATH", value_parser = OsStringValueParser::new())]
    nvml: Option<OsString>,
    /// Says more of what it does; twice, still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

impl Common {
    /// The library named by the user. Named by nothing, as in `WHYIDLE_NVML=`, it is not named.
    #[must_use]
    pub fn nvml(&self) -> Option<&Path> {
        self.nvml.as_deref().filter(|name| !name.is_empty()).map(Path::new)
    }

    /// Diagnostics go to standard error, in the colours of a terminal only on one.
    pub fn log(&self) {
        use std::io::IsTerminal;
        let level = match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .without_time()
            .with_target(false);
        // Set already only where a test calls this twice.
        drop(subscriber.try_init());
    }
}

/// How to record; the same for every verb that does.
#[derive(Clone, Debug, Args)]
pub struct Recording {
    /// Where the trace goes [default: whyidle-TIME.whyidle in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How long to record, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Share of the machine's processor time that whyidle may take, in percent [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub budget: Option<f64>,
    /// Whether calls of the CUDA driver are watched: all as the budget allows, all, or none [default: auto]
    #[arg(long, value_name = "WHEN")]
    pub cuda: Option<Mode>,
    /// Overwrites the output file
    #[arg(long)]
    pub force: bool,
    /// Waits shorter than this are added up instead of recorded one by one
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = duration)]
    pub threshold: Option<Duration>,
    /// Character-device major taken as the NVIDIA driver's, in place of those found; repeatable
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub nvidia_major: Vec<u32>,
    /// CPU samples a second on the watched threads, 0 for none
    #[arg(long, hide_short_help = true, value_name = "HZ", value_parser = clap::value_parser!(u64).range(0..=999))]
    pub sample_hz: Option<u64>,
    /// Watches every call into the NVIDIA driver, also where only the system call's tracepoints can (there each
    /// system call of the host pays for it); without it those are watched in bursts
    #[arg(long, hide_short_help = true)]
    pub ioctls: bool,
    /// Counts every read of every file, which slows every system call on the machine a little; without it reads
    /// are counted for a third of a second in 20 s, and only while a watched process waits for storage
    #[arg(long)]
    pub reads: bool,
}

impl Recording {
    /// Whether any of these was on the command line.
    #[must_use]
    pub fn given(&self) -> bool {
        self.output.is_some()
            || self.duration.is_some()
            || self.budget.is_some()
            || self.cuda.is_some()
            || self.force
            || self.threshold.is_some()
            || !self.nvidia_major.is_empty()
            || self.sample_hz.is_some()
            || self.ioctls
            || self.reads
    }

    #[must_use]
    pub fn majors(&self) -> Vec<u32> {
        if self.nvidia_major.is_empty() { host::nvidia_majors() } else { self.nvidia_major.clone() }
    }

    #[must_use]
    pub fn config(&self, all: bool) -> Config {
        let default = Config::default();
        let threshold = self.threshold.map(|t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        Config {
            threshold_ns: threshold.unwrap_or(default.threshold_ns),
            sample_hz: self.sample_hz.unwrap_or(default.sample_hz),
            all,
            nvidia_majors: self.majors(),
            ioctls: self.ioctls,
            reads: self.reads,
            ..default
        }
    }

    /// As a share of one.
    #[must_use]
    pub fn budget(&self) -> f64 {
        self.budget.unwrap_or(1.0) / 100.0
    }
}

/// A length of time above zero; a bare number counts seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => humantime::parse_duration(text).map_err(|e| e.to_string())?,
    };
    if parsed.is_zero() { Err("must be longer than nothing".into()) } else { Ok(parsed) }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 100.0 => Ok(p),
        Ok(_) => Err("must lie above 0 and be at most 100".into()),
        Err(e) => Err(e.to_string()),
    }
}
