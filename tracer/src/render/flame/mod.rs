//! Flame graphs: where the GPU's idle time, the threads' waits and the processors' time went.
//!
//! Each kind folds its input into a [`Flame`]; [`folded`] prints it as stacks, [`svg`] draws it.

mod colour;
mod frame;
mod idle;
mod svg;
mod threads;

use std::collections::{BTreeMap, BTreeSet};

pub use idle::idle;
pub use svg::svg;
pub use threads::{offcpu, oncpu};

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
}

/// Stacks with their weight in nanoseconds, ready to print or draw. Frames are safe to print and to fold.
#[derive(Clone, Debug)]
pub struct Flame {
    pub kind: Kind,
    /// Length of what was looked at: the recording, or the largest device window.
    pub window_ns: u64,
    pub lost: u64,
    /// Weight of the stacks all of whose frames have a name.
    pub complete_ns: u64,
    /// Weight of the stacks that have, or should have, function frames.
    pub stacked_ns: u64,
    /// Outermost frame first.
    stacks: BTreeMap<Vec<String>, u64>,
    /// Weight of each frame by the stage it serves, for colours; `None` where stages do not apply.
    stages: BTreeMap<String, BTreeMap<Option<Stage>, u64>>,
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

    /// Adds a stack, outermost frame first, each already through [`frame::safe`].
    fn add(&mut self, stack: Vec<String>, stage: Option<Stage>, ns: u64) {
        if ns == 0 {
            return;
        }
        for name in &stack {
            let weight = self.stages.entry(name.clone()).or_default().entry(stage).or_default();
            *weight = weight.saturating_add(ns);
        }
        let weight = self.stacks.entry(stack).or_default();
        *weight = weight.saturating_add(ns);
    }

    /// Notes for a stack of weight `ns` whether all its frames have a name.
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
            Kind::OffCpu => format!("{total} blocked, all threads together, in a recording of {window}"),
            Kind::OnCpu => format!("{total} running, all threads together, in a recording of {window}"),
        };
        let lost = match self.lost {
            0 => "no record lost".to_owned(),
            1 => "1 record lost".to_owned(),
            n => format!("{} records lost", grouped(n)),
        };
        let complete = if self.stacked_ns == 0 {
            "no stacks".to_owned()
        } else {
            format!("complete stacks for {}", share(self.complete_ns, self.stacked_ns))
        };
        format!("{what}; {lost}; {complete}").replace(TIE, " ")
    }
}

/// One line a stack: frames joined by `;`, a space, nanoseconds. Sorted; empty where nothing is known.
#[must_use]
pub fn folded(flame: &Flame) -> String {
    flame.stacks.iter().map(|(stack, ns)| format!("{} {ns}\n", stack.join(";"))).collect()
}
