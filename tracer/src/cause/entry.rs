//! What a walk yields: shares of a stretch of time, each with the chain that explains it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Culprit, Mechanism};
use crate::timeline::apportion;
use crate::trace::{FileId, StackId, ThreadKey};

/// One link of a chain as the walk sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    pub thread: ThreadKey,
    pub state: &'static str,
    /// In words, without thread or process ids, so that equal roles merge.
    pub what: Arc<str>,
    /// The thread the chain goes on in.
    pub waits_for: Option<ThreadKey>,
}

/// What makes two shares the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// The outermost claiming link so far.
    pub claim: Option<Mechanism>,
    pub leaf: Mechanism,
    pub culprit: Option<Culprit>,
    /// Why it is not explained.
    pub reason: Option<Arc<str>>,
    /// The leaf first; the device's side is pushed last.
    pub steps: Vec<Step>,
}

/// What is shown of the longest share that went into an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub ns: u64,
    /// Kernel and user stack of each step, in the order of [`Key::steps`].
    pub stacks: Vec<(StackId, StackId)>,
    pub file: Option<FileId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Key,
    pub ns: u64,
    pub shown: Shown,
    /// Its own stack lies in import machinery.
    pub importing: bool,
}

/// A link that names the mechanism whatever the chain behind it ends in.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub mechanism: Mechanism,
    pub culprit: Option<Culprit>,
    pub unless: Unless,
}

/// What a claim leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unless {
    Nothing,
    /// A chain that ends in a wait for a file.
    FileWait,
    /// That, or one that ends in a wait for a processor.
    FileOrProcessorWait,
    /// A chain that ends in local storage.
    Storage,
    /// Anything but import machinery.
    NotImporting,
}

impl Claim {
    pub(crate) fn new(mechanism: Mechanism, culprit: Option<Culprit>) -> Self {
        Self { mechanism, culprit, unless: Unless::Nothing }
    }

    fn holds(&self, entry: &Entry) -> bool {
        let leaf = entry.key.leaf;
        match self.unless {
            Unless::Nothing => true,
            Unless::FileWait => !is_file(leaf),
            Unless::FileOrProcessorWait => !is_file(leaf) && leaf.stage() != super::Stage::Schedule,
            Unless::Storage => !is_storage(leaf),
            Unless::NotImporting => entry.importing,
        }
    }
}

fn is_file(leaf: Mechanism) -> bool {
    is_storage(leaf) || leaf == Mechanism::NetworkFs
}

fn is_storage(leaf: Mechanism) -> bool {
    leaf.stage() == super::Stage::Storage
}

impl Entry {
    /// A share that a single step explains.
    pub(crate) fn leaf(ns: u64, leaf: Mechanism, culprit: Option<Culprit>, step: Step) -> Self {
        Self {
            key: Key { claim: None, leaf, culprit, reason: None, steps: vec![step] },
            ns,
            shown: Shown { ns, stacks: vec![(0, 0)], file: None },
            importing: false,
        }
    }

    pub(crate) fn unexplained(ns: u64, reason: impl Into<Arc<str>>, step: Step) -> Self {
        let mut entry = Self::leaf(ns, Mechanism::Unexplained, None, step);
        entry.key.reason = Some(reason.into());
        entry
    }

    pub(crate) fn with_stacks(mut self, kernel: StackId, user: StackId) -> Self {
        self.shown.stacks = vec![(kernel, user)];
        self
    }

    /// Puts a link nearer the device in front.
    pub(crate) fn behind(mut self, step: Step, stacks: (StackId, StackId), claim: Option<&Claim>) -> Self {
        self.key.steps.push(step);
        self.shown.stacks.push(stacks);
        self.claimed(claim)
    }

    pub(crate) fn claimed(mut self, claim: Option<&Claim>) -> Self {
        if let Some(claim) = claim.filter(|c| c.holds(&self)) {
            self.key.claim = Some(claim.mechanism);
            if claim.culprit.is_some() {
                self.key.culprit.clone_from(&claim.culprit);
            }
        }
        self
    }

