//! What the kernel side's programs cost, by the kernel's own statistics, in short bursts: keeping those
//! statistics costs something too.

use std::collections::BTreeMap;
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
    /// What was measured holds no more.
    stale: bool,
}

#[derive(Debug)]
struct Burst {
    began: Ns,
    before: BTreeMap<String, u64>,
    /// The statistics are kept while this is open.
    _statistics: OwnedFd,
}

impl KernelCost {
    /// What the programs do has changed: the next burst begins with the next tick.
    pub fn again(&mut self) {
        self.stale = true;
    }

    /// Call every tick. At the end of a burst: processor time of each program per time passed.
    pub fn tick(&mut self, tick: u64, now: Ns, tracer: &Tracer) -> Option<Vec<(String, f64)>> {
        if let Some(burst) = self.burst.take() {
            let passed = now.saturating_sub(burst.began).max(1) as f64;
            let per_time = |(name, ns): (String, u64)| {
                let spent = ns.saturating_sub(burst.before.get(&name).copied().unwrap_or(0));
                (name, spent as f64 / passed)
            };
            return Some(spent(tracer).into_iter().map(per_time).collect());
        }
        if tick % EVERY == FIRST || std::mem::take(&mut self.stale) {
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

/// Time spent in each program, all its copies together.
fn spent(tracer: &Tracer) -> BTreeMap<String, u64> {
    let mut spent = BTreeMap::new();
    for (name, ns, _) in tracer.run_times() {
        *spent.entry(name).or_default() += ns;
    }
    spent
}
