//! The terms of the operational law: what each part of the pipeline needs for the whole stretch, and how much
//! of that each mechanism is to blame for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ends::WAITS_FOR_DEVICE;
use super::item::item;
use super::jobs::{is_own, role};
use super::waits::{self, Next};
use super::walk::Walker;
use super::{Mechanism, Stage, calls, claims, groups, team};
use crate::idle::DeviceIdle;
use crate::timeline::{Activity, GivenWait, Slice, Thread, total, union};
use crate::trace::{Ns, Span, State, ThreadKey};

/// The term of the thread that submits.
pub(crate) const FEEDER: &str = "the feeding thread";

/// One thing that the stretch cannot be shorter than.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term {
    pub name: String,
    pub ns: u64,
    /// What would go with each mechanism; each at most `ns`.
    pub removable: BTreeMap<Mechanism, u64>,
}

impl Term {
    fn new(name: impl Into<String>, ns: u64) -> Self {
        Self { name: name.into(), ns, removable: BTreeMap::new() }
    }

    /// What is left without a mechanism.
    pub(crate) fn without(&self, mechanism: Option<Mechanism>) -> u64 {
        let removed = mechanism.and_then(|m| self.removable.get(&m)).copied().unwrap_or(0);
        self.ns.saturating_sub(removed)
    }
}

/// What one thread did with a stretch, its waits for others' items left out.
#[derive(Default)]
struct Load {
    ns: u64,
    by: BTreeMap<Mechanism, u64>,
    device_wait_ns: u64,
    /// Threads whose items it waited for, other than those nearer the device.
    givers: BTreeSet<ThreadKey>,
}

/// Stretches in which anybody on a chain waited for a disk, or for a lock.
#[derive(Default)]
struct Shared {
    storage: BTreeMap<Mechanism, Vec<Span>>,
    locks: BTreeMap<Mechanism, Vec<Span>>,
}

/// All terms of `window`, the device's own first.
pub(crate) fn terms(walker: &Walker<'_>, idle: &DeviceIdle, feeder: ThreadKey) -> Vec<Term> {
    let window = idle.window;
    let mut shared = Shared::default();
    let mut loads = Loads::new();
    let mut seen = BTreeSet::from([feeder]);
    let mut queue = VecDeque::from([(feeder, Vec::new())]);
    let mut path = Term::new(FEEDER, 0);
    while let Some((key, nearer)) = queue.pop_front() {
        let Some(thread) = walker.context.recorded(key) else { continue };
        let load = load(walker, thread, window, &nearer, &mut shared);
        let mut beyond = nearer.clone();
        beyond.push(key);
        for &giver in load.givers.iter().filter(|&&g| seen.insert(g)) {
            queue.push_back((giver, beyond.clone()));
        }
        if nearer.is_empty() {
            path.ns = load.ns;
            path.removable = removable(walker, idle, thread, &load);
        }
        let part = (nearer.len(), role(&thread.comm), thread.ppid, thread.key.tid == thread.pid);
        loads.entry(part).or_default().push((key, load));
    }
    let ran = Ran::of(walker, window, feeder, &loads);
    ran.take_along(&mut path);
    let mut terms = vec![Term::new("the GPU itself", idle.busy_ns), path];
    terms.push(processors(walker, window, &ran));
    terms.extend(
        loads
            .into_iter()
            .filter(|(role, _)| role.0 > 0)
            .map(|(role, members)| pool(walker, window, &role.1, &members))
            .map(|mut term| {
                ran.take_along(&mut term);
                term
            }),
    );
    terms.extend(disks(walker, window, &shared.storage));
    for (mechanism, spans) in shared.locks {
        let mut term = Term::new(mechanism.name(), total(&union(spans)));
        term.removable.insert(mechanism, term.ns);
        terms.push(term);
    }
    terms
}

