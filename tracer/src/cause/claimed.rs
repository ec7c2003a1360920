//! Work that a mechanism of the feeding thread's own claims, such as a run after a synchronise: it is that one's in the
//! terms of the operational law too, else what the work itself is would give back the same time once more.

use std::collections::BTreeMap;

use super::{Cause, Mechanism, Stage};
use crate::timeline::apportion;

/// Time of the feeding thread's own that a mechanism has in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    by: Mechanism,
    /// What it would be else; `None` where the ledger does not say.
    of: Option<Mechanism>,
    ns: u64,
}

/// A claimed part whose work is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    by: Mechanism,
    of: Mechanism,
    ns: u64,
}

/// Known to the ledger alone: it is about what the feeding thread asks of the device.
pub(super) fn is_feeders(mechanism: Mechanism) -> bool {
    matches!(mechanism.stage(), Stage::Copy | Stage::Launch)
}

/// Of copies only what has another end: else the thread waits in them, and does no work.
pub(super) fn claimed(causes: &[Cause]) -> Vec<Claimed> {
    let works = |c: &&Cause| {
        is_feeders(c.mechanism) && (c.leaf != c.mechanism || c.mechanism == Mechanism::LaunchBound)
    };
    let part =
        |c: &Cause| Claimed { by: c.mechanism, of: (c.leaf != c.mechanism).then_some(c.leaf), ns: c.ns };
    causes.iter().filter(works).map(part).collect()
}

/// What of the thread's path each is. Where the ledger does not say, it is of all that it did there, as far as it is not
/// known to be another's.
pub(super) fn of_work(claimed: &[Claimed], path: &BTreeMap<Mechanism, u64>) -> Vec<Work> {
    let mut left = path.clone();
    let mut work = Vec::new();
    for part in claimed {
        if let Some(of) = part.of {
            let known = Work { by: part.by, of, ns: part.ns };
            known.leave_out(&mut left);
            work.push(known);
        }
    }
    left.retain(|m, ns| matches!(m.stage(), Stage::Prepare | Stage::Memory) && *ns > 0);
    for part in claimed.iter().filter(|part| part.of.is_none()) {
        let weights: Vec<u64> = left.values().copied().collect();
        let parts = apportion(part.ns.min(weights.iter().sum()), &weights);
        let of_it: Vec<Work> = left.keys().zip(parts).map(|(&of, ns)| Work { by: part.by, of, ns }).collect();
        of_it.iter().for_each(|part| part.leave_out(&mut left));
        work.extend(of_it);
    }
    work
}

impl Work {
    /// Takes it from what the work itself would give back.
    pub(super) fn leave_out(&self, removable: &mut BTreeMap<Mechanism, u64>) {
        if let Some(ns) = removable.get_mut(&self.of) {
            *ns = ns.saturating_sub(self.ns);
        }
    }

    /// Gives it to the one that claims it.
    pub(super) fn hand_over(&self, by: &mut BTreeMap<Mechanism, u64>) {
        let Some(ns) = by.get_mut(&self.of) else { return };
        let part = self.ns.min(*ns);
        *ns -= part;
        *by.entry(self.by).or_default() += part;
    }
}