    pub(crate) fn mechanism(&self) -> Mechanism {
        self.key.claim.unwrap_or(self.key.leaf)
    }
}

/// Joins equal shares; the order is that of the keys, so it depends on nothing else.
pub(crate) fn join(entries: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    let mut joined: BTreeMap<Key, (u64, Shown, bool)> = BTreeMap::new();
    for entry in entries.into_iter().filter(|e| e.ns > 0) {
        let slot = joined.entry(entry.key).or_insert_with(|| (0, entry.shown.clone(), entry.importing));
        slot.0 += entry.ns;
        if entry.shown.ns > slot.1.ns {
            slot.1 = entry.shown;
        }
        slot.2 |= entry.importing;
    }
    joined.into_iter().map(|(key, (ns, shown, importing))| Entry { key, ns, shown, importing }).collect()
}

/// Shares of one item whose whole chains are kept: of one next to the device, and of those behind it ever fewer.
const WHOLE_CHAINS: usize = 256;
const LEAST_WHOLE_CHAINS: usize = 16;

/// Of many shares the small ones lose the middle of their chains, so that they become few. Nothing of what they are
/// put down to is lost.
pub(crate) fn thin(entries: Vec<Entry>, depth: usize) -> Vec<Entry> {
    let whole = WHOLE_CHAINS
        .checked_shr(u32::try_from(depth).unwrap_or(u32::MAX))
        .unwrap_or(0)
        .max(LEAST_WHOLE_CHAINS);
    if entries.len() <= whole {
        return entries;
    }
    let mut by_size: Vec<u64> = entries.iter().map(|e| e.ns).collect();
    by_size.sort_unstable_by(|a, b| b.cmp(a));
    let least = by_size[whole];
    let shorten = |mut entry: Entry| {
        let links = entry.key.steps.len();
        if entry.ns <= least && links > 2 {
            entry.key.steps.drain(1..links - 1);
            entry.shown.stacks.drain(1..links - 1);
        }
        entry
    };
    join(entries.into_iter().map(shorten))
}

/// The same shares, summing to `mass`.
pub(crate) fn scale(entries: &[Entry], mass: u64) -> Vec<Entry> {
    let weights: Vec<u64> = entries.iter().map(|e| e.ns).collect();
    let parts = apportion(mass, &weights);
    entries
        .iter()
        .zip(parts)
        .filter(|&(_, ns)| ns > 0)
        .map(|(entry, ns)| {
            let mut shown = entry.shown.clone();
            shown.ns = ns;
            Entry { key: entry.key.clone(), ns, shown, importing: entry.importing }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_shares_become_few_and_keep_what_they_are_put_down_to() {
        let step = |tid: u32| Step {
            thread: ThreadKey { tid, start_ticks: 1 },
            state: "blocked",
            what: "waits".into(),
            waits_for: None,
        };
        let entry = |i: u32| {
            let leaf = if i.is_multiple_of(2) { Mechanism::StorageRead } else { Mechanism::LockGil };
            let middle = 10 + i;
            let entry = Entry::leaf(u64::from(i) + 1, leaf, None, step(1)).behind(step(middle), (0, 0), None);
            entry.behind(step(2), (0, 0), None)
        };
        let entries: Vec<Entry> = (0..5_000).map(entry).collect();
        let sum = |entries: &[Entry], leaf| {
            entries.iter().filter(|e| e.key.leaf == leaf).map(|e| e.ns).sum::<u64>()
        };
        let thinned = thin(entries.clone(), 0);
        assert!(thinned.len() <= WHOLE_CHAINS + 2, "{}", thinned.len());
        for leaf in [Mechanism::StorageRead, Mechanism::LockGil] {
            assert_eq!(sum(&thinned, leaf), sum(&entries, leaf));
        }
        assert!(thinned.iter().all(|e| e.key.steps.len() == e.shown.stacks.len()));
        assert!(thinned.iter().any(|e| e.ns == 5_000 && e.key.steps.len() == 3));
    }
}