/// What of the feeder's path goes with each mechanism. A feeder that waits for the device would only wait the
/// longer for it without the work it does beside a running kernel, so of such a one only what lies in gaps.
fn removable(
    walker: &Walker<'_>,
    idle: &DeviceIdle,
    thread: &Thread,
    load: &Load,
) -> BTreeMap<Mechanism, u64> {
    if load.device_wait_ns.saturating_mul(100) < idle.window.len() {
        return load.by.clone();
    }
    let mut in_gaps = Load::default();
    for placed in &idle.placed {
        in_gaps.join(self::load(walker, thread, placed.span, &[], &mut Shared::default()));
    }
    in_gaps.by
}

fn load(
    walker: &Walker<'_>,
    thread: &Thread,
    window: Span,
    nearer: &[ThreadKey],
    shared: &mut Shared,
) -> Load {
    let mut load = Load::default();
    // Of what a thread delivers to; the feeding one need not wake anybody.
    let starting = (!nearer.is_empty()).then(|| starting(walker, thread)).flatten();
    for slice in thread.slices_in(window) {
        let mut part = Load::default();
        match slice.activity {
            Activity::Unseen => {}
            Activity::Running | Activity::Runnable(_) => {
                for entry in walker.sums(thread.key, slice.span) {
                    if entry.key.steps.last().is_some_and(|s| s.state == WAITS_FOR_DEVICE) {
                        // Not only in gaps, so no cause of any.
                        part.device_wait_ns += entry.ns;
                        part.add(Mechanism::Unexplained, entry.ns);
                    } else {
                        part.add(entry.mechanism(), entry.ns);
                    }
                }
            }
            Activity::Blocked(i) => wait(walker, thread, i, slice, nearer, &mut part, shared),
        }
        if starting.is_some_and(|s| slice.span.end <= s.end && slice.span.start >= s.start) {
            // Whatever it does until it delivers for the first time is its start.
            part.by = BTreeMap::from([(Mechanism::ProcessSpawn, part.ns)]);
        }
        load.join(part);
    }
    load
}

impl Load {
    fn add(&mut self, mechanism: Mechanism, ns: u64) {
        self.ns += ns;
        *self.by.entry(mechanism).or_default() += ns;
    }

    fn join(&mut self, part: Self) {
        self.device_wait_ns += part.device_wait_ns;
        self.givers.extend(part.givers);
        for (mechanism, ns) in part.by {
            self.add(mechanism, ns);
        }
    }
}

fn wait(
    walker: &Walker<'_>,
    thread: &Thread,
    index: usize,
    slice: Slice,
    nearer: &[ThreadKey],
    load: &mut Load,
    shared: &mut Shared,
) {
    let context = &walker.context;
    let last = waits::last_piece(thread, index);
    let (Some(off), Some(end)) = (thread.off_cpu.get(index), thread.off_cpu.get(last)) else { return };
    let ns = slice.span.len();
    let part = calls::cut(thread, slice.span);
    if part.iter().any(|(_, call)| call.is_some_and(calls::synchronises)) {
        load.device_wait_ns += ns;
        load.add(Mechanism::Unexplained, ns);
        return;
    }
    let class = super::classify::classify(context, off);
    let call = part.first().and_then(|p| p.1);
    let claim = claims::of_wait(context, thread, off, end, class, call).map(|c| c.mechanism);
    if let Some(lock) = claim.filter(|m| m.stage() == Stage::Lock) {
        shared.locks.entry(lock).or_default().push(slice.span);
        load.add(lock, ns);
        return;
    }
    if waits::by_signal(end) && off.state != State::Stopped {
        // It waited on for what had not come.
        return;
    }
    match waits::next(context, off, end, class) {
        Next::Follow(giver) if nearer.contains(&giver) => {}
        Next::Follow(giver) => {
            let Some(by) = context.recorded(giver) else { return };
            let mut chain = nearer.to_vec();
            chain.push(thread.key);
            let item = item(context, by, thread, last, slice.span.start, &chain);
            let claimed = claim.is_some() || claims::of_peer(context, giver).is_some();
            if item.span.start >= off.left || claimed {
                // Asked for and answered inside one wait: a call, on this thread's own path. What a link
                // claims is its own as well.
                for entry in walker.sums(thread.key, slice.span) {
                    load.add(entry.mechanism(), entry.ns);
                }
            } else {
                load.givers.insert(giver);
            }
        }
        Next::Leaf(leaf, _) => {
            let mechanism = claim.unwrap_or(leaf);
            if leaf.stage() == Stage::Storage || leaf == Mechanism::MemorySwap {
                shared.storage.entry(mechanism).or_default().push(slice.span);
            }
            load.add(mechanism, ns);
        }
        Next::Unexplained(_) => load.add(claim.unwrap_or(Mechanism::Unexplained), ns),
    }
}

