//! What the kernel side's programs cost, by the kernel's own statistics, in short bursts: keeping those
//! statistics costs something too.

use std::os::fd::OwnedFd;

use super::tracer::Tracer;
use crate::trace::Ns;

/// Ticks between two bursts, each one tick long: a sixtieth of the time.
const EVERY: u64 = 60;
/// The first burst comes soon, so that short recordings have one.
const FIRST: u64 = 5;

#[derive(Debug, Default)]
pub struct KernelCost {
    burst: Option<Burst>,
}

#[derive(Debug)]
struct Burst {
    began: Ns,
    before: u64,
    /// The statistics are kept while this is open.
    _statistics: OwnedFd,
}

impl KernelCost {
    /// Call every tick. At the end of a burst: processor time of all programs per time passed.
    pub fn tick(&mut self, tick: u64, now: Ns, tracer: &Tracer) -> Option<f64> {
        if let Some(burst) = self.burst.take() {
            let spent = spent(tracer).saturating_sub(burst.before);
            return Some(spent as f64 / now.saturating_sub(burst.began).max(1) as f64);
        }
        if tick % EVERY == FIRST {
            match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
                Ok(statistics) => {
                    self.burst = Some(Burst { began: now, before: spent(tracer), _statistics: statistics });
                }
                Err(error) => tracing::debug!(%error, "the kernel keeps no statistics of programs"),
            }
        }
        None
    }
}

fn spent(tracer: &Tracer) -> u64 {
    tracer.run_times().iter().map(|(_, ns, _)| ns).sum()
}
