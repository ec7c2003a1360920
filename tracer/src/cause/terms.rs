//! The terms of the operational law: what each part of the pipeline needs for the whole stretch, and how much
//! of that each mechanism is to blame for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::claimed::{self, Claimed};
use super::ends::WAITS_FOR_DEVICE;
use super::item::item;
use super::jobs::role;
use super::processors::Ran;
use super::waits::{self, Next};
use super::walk::Walker;
use super::{Mechanism, Stage, calls, claims};
use crate::idle::DeviceIdle;
use crate::timeline::{Activity, GivenWait, Slice, Thread, total, union};
use crate::trace::{CudaCall, Ns, Span, State, ThreadKey};

/// The term of the thread that submits.
pub(crate) const FEEDER: &str = "the feeding thread";

/// A disk that is busy for more than this many times what the chains wait for disks is not busy for them. Nor are
/// threads that work for more than this many times what the chains wait for them.
const OTHERS: u64 = 10;

/// One thing that the stretch cannot be shorter than.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term {
    pub name: String,
    pub ns: u64,
    /// What would go with each mechanism; each at most `ns`.
    pub removable: BTreeMap<Mechanism, u64>,
}

impl Term {
    pub(super) fn new(name: impl Into<String>, ns: u64) -> Self {
        Self { name: name.into(), ns, removable: BTreeMap::new() }
    }

    /// As much of it as `part` is of `whole`.
    pub(super) fn scale(&mut self, part: u64, whole: u64) {
        self.ns = per(self.ns, whole, part);
        self.removable.values_mut().for_each(|ns| *ns = per(*ns, whole, part));
    }

    /// What is left without a mechanism.
    pub(crate) fn without(&self, mechanism: Option<Mechanism>) -> u64 {
        let removed = mechanism.and_then(|m| self.removable.get(&m)).copied().unwrap_or(0);
        self.ns.saturating_sub(removed)
    }
}

/// What one thread did with a stretch, its waits for others' items left out.
#[derive(Default)]
pub(super) struct Load {
    ns: u64,
    pub(super) by: BTreeMap<Mechanism, u64>,
    /// What of it was on a processor.
    pub(super) ran: BTreeMap<Mechanism, u64>,
    device_wait_ns: u64,
    /// Threads whose items it waited for, other than those nearer the device, and how long.
    givers: BTreeMap<ThreadKey, u64>,
}

/// Stretches in which anybody on a chain waited for a disk, or for a lock.
#[derive(Default)]
struct Shared {
    storage: BTreeMap<Mechanism, Vec<Span>>,
    /// Devices that the files lie on; `None` among them where one is not known.
    devices: BTreeSet<Option<u32>>,
    locks: BTreeMap<Mechanism, Vec<Span>>,
}

/// All terms of `window`, the device's own first.
pub(crate) fn terms(
    walker: &Walker<'_>,
    idle: &DeviceIdle,
    feeder: ThreadKey,
    claimed: &[Claimed],
) -> Vec<Term> {
    let window = idle.window;
    let mut shared = Shared::default();
    let mut loads = Loads::new();
    let mut seen = BTreeSet::from([feeder]);
    let mut queue = VecDeque::from([(feeder, Vec::new())]);
    let mut path = Term::new(FEEDER, 0);
    let mut waited: BTreeMap<ThreadKey, u64> = BTreeMap::new();
    while let Some((key, nearer)) = queue.pop_front() {
        let Some(thread) = walker.context.recorded(key) else { continue };
        let load = load(walker, thread, window, &nearer, &mut shared);
        let mut beyond = nearer.clone();
        beyond.push(key);
        for (&giver, ns) in &load.givers {
            *waited.entry(giver).or_default() += ns;
            if seen.insert(giver) {
                queue.push_back((giver, beyond.clone()));
            }
        }
        if nearer.is_empty() {
            path.ns = load.ns;
            path.removable = removable(walker, idle, thread, &load);
        }
        let part = (nearer.len(), role(&thread.comm), thread.ppid, thread.key.tid == thread.pid);
        loads.entry(part).or_default().push((key, load));
    }
    let claimed = claimed::of_work(claimed, &path.removable);
    let ran = Ran::of(walker, window, feeder, &loads, &claimed);
    claimed.iter().for_each(|part| part.leave_out(&mut path.removable));
    ran.take_along(&mut path);
    let mut terms = vec![Term::new("the GPU itself", idle.busy_ns), path];
    terms.push(ran.term(walker, window));
    terms.extend(
        loads
            .into_iter()
            .filter(|(role, _)| role.0 > 0)
            .map(|(role, members)| pool(walker, window, &role.1, &members, &waited))
            .map(|mut term| {
                ran.take_along(&mut term);
                term
            }),
    );
    terms.extend(disks(walker, window, &shared));
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
                        if matches!(entry.key.steps.as_slice(), [own] if own.state == "running") {
                            *part.ran.entry(entry.mechanism()).or_default() += entry.ns;
                        }
                    }
                }
            }
            Activity::Blocked(i) => wait(walker, thread, i, slice, nearer, &mut part, shared),
        }
        if starting.is_some_and(|s| slice.span.end <= s.end && slice.span.start >= s.start) {
            // Whatever it does until it delivers for the first time is its start.
            part.by = BTreeMap::from([(Mechanism::ProcessSpawn, part.ns)]);
            part.ran.clear();
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
        for (giver, ns) in part.givers {
            *self.givers.entry(giver).or_default() += ns;
        }
        for (mechanism, ns) in part.by {
            self.add(mechanism, ns);
        }
        for (mechanism, ns) in part.ran {
            *self.ran.entry(mechanism).or_default() += ns;
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
    if off.state == State::Idle {
        // A kernel thread without work: nothing is held up by that.
        return;
    }
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
            // Asked for since it last waited, be it in the call before, and answered inside one wait: a call, on this
            // thread's own path. What a link claims is its own as well.
            if item.span.start >= resumed(thread, index).unwrap_or(off.left) || claimed {
                for entry in walker.sums(thread.key, slice.span) {
                    load.add(entry.mechanism(), entry.ns);
                }
            } else {
                *load.givers.entry(giver).or_default() += ns;
            }
        }
        Next::Leaf(leaf, _) => {
            let mechanism = claim.unwrap_or(leaf);
            if leaf.stage() == Stage::Storage || leaf == Mechanism::MemorySwap {
                shared.storage.entry(mechanism).or_default().push(slice.span);
                shared.devices.insert(context.file(off).map(|f| f.dev));
            }
            load.add(mechanism, ns);
        }
        Next::Unexplained(_) => load.add(claim.unwrap_or(Mechanism::Unexplained), ns),
    }
}

