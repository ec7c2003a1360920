//! Flame graphs: where the GPU's idle time, the threads' waits and the processors' time went.
//!
//! Each kind folds its input into a [`Flame`], two of which make a [`Difference`]; [`Format`] says how either is
//! written.

mod colour;
mod difference;
mod format;
mod frame;
mod idle;
mod legend;
mod pprof;
mod speedscope;
mod stack;
mod svg;
mod threads;
mod wakers;

#[cfg(test)]
mod format_tests;

use std::collections::{BTreeMap, BTreeSet};

pub use difference::{Difference, Pair, idle_and_busy};
pub use format::{Format, folded};
pub use idle::idle;
pub use svg::svg;
pub use threads::{offcpu, oncpu};
pub use wakers::wakers;

use super::figure::{TIE, grouped, share, time};
use crate::cause::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Width is idle GPU time; frames go from the device down the wait chain.
    Idle,
    /// Width is time the watched threads were blocked.
    OffCpu,
    /// Width is processor time of the watched threads, from samples.
    OnCpu,
    /// Width is time the watched threads were blocked; the frames go on in who ended that.
    Wakers,
}

impl Kind {
    /// What the width is, in one word.
    fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::OffCpu | Self::Wakers => "blocked",
            Self::OnCpu => "cpu",
        }
    }
}

/// Stacks with their weight in nanoseconds, ready to print or draw. Frames are safe to print and to fold.
#[derive(Clone, Debug)]
pub struct Flame {
    pub kind: Kind,
    /// Length of what was looked at: the recording, or the largest device window.
    pub window_ns: u64,
    pub lost: u64,
    /// Weight of the stacks that were taken and walked to the start of their thread.
    pub complete_ns: u64,
    /// Weight of the stacks that have, or should have, function frames.
    pub stacked_ns: u64,
    /// Outermost frame first.
    stacks: BTreeMap<Vec<String>, u64>,
    /// The stage that a stack serves, for colours; nothing where stages do not apply.
    stages: BTreeMap<Vec<String>, Stage>,
}

#[derive(Debug, thiserror::Error)]
pub enum FlameError {
    #[error(
        "no idle GPU time is known in this trace, so there is nothing to draw; --kind offcpu shows where threads waited"
    )]
    NoIdle,
    #[error("no watched thread was seen waiting in this trace, so there is nothing to draw")]
    NoWait,
    #[error("this trace holds no CPU samples, so there is nothing to draw; --kind offcpu shows waits")]
    NoSample,
    #[error(
        "this trace has no time in which a GPU is known to be {0}, so there is nothing to compare; --kind offcpu shows all waits"
    )]
    NoSide(&'static str),
    #[error("one of the traces is of no length, so there is nothing to compare")]
    NoLength,
    #[error("what is compared does not differ, so there is nothing to draw")]
    NoDifference,
    #[error("drawing failed: {source}")]
    Draw {
        #[from]
        source: std::io::Error,
    },
}

impl Flame {
    fn new(kind: Kind, window_ns: u64, lost: u64) -> Self {
        let (stacks, stages) = (BTreeMap::new(), BTreeMap::new());
        Self { kind, window_ns, lost, complete_ns: 0, stacked_ns: 0, stacks, stages }
    }

    /// One of the same kind and window, without stacks.
    fn empty(&self) -> Self {
        Self::new(self.kind, self.window_ns, self.lost)
    }

    /// Adds a stack, outermost frame first, each already through [`frame::safe`].
    fn add(&mut self, stack: Vec<String>, stage: Option<Stage>, ns: u64) {
        if ns == 0 {
            return;
        }
        if let Some(stage) = stage {
            self.stages.insert(stack.clone(), stage);
        }
        let weight = self.stacks.entry(stack).or_default();
        *weight = weight.saturating_add(ns);
    }

    /// Notes for a stack of weight `ns` whether it was walked to the start of its thread.
    fn judge(&mut self, complete: bool, ns: u64) {
        self.stacked_ns = self.stacked_ns.saturating_add(ns);
        if complete {
            self.complete_ns = self.complete_ns.saturating_add(ns);
        }
    }

    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.stacks.values().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// What the picture shows, in one line.
    #[must_use]
    pub fn title(&self) -> String {
        match self.kind {
            Kind::Idle => "Idle GPU time: what the GPU waited for, from the device down",
            Kind::OffCpu => "Blocked time of the watched threads",
            Kind::OnCpu => "Processor time of the watched threads",
            Kind::Wakers => "Blocked time of the watched threads, and above it who ended the wait",
        }
        .to_owned()
    }

    /// Window, losses and share of complete stacks, in one line.
    #[must_use]
    pub fn subtitle(&self) -> String {
        let (total, window) = (time(self.total_ns()), time(self.window_ns));
        let what = match self.kind {
            Kind::Idle => match self.stacks.keys().map(|s| s.first()).collect::<BTreeSet<_>>().len() {
                0 | 1 => format!("{total} idle in a window of {window}"),
                n => format!("{total} idle on {n} GPUs together, each in a window of at most {window}"),
            },
            Kind::OffCpu | Kind::Wakers => {
                format!("{total} blocked, all threads together, in a recording of {window}")
            }
            Kind::OnCpu => format!("{total} running, all threads together, in a recording of {window}"),
        };
        format!("{what}; {}; {}", told_lost(self.lost), self.told_complete()).replace(TIE, " ")
    }

    fn told_complete(&self) -> String {
        if self.stacked_ns == 0 {
            return "no stacks".to_owned();
        }
        format!("complete stacks for {}", share(self.complete_ns, self.stacked_ns))
    }

    /// Why there is nothing to draw, if there is nothing.
    fn drawable(&self) -> Result<(), FlameError> {
        match self.kind {
            _ if !self.stacks.is_empty() => Ok(()),
            Kind::Idle => Err(FlameError::NoIdle),
            Kind::OffCpu | Kind::Wakers => Err(FlameError::NoWait),
            Kind::OnCpu => Err(FlameError::NoSample),
        }
    }
}

fn told_lost(lost: u64) -> String {
    match lost {
        0 => "no record lost".to_owned(),
        1 => "1 record lost".to_owned(),
        n => format!("{} records lost", grouped(n)),
    }
}
