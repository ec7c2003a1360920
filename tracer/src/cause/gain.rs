//! What each cause would give back were it gone: the operational law over the window as one stretch.

use std::collections::BTreeMap;

use super::claimed::{claimed, is_feeders};
use super::merge::seconds;
use super::steps::steps;
use super::terms::{FEEDER, Term, terms};
use super::walk::Walker;
use super::{Cause, Mechanism};
use crate::idle::DeviceIdle;
use crate::timeline::{apportion, prefix_share};

/// Below this share of the stretch the largest term explains too little for the law to speak.
const COVERED_PERCENT: u64 = 90;
/// Gains that differ by less than this are the same: what they are made of is not known any better.
const ALIKE_PERCENT: u64 = 2;
/// A range of gains is said from this part of the stretch on.
const WORTH_SAYING: u64 = 100;
/// Terms that are named, the longest first.
const SHOWN_TERMS: usize = 5;

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
    let feeder = idle.main_feeder();
    let mut terms = feeder.map(|f| terms(walker, idle, f, &claimed(causes))).unwrap_or_default();
    if idle.unknown_ns > 0 {
        // What they need is told of the whole window, the device and the ledger of its known part.
        terms.iter_mut().skip(1).for_each(|term| term.scale(stretch, idle.window.len()));
    }
    let ns_of = |causes: &[Cause], members: &[usize]| members.iter().map(|&i| causes[i].ns).sum::<u64>();
    for (&mechanism, members) in &by_mechanism {
        add_missing(&mut terms, mechanism, ns_of(causes, members));
    }
    let steps = feeder.and_then(|key| walker.context.thread(key)).map_or(0, |t| steps(t, idle.window).len());
    let period = largest(&terms, None);
    let covered = u128::from(period) * 100 >= u128::from(stretch) * u128::from(COVERED_PERCENT);
    let gains = by_mechanism.keys().map(|&m| (m, (period - largest(&terms, Some(m))).min(idle.idle_ns)));
    let mut gains: BTreeMap<Mechanism, u64> = gains.collect();
    level(&mut gains);
    let beyond = stretch.saturating_sub(period).min(idle.idle_ns);
    for (mechanism, members) in by_mechanism {
        let (by_law, ns) = (gains[&mechanism], ns_of(causes, &members));
        let told = Told { terms: &terms, stretch, steps, mechanism };
        let note = if covered {
            // What the law says nothing of is given back as the ledger has it.
            let gain = by_law.saturating_add(prefix_share(beyond, idle.idle_ns, 0, ns)).min(idle.idle_ns);
            let weights: Vec<u64> = members.iter().map(|&i| causes[i].ns).collect();
            for (&i, part) in members.iter().zip(apportion(gain, &weights)) {
                causes[i].gain_ns = part;
            }
            told.by_law(by_law, gain)
        } else {
            told.by_time(by_law.min(ns))
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

/// Gains that are the same become the smallest of them, so that the ledger says which of two causes that hide each
/// other comes first.
fn level(gains: &mut BTreeMap<Mechanism, u64>) {
    let mut order: Vec<(u64, Mechanism)> = gains.iter().map(|(&m, &gain)| (gain, m)).collect();
    order.sort_unstable();
    let mut alike = 0;
    for (gain, mechanism) in order {
        if u128::from(gain) * u128::from(100 - ALIKE_PERCENT) > u128::from(alike) * 100 {
            alike = gain;
        }
        gains.insert(mechanism, alike);
    }
}

/// A mechanism that no term knows lies on the feeder's path for as long as the ledger says; so do those that are its
/// alone, of which a term may know a part: back-to-back launches and a run after a synchronise look like any running,
/// and of what happens inside a synchronise only the ledger knows.
fn add_missing(terms: &mut [Term], mechanism: Mechanism, ns: u64) {
    let known = terms.iter().any(|t| t.removable.get(&mechanism).is_some_and(|&r| r > 0));
    if (is_feeders(mechanism) || !known)
        && let Some(path) = terms.iter_mut().find(|t| t.name == FEEDER)
    {
        let known = path.removable.entry(mechanism).or_default();
        *known = (*known).max(ns.min(path.ns));
    }
}

/// The predicted length of the stretch without one mechanism. Never longer than with it.
fn largest(terms: &[Term], without: Option<Mechanism>) -> u64 {
    terms.iter().map(|t| t.without(without)).max().unwrap_or(0)
}

/// What the law was fed with, in words.
struct Told<'t> {
    terms: &'t [Term],
    stretch: u64,
    /// 0 where none are seen.
    steps: usize,
    mechanism: Mechanism,
}

impl Told<'_> {
    /// `law`: what it gives; `gain`: that and the part of what it says nothing of.
    fn by_law(&self, law: u64, gain: u64) -> String {
        let each = match self.steps {
            0 => format!("{} need", seconds(self.stretch)),
            n => format!("a step of {} ({n} steps) needs", self.length(self.stretch)),
        };
        let mut terms: Vec<&Term> = self.terms.iter().filter(|t| t.ns > 0).collect();
        terms.sort_by_key(|t| std::cmp::Reverse(t.ns));
        let needs: Vec<String> =
            terms.iter().take(SHOWN_TERMS).map(|t| format!("{} {}", t.name, self.length(t.ns))).collect();
        let next = match next_bottleneck(self.terms, self.mechanism) {
            Some(term) => {
                let left = term.without(Some(self.mechanism));
                format!(
                    "without {} the longest would be {}, {}",
                    self.mechanism,
                    term.name,
                    self.length(left)
                )
            }
            None => format!("without {} nothing is left to wait for", self.mechanism),
        };
        let more = gain.saturating_sub(law);
        let from = if more >= self.stretch / WORTH_SAYING {
            format!(
                "from {} by the operational law to {} with {} of the time that no part of the pipeline fills",
                seconds(law),
                seconds(gain),
                seconds(more)
            )
        } else {
            "by the operational law".to_owned()
        };
        format!("gain {from}; {each}, side by side: {}; {next}", needs.join(", "))
    }

    /// `least`: what the law would give.
    fn by_time(&self, least: u64) -> String {
        format!(
            "no part of the pipeline fills {COVERED_PERCENT} % of the window, so the gain is taken to be the time itself; \
             by the operational law at least {}",
            seconds(least)
        )
    }

    fn length(&self, ns: u64) -> String {
        seconds(ns / u64::try_from(self.steps).unwrap_or(u64::MAX).max(1))
    }
}

fn next_bottleneck(terms: &[Term], without: Mechanism) -> Option<&Term> {
    let mut best: Option<&Term> = None;
    for term in terms {
        if best.is_none_or(|b| term.without(Some(without)) > b.without(Some(without))) {
            best = Some(term);
        }
    }
    best.filter(|t| t.without(Some(without)) > 0)
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

    #[test]
    fn gains_that_differ_by_less_than_is_known_are_the_same() {
        let gains = [2590, 2586, 779, 771, 0].into_iter().zip(Mechanism::ALL);
        let mut gains: BTreeMap<Mechanism, u64> = gains.map(|(gain, m)| (m, gain)).collect();
        level(&mut gains);
        let mut leveled: Vec<u64> = gains.into_values().collect();
        leveled.sort_unstable();
        assert_eq!(leveled, [0, 771, 771, 2586, 2586]);
    }

    proptest! {
        #[test]
        fn removing_a_mechanism_never_lengthens_the_stretch(terms in any_terms(), m in 0..Mechanism::ALL.len()) {
            prop_assert!(largest(&terms, Some(Mechanism::ALL[m])) <= largest(&terms, None));
        }
    }
}
