//! `whyidle flame`: a trace, or the difference of two, as a flame graph or in the form of another viewer.

use std::fs::File;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::analyse::{Analysis, analyse};
use super::error::CliError;
use super::output::{self, Output};
use super::range::Range;
use crate::idle;
use crate::render::flame::{self, Difference, Pair};
use crate::trace::TraceError;

#[derive(Clone, Debug, Args)]
pub struct Flame {
    /// The trace to read
    file: PathBuf,
    #[arg(long, value_enum, default_value_t = Kind::Idle)]
    kind: Kind,
    #[arg(long, value_enum, default_value_t = Format::Svg)]
    format: Format,
    /// The same as `--format folded`
    #[arg(long, conflicts_with = "format")]
    folded: bool,
    /// Where it goes; folded and speedscope without it print
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draws what is more here than in this other trace, and what is less, per second
    #[arg(long, value_name = "TRACE")]
    against: Option<PathBuf>,
    /// Only this GPU, by its NVML index
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// Folder with debuginfo files, for frames without a name; repeatable
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Overwrites the output file
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Idle GPU time by wait chain
    Idle,
    /// Blocked time by stack
    #[value(name = "offcpu")]
    OffCpu,
    /// Processor time by stack
    #[value(name = "oncpu")]
    OnCpu,
    /// Blocked time by stack and, above it, the stack of who ended the wait
    Wakers,
    /// Blocked time while the GPU stood idle less that while it was busy, each per second
    Diff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Picture
    Svg,
    /// One line a stack
    Folded,
    /// JSON of speedscope
    Speedscope,
    /// Gzipped profile of pprof
    Pprof,
}

impl Flame {
    pub fn run(&self) -> Result<(), CliError> {
        let format = if self.folded { Format::Folded } else { self.format };
        if self.output.is_none() && matches!(format, Format::Svg | Format::Pprof) {
            return Err(CliError::NeedsOutput);
        }
        if self.kind == Kind::Diff && self.against.is_some() {
            return Err(CliError::DiffAgainst);
        }
        let inputs: Vec<_> = std::iter::once(&self.file).chain(&self.against).map(PathBuf::as_path).collect();
        for input in &inputs {
            // Before the output's file is made, which may have the name of an input that is missing.
            File::open(input).map_err(|source| TraceError::Open { path: input.to_path_buf(), source })?;
        }
        let claim = |path| Output::claim_apart(path, self.force, &inputs);
        let output = self.output.as_deref().map(claim).transpose()?;
        let content = self.content(format)?;
        match output {
            Some(output) => output.fill(&content),
            None => output::print(&String::from_utf8_lossy(&content)),
        }
    }

    fn content(&self, format: Format) -> Result<Vec<u8>, CliError> {
        let read = |path| analyse(path, Range::default(), self.gpu, &self.debug_dir);
        let here = read(&self.file)?;
        let format = match format {
            Format::Svg => flame::Format::Svg,
            Format::Folded => flame::Format::Folded,
            Format::Speedscope => flame::Format::Speedscope,
            Format::Pprof => flame::Format::Pprof,
        };
        if self.kind == Kind::Diff {
            let sides = idle::sides(&here.devices);
            return Ok(flame::idle_and_busy(&here.timeline, &sides)?.write(format)?);
        }
        let first = self.draw(&here);
        let Some(other) = &self.against else { return Ok(first.write(format)?) };
        let second = self.draw(&read(other)?);
        // Where both files have one name, their folders tell them apart.
        let named = other.file_name().filter(|name| self.file.file_name() != Some(name));
        let name = named.unwrap_or(other.as_os_str()).to_string_lossy().into_owned();
        Ok(Difference::new(Pair::Traces(name), first, second)?.write(format)?)
    }

    fn draw(&self, analysis: &Analysis) -> flame::Flame {
        match self.kind {
            Kind::Idle => flame::idle(&analysis.report),
            Kind::OffCpu | Kind::Diff => flame::offcpu(&analysis.timeline),
            Kind::OnCpu => flame::oncpu(&analysis.timeline),
            Kind::Wakers => flame::wakers(&analysis.timeline),
        }
    }
}
