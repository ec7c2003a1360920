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
    /// Of all of them: what a quota is for.
    all_ns: u64,
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
                *by.entry(mechanism).or_default() += ns;
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
        let ns = job.iter().filter(on_chain).fold(0, sum).max(by.values().sum());
        Self { all_ns: job.iter().fold(0, sum).max(ns), ns, job, by }
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

    /// How long the job needs on as many thousandths of a processor as its mask and its quota give it.
    fn need(&self, mask: u64, quota: u64) -> u64 {
        let within = if quota < mask { over(self.all_ns, quota) } else { 0 };
        over(self.ns, mask).max(within)
    }

    /// The job's running time over the processors it may use.
    pub(super) fn term(&self, walker: &Walker<'_>, window: Span) -> Term {
        let online = u64::try_from(walker.context.timeline.host.online_cpus.len()).unwrap_or(0).max(1);
        let last = self.job.iter().filter_map(|t| t.off_cpu.last());
        let allowed = last.map(|o| u64::from(o.cpus_allowed)).filter(|&n| n > 0);
        let mask = allowed.max().unwrap_or(online).min(online);
        let (online, mask) = (online * 1000, mask * 1000);
        let quotas = self.job.iter().flat_map(|t| groups::quotas(&walker.context, t));
        let quota = quotas.min().unwrap_or(u64::MAX).max(1);
        let mut term = Term::new("the processors", self.need(mask, quota).min(window.len()));
        let whole = term.ns;
        let throttled = whole.saturating_sub(self.need(mask, u64::MAX));
        let affinity = whole.saturating_sub(self.need(online, quota));
        let quota = quota.min(mask);
        term.removable.insert(Mechanism::ScheduleThrottled, throttled);
        term.removable.insert(Mechanism::ScheduleAffinity, affinity);
        // Threads in each other's way cost no processor but what they spin for each other. What they work they would
        // work without the others too.
        let spun: u64 = self.job.iter().map(|t| spun(walker, t, window)).sum();
        term.removable.insert(Mechanism::ScheduleOversubscribed, over(spun, quota).min(whole));
        for (&mechanism, &ns) in &self.by {
            term.removable.insert(mechanism, over(ns, quota).min(whole));
        }
        term
    }
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
    fn a_wider_mask_lifts_no_quota_and_no_quota_widens_a_mask() {
        let ran = Ran { job: Vec::new(), all_ns: 400, ns: 300, by: BTreeMap::new() };
        assert_eq!(ran.need(2000, u64::MAX), 150);
        assert_eq!((ran.need(2000, 400), ran.need(8000, 400)), (1000, 1000));
        assert_eq!((ran.need(1000, 2000), ran.need(1000, u64::MAX)), (300, 300));
    }
}
