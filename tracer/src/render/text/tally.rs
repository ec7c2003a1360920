//! A device's causes, added up by mechanism for the lines of the ledger.

use std::collections::BTreeMap;

use crate::cause::{Cause, Mechanism, Stage};
use crate::finding::Gpu;

#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) mechanism: Mechanism,
    pub(crate) stage: Stage,
    pub(crate) ns: u64,
    pub(crate) gain_ns: u64,
    /// In the report's order: the largest first.
    pub(crate) causes: Vec<&'a Cause>,
}

/// One line a mechanism, by `ns` descending.
pub(crate) fn by_mechanism(gpu: &Gpu) -> Vec<Line<'_>> {
    let mut lines: BTreeMap<Mechanism, Line<'_>> = BTreeMap::new();
    for cause in &gpu.causes {
        let line = lines.entry(cause.mechanism).or_insert_with(|| Line {
            mechanism: cause.mechanism,
            stage: cause.stage,
            ns: 0,
            gain_ns: 0,
            causes: Vec::new(),
        });
        line.ns = line.ns.saturating_add(cause.ns);
        line.gain_ns = line.gain_ns.saturating_add(cause.gain_ns);
        line.causes.push(cause);
    }
    let mut lines: Vec<Line<'_>> = lines.into_values().collect();
    lines.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.mechanism.cmp(&b.mechanism)));
    lines
}

/// The mechanism whose absence would give back most: the largest summed `gain_ns`, then `ns`.
pub(crate) fn first_cause<'a, 'b>(lines: &'b [Line<'a>]) -> Option<&'b Line<'a>> {
    lines.iter().rev().max_by_key(|line| (line.gain_ns, line.ns))
}
