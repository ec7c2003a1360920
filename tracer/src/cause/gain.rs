//! What each cause would give back were it gone: the operational law over the window as one stretch.

use std::collections::BTreeMap;

use super::terms::{FEEDER, Term, terms};
use super::walk::Walker;
use super::{Cause, Mechanism};
use crate::idle::DeviceIdle;
use crate::timeline::apportion;
use crate::trace::ThreadKey;

/// Below this share of the stretch the largest term explains too little for the law to speak.
const COVERED_PERCENT: u64 = 90;

/// Fills `gain_ns` of all causes, and says in `note` how it was found.
pub(crate) fn fill(walker: &Walker<'_>, idle: &DeviceIdle, causes: &mut [Cause]) {
    let mut by_mechanism: BTreeMap<Mechanism, Vec<usize>> = BTreeMap::new();
    for (i, cause) in causes.iter_mut().enumerate() {
        cause.gain_ns = cause.ns;
        if cause.mechanism.is_finding() {
            by_mechanism.entry(cause.mechanism).or_default().push(i);
        }
    }
    if by_mechanism.is_empty() {
        return;
    }
    let stretch = idle.window.len().saturating_sub(idle.unknown_ns);
    let mut terms = feeder(idle).map(|f| terms(walker, idle, f)).unwrap_or_default();
    let ns_of = |causes: &[Cause], members: &[usize]| members.iter().map(|&i| causes[i].ns).sum::<u64>();
    for (&mechanism, members) in &by_mechanism {
        add_missing(&mut terms, mechanism, ns_of(causes, members));
    }
    let period = largest(&terms, None);
    let covered = u128::from(period) * 100 >= u128::from(stretch) * u128::from(COVERED_PERCENT);
    for (mechanism, members) in by_mechanism {
        let note = if covered {
            let gain = (period - largest(&terms, Some(mechanism))).min(idle.idle_ns);
            let weights: Vec<u64> = members.iter().map(|&i| causes[i].ns).collect();
            for (&i, part) in members.iter().zip(apportion(gain, &weights)) {
                causes[i].gain_ns = part;
            }
            match next_bottleneck(&terms, mechanism) {
                Some(name) => format!("gain by the operational law; without it the next limit is: {name}"),
                None => "gain by the operational law".to_owned(),
            }
        } else {
            format!(
                "no part of the pipeline fills {COVERED_PERCENT} % of the window, so the gain is taken to be the time itself"
            )
        };
        for i in members {
            // A claimed chain whose end is not explained keeps its reason in front.
            causes[i].note = Some(match causes[i].note.take() {
                Some(reason) => format!("{reason}; {note}"),
                None => note.clone(),
            });
        }
    }
}

/// The thread that ended most of the idle time.
fn feeder(idle: &DeviceIdle) -> Option<ThreadKey> {
    let mut ended: BTreeMap<ThreadKey, u64> = BTreeMap::new();
    for placed in &idle.placed {
        if let Some(feeder) = placed.feeder {
            *ended.entry(feeder).or_default() += placed.span.len();
        }
    }
    for unplaced in &idle.unplaced {
        if let Some(feeder) = unplaced.feeder {
            *ended.entry(feeder).or_default() += unplaced.ns;
        }
    }
    ended.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0))).map(|(key, _)| key)
}

/// A mechanism that no term knows (back-to-back launches, or a run after a synchronise, look like any running)
/// lies on the feeder's path for as long as the ledger says.
fn add_missing(terms: &mut [Term], mechanism: Mechanism, ns: u64) {
    let known = terms.iter().any(|t| t.removable.get(&mechanism).is_some_and(|&r| r > 0));
    if !known && let Some(path) = terms.iter_mut().find(|t| t.name == FEEDER) {
        path.removable.insert(mechanism, ns.min(path.ns));
    }
}

/// The predicted length of the stretch without one mechanism. Never longer than with it.
fn largest(terms: &[Term], without: Option<Mechanism>) -> u64 {
    terms.iter().map(|t| t.without(without)).max().unwrap_or(0)
}

fn next_bottleneck(terms: &[Term], without: Mechanism) -> Option<&str> {
    let mut best: Option<&Term> = None;
    for term in terms {
        if best.is_none_or(|b| term.without(Some(without)) > b.without(Some(without))) {
            best = Some(term);
        }
    }
    best.filter(|t| t.without(Some(without)) > 0).map(|t| t.name.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_terms() -> impl Strategy<Value = Vec<Term>> {
        let removable = proptest::collection::btree_map(0..Mechanism::ALL.len(), 0..1_000_000_u64, 0..6);
        proptest::collection::vec((0..1_000_000_u64, removable), 0..8).prop_map(|terms| {
            terms
                .into_iter()
                .map(|(ns, removable)| Term {
                    name: "t".into(),
                    ns,
                    removable: removable.into_iter().map(|(m, r)| (Mechanism::ALL[m], r)).collect(),
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn removing_a_mechanism_never_lengthens_the_stretch(terms in any_terms(), m in 0..Mechanism::ALL.len()) {
            prop_assert!(largest(&terms, Some(Mechanism::ALL[m])) <= largest(&terms, None));
        }
    }
}
