//! What a probe on a function costs here, and whether a process under a seccomp filter bears one on a return:
//! both tried on a function of our own, before the watched job is touched.

use std::time::{Duration, Instant};

use super::cuda::Layer;
use super::filtered;
use super::probed::{self, probed};
use super::undo::Detaching;
use super::uprobes::Uprobes;

const BATCHES: u32 = 8;
const CALLS: u32 = 40;

/// Time that probes add to a call, as measured on this machine, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapCost {
    /// A probe on the entry alone.
    pub entry_ns: u64,
    /// What a probe on the return adds to that.
    pub return_ns: u64,
}

impl TrapCost {
    /// Of the time between a call's entry and its return as their programs see them: what the probes take
    /// themselves. The programs run about half-way through their traps.
    #[must_use]
    pub const fn inside_call_ns(self) -> u64 {
        (self.entry_ns + self.return_ns) / 2
    }
}

/// What was found out.
#[derive(Debug)]
pub struct Tried {
    pub cost: TrapCost,
    /// Why returns must not be probed, if so.
    pub no_returns: Option<String>,
    /// The probes it took.
    pub detaching: Detaching,
}

/// Takes some tens of milliseconds.
///
/// # Errors
/// No probe at all could be put on a function of our own.
pub(super) fn try_out(uprobes: &mut Uprobes) -> Result<Tried, String> {
    let (path, offset) = probed::place().map_err(|e| e.to_string())?;
    let bare = per_call();
    let mut held = vec![uprobes.link_one("cuda_submit", Layer::Frequent, &path, offset)?];
    let entry = per_call();
    let (both, no_returns) = match uprobes.link_one("cuda_return", Layer::Rare, &path, offset) {
        Ok(link) => {
            held.push(link);
            let both = per_call();
            let runs = || uprobes.runs(Layer::Rare).returns;
            (both, filtered::survives_return_probe(&runs).err())
        }
        Err(reason) => (entry, Some(reason)),
    };
    let cost = TrapCost { entry_ns: entry.saturating_sub(bare), return_ns: both.saturating_sub(entry) };
    Ok(Tried { cost, no_returns, detaching: Detaching::new(held) })
}

/// The least of some means: whoever else wants the processor only ever adds to them.
fn per_call() -> u64 {
    let mean = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / u64::from(CALLS);
    let batch = |_| {
        let begun = Instant::now();
        let mut x = 0;
        for _ in 0..CALLS {
            x = probed(x);
        }
        std::hint::black_box(x);
        mean(begun.elapsed())
    };
    (0..BATCHES).map(batch).min().unwrap_or(0)
}
