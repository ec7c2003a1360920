//! The term of the operational law for the processors: what the job's threads ran, and what they may run on.

use std::collections::{BTreeMap, BTreeSet};

use super::claimed::Work;
use super::jobs::is_own;
use super::terms::{Loads, Term, per};
use super::walk::Walker;
use super::{Mechanism, Stage, groups, team};
use crate::timeline::Thread;
use crate::trace::{Span, ThreadKey};

/// What the job's threads did on processors.
pub(super) struct Ran<'t> {
    job: Vec<&'t Thread>,
    /// Of those that batches pass through: others run as long as they run, not once a step.
    ns: u64,
    /// Of threads on chains, by what they ran.
    by: BTreeMap<Mechanism, u64>,
}

impl<'t> Ran<'t> {
    pub(super) fn of(
        walker: &Walker<'t>,
        window: Span,
        feeder: ThreadKey,
        loads: &Loads,
        claimed: &[Work],
    ) -> Self {
        let context = &walker.context;
        let chains: BTreeSet<u32> =
            loads.values().flatten().filter_map(|(key, _)| context.thread(*key)).map(|t| t.pid).collect();
        let pid = context.thread(feeder).map_or(0, |t| t.pid);
        let own = |t: &&Thread| is_own(t) && (chains.contains(&t.pid) || context.jobs.together(pid, t.pid));
        let job: Vec<&Thread> = context.timeline.threads.values().filter(own).collect();
        let mut by: BTreeMap<Mechanism, u64> = BTreeMap::new();
        for (&mechanism, &ns) in loads.values().flatten().flat_map(|(_, load)| &load.ran) {
            if matches!(mechanism.stage(), Stage::Prepare | Stage::Memory) {
                let slot = by.entry(mechanism).or_default();
                *slot = slot.saturating_add(ns);
            }
        }
        for part in claimed {
            part.hand_over(&mut by);
        }
        let chained: BTreeSet<ThreadKey> = loads.values().flatten().map(|(key, _)| *key).collect();
        let on_chain = |t: &&&Thread| {
            chained.contains(&t.key) || (chains.contains(&t.pid) && context.team(t.pid).contains(&t.key))
        };
        let sum = |ns: u64, t: &&Thread| ns.saturating_add(on_processors(t, window));
        let ns =
            job.iter().filter(on_chain).fold(0, sum).max(by.values().copied().fold(0, u64::saturating_add));
        Self { ns, job, by }
    }

    /// Threads of the job that have no processor wait for what others of it run: without a mechanism its part of
    /// those waits goes too.
    pub(super) fn take_along(&self, term: &mut Term) {
        let queued = term.removable.get(&Mechanism::ScheduleOversubscribed).copied().unwrap_or(0);
        for (&mechanism, &ns) in &self.by {
            if let Some(removable) = term.removable.get_mut(&mechanism) {
                *removable = removable.saturating_add(per(queued, self.ns, ns)).min(term.ns);
            }
        }
    }

    /// What the job ran in each group that has a quota, in or above which its threads are.
    fn groups(&self, walker: &Walker<'_>, window: Span) -> Vec<Group> {
        let mut groups: BTreeMap<(&str, u64), u64> = BTreeMap::new();
        for thread in &self.job {
            let ran = on_processors(thread, window);
            for key in groups::quotas(&walker.context, thread) {
                let slot = groups.entry(key).or_default();
                *slot = slot.saturating_add(ran);
            }
        }
        groups.into_iter().map(|((_, quota), ns)| Group { quota, ns }).collect()
    }

    /// The job's running time over the processors it may use.
    pub(super) fn term(&self, walker: &Walker<'_>, window: Span) -> Term {
        let online = u64::try_from(walker.context.timeline.host.online_cpus.len()).unwrap_or(0).max(1) * 1000;
        let last = self.job.iter().filter_map(|t| t.off_cpu.last());
        let allowed = last.map(|o| u64::from(o.cpus_allowed).saturating_mul(1000)).filter(|&n| n > 0);
        let mask = allowed.max().unwrap_or(online).min(online);
        let held = tightest(&self.groups(walker, window), mask);
        let within = held.map_or(0, |group| over(group.ns, group.quota));
        let free = over(self.ns, mask);
        let mut term = Term::new("the processors", free.max(within).min(window.len()));
        let whole = term.ns;
        let quota = held.filter(|_| within > free).map_or(mask, |group| group.quota);
        term.removable.insert(Mechanism::ScheduleThrottled, whole.saturating_sub(free));
        let wide = over(self.ns, online).max(within);
        term.removable.insert(Mechanism::ScheduleAffinity, whole.saturating_sub(wide));
        // Threads in each other's way cost no processor but what they spin for each other. What they work they would
        // work without the others too.
        let spun = self.job.iter().map(|t| spun(walker, t, window)).fold(0, u64::saturating_add);
        term.removable.insert(Mechanism::ScheduleOversubscribed, over(spun, quota).min(whole));
        for (&mechanism, &ns) in &self.by {
            term.removable.insert(mechanism, over(ns, quota).min(whole));
        }
        term
    }
}

/// Threads that share a quota, in thousandths of a processor, and what they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    quota: u64,
    ns: u64,
}

/// Of the groups that may use less than the mask gives the one that needs longest.
fn tightest(groups: &[Group], mask: u64) -> Option<Group> {
    let held = groups.iter().filter(|g| g.quota < mask);
    held.copied().max_by_key(|g| (over(g.ns, g.quota), std::cmp::Reverse(g.quota)))
}

/// `ns` of one processor's time on some thousandths of one.
fn over(ns: u64, thousandths: u64) -> u64 {
    u64::try_from(u128::from(ns) * 1000 / u128::from(thousandths.max(1))).unwrap_or(u64::MAX)
}

/// How long a thread spun at the barriers of its team.
fn spun(walker: &Walker<'_>, thread: &Thread, window: Span) -> u64 {
    team::spinning(&walker.context, thread, window, on_processors(thread, window))
}

/// How long a thread was on processors, its short waits left out.
fn on_processors(thread: &Thread, window: Span) -> u64 {
    let ran = thread.running_before(window.end) - thread.running_before(window.start);
    ran.saturating_sub(thread.shorts(window).ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_holds_for_the_threads_that_are_under_it() {
        // A trainer without a quota of its own, and a child that may use a tenth of a processor and hardly runs.
        let (all, child) = (Group { quota: 4000, ns: 45 }, Group { quota: 100, ns: 1 });
        assert_eq!(tightest(&[all, child], 8000), Some(all));
        assert_eq!(tightest(&[all, child], 2000), Some(child), "the mask is tighter than the first");
        assert_eq!(
            tightest(&[all, Group { quota: 100, ns: 9 }], 8000).map(|g| over(g.ns, g.quota)),
            Some(90)
        );
        assert_eq!(tightest(&[all], 4000), None);
    }
}