/// From a process's last exec to its first delivery to another process.
fn starting(walker: &Walker<'_>, thread: &Thread) -> Option<Span> {
    let context = &walker.context;
    let threads = || context.process(thread.pid).iter().filter_map(|&k| context.thread(k));
    let exec = threads().flat_map(|t| &t.execs).copied().max()?;
    let first: Option<Ns> = threads()
        .filter_map(|t| {
            let begin = t.given.partition_point(|g| g.at <= exec);
            let mut outward = t.given[begin..].iter().filter(|g| matches!(g.wait, GivenWait::OffCpu(_)));
            outward.find(|g| context.thread(g.wakee).is_some_and(|w| w.pid != thread.pid)).map(|g| g.at)
        })
        .min();
    Some(Span::new(exec, first.unwrap_or(Ns::MAX)))
}

/// A pool needs the mean of what its members did while they were there.
fn pool(walker: &Walker<'_>, window: Span, name: &str, members: &[(ThreadKey, Load)]) -> Term {
    let life: u64 = members
        .iter()
        .filter_map(|(key, _)| walker.context.recorded(*key))
        .map(|t| t.slices_in(window).map(|s| s.span.len()).sum::<u64>())
        .sum();
    let mean = |ns: u64| per(ns, life, window.len());
    let mut term = Term::new(format!("the pool {name}"), mean(members.iter().map(|(_, l)| l.ns).sum()));
    for (mechanism, ns) in members.iter().flat_map(|(_, l)| &l.by) {
        *term.removable.entry(*mechanism).or_default() += ns;
    }
    term.removable.values_mut().for_each(|ns| *ns = mean(*ns));
    term
}

/// `ns / (life / window)`.
fn per(ns: u64, life: u64, window: u64) -> u64 {
    if life == 0 {
        return 0;
    }
    u64::try_from(u128::from(ns) * u128::from(window) / u128::from(life)).unwrap_or(u64::MAX)
}

type Loads = BTreeMap<(usize, String, u32, bool), Vec<(ThreadKey, Load)>>;

/// What the job's threads did on processors.
struct Ran<'t> {
    job: Vec<&'t Thread>,
    /// Of all of them: what a quota is for.
    all_ns: u64,
    /// Of those that batches pass through: others run as long as they run, not once a step.
    ns: u64,
    /// Of threads on chains, by what they ran.
    by: BTreeMap<Mechanism, u64>,
}

