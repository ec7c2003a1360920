//! `whyidle flame`: a trace as a flame graph or as folded stacks.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::analyse::analyse;
use super::error::CliError;
use super::output::{self, Output};
use super::range::Range;
use crate::render::flame;

#[derive(Clone, Debug, Args)]
pub struct Flame {
    /// The trace to read
    file: PathBuf,
    #[arg(long, value_enum)]
    kind: Kind,
    /// Where the picture goes; `--folded` without it prints
    #[arg(short, long, value_name = "FILE", required_unless_present = "folded")]
    output: Option<PathBuf>,
    /// Folded stacks, one a line, instead of a picture
    #[arg(long)]
    folded: bool,
    /// Only this GPU, by its NVML index
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
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
}

impl Flame {
    pub fn run(&self) -> Result<(), CliError> {
        let claim = |path| Output::claim_apart(path, self.force, &[&self.file]);
        let output = self.output.as_deref().map(claim).transpose()?;
        let analysis = analyse(&self.file, Range::default(), self.gpu)?;
        let flame = match self.kind {
            Kind::Idle => flame::idle(&analysis.report),
            Kind::OffCpu => flame::offcpu(&analysis.timeline),
            Kind::OnCpu => flame::oncpu(&analysis.timeline),
        };
        let content = if self.folded { flame::folded(&flame) } else { flame::svg(&flame)? };
        match output {
            Some(output) => output.fill(content.as_bytes()),
            None => output::print(&content),
        }
    }
}
