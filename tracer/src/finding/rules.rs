//! Which mechanisms are root causes, and in which order.

use std::collections::BTreeMap;

use super::{Finding, Gpu, blame, evidence, remedies};
use crate::cause::{Cause, Ledger, Mechanism};
use crate::idle::{DeviceIdle, DeviceMap};
use crate::timeline::Timeline;

/// A finding gives back at least this share of the window...
const LEAST_SHARE: u64 = 20;
/// ...and at least this long.
const LEAST_NS: u64 = 200_000_000;

/// Findings of all devices, the largest gain first, then the largest part of the ledger.
pub(super) fn findings(
    timeline: &Timeline,
    map: &DeviceMap,
    devices: &[(DeviceIdle, Ledger)],
    gpus: &[Gpu],
) -> Vec<Finding> {
    let cases = devices.iter().zip(gpus);
    let cases = cases.map(|((idle, ledger), gpu)| evidence::Case { timeline, map, idle, ledger, gpu });
    let mut findings: Vec<Finding> = cases.flat_map(|case| of_device(&case)).collect();
    findings.sort_by(|a, b| {
        let largest = (b.gain_ns, b.ns).cmp(&(a.gain_ns, a.ns));
        largest.then_with(|| (a.mechanism, a.gpu).cmp(&(b.mechanism, b.gpu)))
    });
    findings
}

fn of_device(case: &evidence::Case<'_>) -> Vec<Finding> {
    let (idle, ledger) = (case.idle, case.ledger);
    let mut by_mechanism: BTreeMap<Mechanism, Vec<&Cause>> = BTreeMap::new();
    for cause in ledger.causes.iter().filter(|c| c.mechanism.is_finding()) {
        by_mechanism.entry(cause.mechanism).or_default().push(cause);
    }
    by_mechanism
        .into_iter()
        .filter_map(|(mechanism, causes)| {
            let gain_ns: u64 = causes.iter().map(|c| c.gain_ns).sum();
            let large = u128::from(gain_ns) * u128::from(LEAST_SHARE) >= u128::from(idle.window.len());
            (large && gain_ns >= LEAST_NS).then(|| Finding {
                mechanism,
                gpu: idle.device,
                title: title(mechanism, &causes),
                gain_ns,
                ns: causes.iter().map(|c| c.ns).sum(),
                evidence: evidence::of(case, mechanism, &causes),
                remedy: remedies::remedy(mechanism).to_owned(),
            })
        })
        .collect()
}

fn title(mechanism: Mechanism, causes: &[&Cause]) -> String {
    let words = remedies::title(mechanism);
    match blame::culprit(causes) {
        Some(culprit) => format!("{words}: {}", culprit.name),
        None => words.to_owned(),
    }
}