/// When a thread last went on before the wait that `index` is a piece of: after another wait, or after one for the device
/// that it may have spun in.
fn resumed(thread: &Thread, index: usize) -> Option<Ns> {
    let first = thread.merged_wait(index).and_then(|m| m.members.first().copied()).unwrap_or(index);
    let left = thread.off_cpu.get(first)?.left;
    let before = first.checked_sub(1).and_then(|i| thread.off_cpu.get(i)).map(|off| off.ran);
    let calls = &thread.calls[..thread.calls.partition_point(|c| c.entry < left)];
    let waited =
        calls.iter().rev().take(CALLS).filter(|c| calls::synchronises(c)).find_map(CudaCall::returned);
    before.into_iter().chain(waited.filter(|&at| at <= left)).max()
}

/// Calls looked at for the last one that waited for the device.
const CALLS: usize = 256;

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

/// By how far from the device, thread name, parent process, and whether it is its process's first thread.
pub(super) type Loads = BTreeMap<(usize, String, u32, bool), Vec<(ThreadKey, Load)>>;

/// A pool needs the mean of what its members did while they were there.
fn pool(
    walker: &Walker<'_>,
    window: Span,
    name: &str,
    members: &[(ThreadKey, Load)],
    waited: &BTreeMap<ThreadKey, u64>,
) -> Term {
    let life: u64 = members
        .iter()
        .filter_map(|(key, _)| walker.context.recorded(*key))
        .map(|t| t.slices_in(window).map(|s| s.span.len()).sum::<u64>())
        .fold(0, u64::saturating_add);
    let mean = |ns: u64| per(ns, life, window.len());
    let mut term = Term::new(format!("the pool {name}"), mean(sum(members.iter().map(|(_, l)| l.ns))));
    for (mechanism, ns) in members.iter().flat_map(|(_, l)| &l.by) {
        let slot = term.removable.entry(*mechanism).or_default();
        *slot = slot.saturating_add(*ns);
    }
    term.removable.values_mut().for_each(|ns| *ns = mean(*ns));
    let waited = sum(members.iter().filter_map(|(key, _)| waited.get(key).copied()));
    if waited.saturating_mul(OTHERS) < term.ns {
        // They are busy with something else.
        term.scale(waited, term.ns);
    }
    term
}

fn sum(all: impl Iterator<Item = u64>) -> u64 {
    all.fold(0, u64::saturating_add)
}

/// `ns / (life / window)`.
pub(super) fn per(ns: u64, life: u64, window: u64) -> u64 {
    if life == 0 {
        return 0;
    }
    u64::try_from(u128::from(ns) * u128::from(window) / u128::from(life)).unwrap_or(u64::MAX)
}

/// Each disk's time with a request in flight, and the time in which anybody on a chain waited for one.
fn disks(walker: &Walker<'_>, window: Span, shared: &Shared) -> Vec<Term> {
    let waits = &shared.storage;
    // Where it is known of all files, other disks are nobody's here.
    let disk = |dev: &Option<u32>| dev.is_some_and(|d| walker.context.disk(d).is_some());
    let known = shared.devices.iter().all(disk);
    let concerns = |dev: u32| !known || shared.devices.contains(&Some(dev));
    let by: BTreeMap<Mechanism, u64> =
        waits.iter().map(|(&m, spans)| (m, total(&union(spans.clone())))).collect();
    let waited: u64 = by.values().sum();
    let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
    for block in walker.context.timeline.blocks.iter().filter(|b| concerns(b.dev)) {
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
    let any = total(&union(waits.values().flatten().copied().collect()));
    for term in &mut terms {
        // A disk is busy for all programs of the host. One that the chains hardly wait for is busy for others.
        if any.saturating_mul(OTHERS) < term.ns {
            term.ns = any;
        }
    }
    terms.push(Term::new("waits for disks", any));
    for term in &mut terms {
        term.ns = term.ns.min(window.len());
        for (&mechanism, &ns) in &by {
            term.removable.insert(mechanism, per(term.ns, waited, ns));
        }
    }
    terms
}