impl<'t> Ran<'t> {
    fn of(walker: &Walker<'t>, window: Span, feeder: ThreadKey, loads: &Loads) -> Self {
        let context = &walker.context;
        let chains: BTreeSet<u32> =
            loads.values().flatten().filter_map(|(key, _)| context.thread(*key)).map(|t| t.pid).collect();
        let pid = context.thread(feeder).map_or(0, |t| t.pid);
        let own = |t: &&Thread| is_own(t) && (chains.contains(&t.pid) || context.jobs.together(pid, t.pid));
        let job: Vec<&Thread> = context.timeline.threads.values().filter(own).collect();
        let mut by: BTreeMap<Mechanism, u64> = BTreeMap::new();
        for (&mechanism, &ns) in loads.values().flatten().flat_map(|(_, load)| &load.by) {
            if matches!(mechanism.stage(), Stage::Prepare | Stage::Memory) {
                *by.entry(mechanism).or_default() += ns;
            }
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
    fn take_along(&self, term: &mut Term) {
        let queued = term.removable.get(&Mechanism::ScheduleOversubscribed).copied().unwrap_or(0);
        for (&mechanism, &ns) in &self.by {
            if let Some(removable) = term.removable.get_mut(&mechanism) {
                *removable = removable.saturating_add(per(queued, self.ns, ns)).min(term.ns);
            }
        }
    }
}

/// The job's running time over the processors it may use.
fn processors(walker: &Walker<'_>, window: Span, ran: &Ran<'_>) -> Term {
    let online = u64::try_from(walker.context.timeline.host.online_cpus.len()).unwrap_or(0).max(1);
    let last = ran.job.iter().filter_map(|t| t.off_cpu.last());
    let allowed = last.map(|o| u64::from(o.cpus_allowed)).filter(|&n| n > 0);
    let mask = allowed.max().unwrap_or(online).min(online);
    // Thousandths of a processor.
    let quotas = ran.job.iter().flat_map(|t| groups::quotas(&walker.context, t));
    let quota = quotas.min().unwrap_or(u64::MAX).min(mask * 1000).max(1);
    let over = |ns: u64, thousandths: u64| {
        u64::try_from(u128::from(ns) * 1000 / u128::from(thousandths)).unwrap_or(u64::MAX)
    };
    let within = if quota < mask * 1000 { over(ran.all_ns, quota) } else { 0 };
    let mut term = Term::new("the processors", over(ran.ns, mask * 1000).max(within).min(window.len()));
    let freed = |thousandths: u64| term.ns.saturating_sub(over(ran.ns, thousandths));
    let (throttled, affinity) = (freed(mask * 1000), freed(online * 1000));
    let whole = term.ns;
    term.removable.insert(Mechanism::ScheduleThrottled, throttled);
    term.removable.insert(Mechanism::ScheduleAffinity, affinity);
    // Threads in each other's way cost no processor but what they spin for each other. What they work they would
    // work without the others too.
    let spun: u64 = ran.job.iter().map(|t| spun(walker, t, window)).sum();
    term.removable.insert(Mechanism::ScheduleOversubscribed, over(spun, quota).min(whole));
    for (&mechanism, &ns) in &ran.by {
        term.removable.insert(mechanism, over(ns, quota).min(whole));
    }
    term
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

/// Each disk's time with a request in flight, and the time in which anybody on a chain waited for one.
fn disks(walker: &Walker<'_>, window: Span, waits: &BTreeMap<Mechanism, Vec<Span>>) -> Vec<Term> {
    let by: BTreeMap<Mechanism, u64> =
        waits.iter().map(|(&m, spans)| (m, total(&union(spans.clone())))).collect();
    let waited: u64 = by.values().sum();
    let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
    for block in &walker.context.timeline.blocks {
        if let Some(inside) = block.span.intersect(window) {
            let slot = busy.entry(block.dev).or_default();
            *slot = slot.saturating_add(per(block.busy_ns, block.span.len(), inside.len()));
        }
    }
    let mut terms: Vec<Term> = busy
        .into_iter()
        .map(|(dev, ns)| {
            Term::new(
                walker.context.disk(dev).map_or_else(
                    || format!("disk {}:{}", dev >> 20, dev & 0xf_ffff),
                    |n| format!("disk {n}"),
                ),
                ns,
            )
        })
        .collect();
    terms.push(Term::new("waits for disks", total(&union(waits.values().flatten().copied().collect()))));
    for term in &mut terms {
        term.ns = term.ns.min(window.len());
        for (&mechanism, &ns) in &by {
            term.removable.insert(mechanism, per(term.ns, waited, ns));
        }
    }
    terms
}
