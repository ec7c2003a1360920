//! The largest cause so far: analyses what was recorded up to now, on a thread of its own and ever more
//! seldom, so that it stays far below the budget.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use rustix::time::ClockId;

use super::analyse::analyse;
use super::range::Range;
use crate::capture::host;
use crate::capture::recorder::Progress;
use crate::cause::Mechanism;

const FIRST: Duration = Duration::from_secs(3);
/// An estimate is made again after this many times the processor time the last one took: a third of a
/// percent of one processor.
const REST: u32 = 300;
/// Larger traces are not read while they grow: that would take memory as it would time.
const LARGEST: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub mechanism: Mechanism,
    pub ns: u64,
    pub idle_ns: u64,
    pub culprit: Option<String>,
}

#[derive(Debug)]
pub struct Estimator {
    trace: PathBuf,
    running: Option<Receiver<(Option<Estimate>, Duration)>>,
    /// When, on the recording's clock, the next one may start.
    due: Duration,
    latest: Option<Estimate>,
}

impl Estimator {
    #[must_use]
    pub fn new(trace: &Path) -> Self {
        Self { trace: trace.to_owned(), running: None, due: FIRST, latest: None }
    }

    pub fn tick(&mut self, progress: &Progress) {
        if let Some(running) = &self.running {
            match running.try_recv() {
                Ok((estimate, took)) => {
                    self.latest = estimate.or(self.latest.take());
                    self.due = progress.elapsed + (took * REST).max(FIRST);
                    self.running = None;
                }
                Err(TryRecvError::Empty) => {}
                // It panicked or could not start: no more of it.
                Err(TryRecvError::Disconnected) => {
                    self.due = Duration::MAX;
                    self.running = None;
                }
            }
        } else if progress.elapsed >= self.due && progress.bytes <= LARGEST {
            let (sender, receiver) = channel();
            let trace = self.trace.clone();
            let started = std::thread::Builder::new().name("estimate".into()).spawn(move || {
                let estimate = estimate(&trace);
                let took = Duration::from_nanos(host::clock(ClockId::ThreadCPUTime));
                // Nobody waits for it once the recording is over.
                drop(sender.send((estimate, took)));
            });
            drop(started);
            self.running = Some(receiver);
        }
    }

    #[must_use]
    pub fn latest(&self) -> Option<Estimate> {
        self.latest.clone()
    }
}

fn estimate(trace: &Path) -> Option<Estimate> {
    let report = analyse(trace, Range::default(), None, &[]).ok()?.report;
    let idle_ns = report.gpus.iter().map(|g| g.idle_ns).sum();
    let mut totals: Vec<(Mechanism, u64, Option<String>)> = Vec::new();
    for cause in report.gpus.iter().flat_map(|g| &g.causes) {
        match totals.iter_mut().find(|(mechanism, ..)| *mechanism == cause.mechanism) {
            Some((_, ns, _)) => *ns += cause.ns,
            // Causes come largest first, so this culprit is the mechanism's largest.
            None => totals.push((cause.mechanism, cause.ns, cause.culprit.as_ref().map(|c| c.name.clone()))),
        }
    }
    let (mechanism, ns, culprit) = totals.into_iter().max_by_key(|(_, ns, _)| *ns)?;
    Some(Estimate { mechanism, ns, idle_ns, culprit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_cannot_be_read_gives_no_estimate_and_no_end() {
        let mut estimator = Estimator::new(Path::new("/no/such/trace"));
        let at = |seconds| Progress { elapsed: Duration::from_secs(seconds), ..Progress::default() };
        estimator.tick(&at(1));
        assert!(estimator.running.is_none());
        estimator.tick(&at(4));
        while estimator.running.is_some() {
            estimator.tick(&at(4));
            std::thread::yield_now();
        }
        assert_eq!(estimator.latest(), None);
        assert_eq!(estimator.due, Duration::from_secs(7));
    }

    #[test]
    fn a_large_trace_is_left_alone() {
        let mut estimator = Estimator::new(Path::new("/no/such/trace"));
        estimator.tick(&Progress { elapsed: FIRST, bytes: LARGEST + 1, ..Progress::default() });
        assert!(estimator.running.is_none());
    }
}
