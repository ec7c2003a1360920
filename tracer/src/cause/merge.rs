//! From shares of single gaps to causes: equal shapes become one, whoever played the roles.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::Context;
use super::entry::{Entry, Step};
use super::files;
use super::gaps::Gap;
use super::jobs::role;
use super::{Cause, Culprit, Ledger, Link, Mechanism, Piece};
use crate::timeline::NamedFrame;
use crate::trace::{FileId, StackId, ThreadKey};

/// Frames of a stack that are shown.
const SHOWN_FRAMES: usize = 64;

/// Stands for the frames of a stack that was taken and lost.
pub const LOST_STACK: &str = "[stack lost]";

/// What a thread is in a chain: its name and its process's parent, so that the workers of one pool are one.
type Role = (String, u32);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    mechanism: Mechanism,
    leaf: Mechanism,
    culprit: Option<Culprit>,
    reason: Option<Arc<str>>,
    links: Vec<(Role, &'static str, Arc<str>)>,
}

#[derive(Default)]
struct Merged {
    ns: u64,
    /// Indices of gaps and their parts.
    gaps: BTreeMap<usize, u64>,
    /// Per link, leaf first: time by who played it.
    players: Vec<BTreeMap<ThreadKey, u64>>,
    files: BTreeSet<FileId>,
    /// The largest single share of each thread at the chain's end.
    shown: BTreeMap<ThreadKey, Entry>,
}

/// Causes of a device with `gain_ns` still 0, in the contract's order, and pieces in time order.
pub(crate) fn merge(context: &Context<'_>, device: u32, gaps: Vec<Gap>) -> Ledger {
    let spans: Vec<_> = gaps.iter().map(|g| g.span).collect();
    let mut merged: BTreeMap<Shape, Merged> = BTreeMap::new();
    for (index, gap) in gaps.into_iter().enumerate() {
        debug_assert_eq!(gap.entries.iter().map(|e| e.ns).sum::<u64>(), gap.ns);
        for entry in gap.entries.into_iter().filter(|e| e.ns > 0) {
            let slot = merged.entry(shape(context, &entry)).or_default();
            slot.add(index, entry);
        }
    }
    let mut causes: Vec<(Cause, BTreeMap<usize, u64>)> =
        merged.into_iter().map(|(shape, merged)| cause(context, shape, merged)).collect();
    causes.sort_by(|(a, _), (b, _)| {
        b.ns.cmp(&a.ns).then_with(|| {
            (a.mechanism, a.leaf, &a.culprit, a.pid, &a.chain, &a.note).cmp(&(
                b.mechanism,
                b.leaf,
                &b.culprit,
                b.pid,
                &b.chain,
                &b.note,
            ))
        })
    });
    let mut pieces = Vec::new();
    for (cause, (_, parts)) in causes.iter().enumerate() {
        pieces.extend(parts.iter().map(|(&gap, &ns)| Piece { cause, gap: spans[gap], ns }));
    }
    pieces.sort_by_key(|p| (p.gap.start, p.gap.end, p.cause));
    Ledger { device, causes: causes.into_iter().map(|(cause, _)| cause).collect(), pieces }
}

fn shape(context: &Context<'_>, entry: &Entry) -> Shape {
    let played =
        |step: &Step| context.thread(step.thread).map_or((String::new(), 0), |t| (role(&t.comm), t.ppid));
    Shape {
        mechanism: entry.mechanism(),
        leaf: entry.key.leaf,
        culprit: entry.key.culprit.clone(),
        reason: entry.key.reason.clone(),
        links: entry.key.steps.iter().map(|s| (played(s), s.state, Arc::clone(&s.what))).collect(),
    }
}

impl Merged {
    fn add(&mut self, gap: usize, entry: Entry) {
        self.ns += entry.ns;
        *self.gaps.entry(gap).or_default() += entry.ns;
        self.players.resize_with(entry.key.steps.len(), BTreeMap::new);
        for (player, step) in self.players.iter_mut().zip(&entry.key.steps) {
            *player.entry(step.thread).or_default() += entry.ns;
        }
        self.files.extend(entry.shown.file);
        let Some(end) = entry.key.steps.first().map(|s| s.thread) else { return };
        match self.shown.entry(end) {
            Slot::Vacant(slot) => drop(slot.insert(entry)),
            Slot::Occupied(mut slot) if entry.ns > slot.get().ns => drop(slot.insert(entry)),
            Slot::Occupied(_) => {}
        }
    }

    /// A share of the player that cost most.
    fn slowest(&self) -> Option<&Entry> {
        let ends = self.players.first()?;
        let (slowest, _) = ends.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0)))?;
        self.shown.get(slowest)
    }
}

fn cause(context: &Context<'_>, shape: Shape, merged: Merged) -> (Cause, BTreeMap<usize, u64>) {
    let mut chain = Vec::new();
    let mut pid = None;
    if let Some(shown) = merged.slowest() {
        for (i, step) in shown.key.steps.iter().enumerate().rev() {
            let stacks = shown.shown.stacks.get(i).copied().unwrap_or_default();
            let mut link = link(context, step, stacks);
            link.detail = detail(context, &merged, i, i == 0);
            link.processes = u32::try_from(processes(context, &merged.players[i])).unwrap_or(u32::MAX);
            chain.push(link);
        }
        pid = chain.last().map(|l: &Link| l.pid).filter(|&p| p != 0);
    }
    let cause = Cause {
        mechanism: shape.mechanism,
        leaf: shape.leaf,
        stage: shape.mechanism.stage(),
        ns: merged.ns,
        gain_ns: 0,
        count: u64::try_from(merged.gaps.len()).unwrap_or(u64::MAX),
        pid,
        culprit: shape.culprit,
        chain,
        note: shape.reason.map(|r| r.to_string()),
    };
    (cause, merged.gaps)
}

fn link(context: &Context<'_>, step: &Step, (kernel, user): (StackId, StackId)) -> Link {
    let thread = context.thread(step.thread);
    let what = match step.waits_for.and_then(|k| context.thread(k)) {
        Some(other) => format!("waits for {} {} ({})", other.comm, other.key.tid, step.what),
        None => step.what.to_string(),
    };
    let stack = shown(context, kernel).into_iter().chain(shown(context, user));
    Link {
        tid: step.thread.tid,
        pid: thread.map_or(0, |t| t.pid),
        comm: thread.map_or_else(String::new, |t| t.comm.clone()),
        state: step.state.to_owned(),
        what,
        detail: None,
        processes: 0,
        stack: cut(stack.collect()),
    }
}

/// Says where it leaves frames out.
fn cut(mut stack: Vec<String>) -> Vec<String> {
    if stack.len() > SHOWN_FRAMES {
        stack.truncate(SHOWN_FRAMES);
        stack.push("[deeper than what is shown]".to_owned());
    }
    stack
}

fn shown(context: &Context<'_>, stack: StackId) -> Vec<String> {
    if stack != 0 && !context.timeline.stacks.contains_key(&stack) {
        return vec![LOST_STACK.to_owned()];
    }
    let frames = context.frames(stack);
    frames.iter().map(NamedFrame::in_stack).chain(context.timeline.beyond(stack)).collect()
}

/// What differs between the merged: who else played this link, and how many files a leaf read.
fn detail(context: &Context<'_>, merged: &Merged, link: usize, leaf: bool) -> Option<String> {
    let mut parts = Vec::new();
    let players = &merged.players[link];
    if players.len() > 1 {
        let (count, noun) = match processes(context, players) {
            count if count > 1 => (count, "processes"),
            _ => (players.len(), "threads"),
        };
        if let Some((slowest, &ns)) = players.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))) {
            parts.push(format!(
                "{count} {noun}; slowest {} ({} of {})",
                slowest.tid,
                seconds(ns),
                seconds(merged.ns)
            ));
        }
    }
    if leaf {
        let names: Vec<String> = merged
            .files
            .iter()
            .filter_map(|id| context.timeline.files.get(id))
            .filter_map(files::path)
            .collect();
        match names.iter().min() {
            Some(name) if names.len() == 1 => parts.push(format!("file {name}")),
            Some(name) => parts.push(format!("{} files, for example {name}", names.len())),
            None => {}
        }
        parts.extend(disks(context, merged));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn processes(context: &Context<'_>, players: &BTreeMap<ThreadKey, u64>) -> usize {
    players.keys().filter_map(|&k| context.thread(k)).map(|t| t.pid).collect::<BTreeSet<_>>().len()
}

/// Names of the disks the files lie on.
fn disks(context: &Context<'_>, merged: &Merged) -> Option<String> {
    let devs: BTreeSet<u32> =
        merged.files.iter().filter_map(|id| context.timeline.files.get(id)).map(|f| f.dev).collect();
    let names: BTreeSet<&str> = devs.into_iter().filter_map(|dev| context.disk(dev)).collect();
    (!names.is_empty()).then(|| format!("device {}", names.into_iter().collect::<Vec<_>>().join(", ")))
}

/// A length in the unit a reader expects.
pub(crate) fn seconds(ns: u64) -> String {
    if ns == 0 {
        "0 s".to_owned()
    } else if ns >= 100_000_000 {
        format!("{:.2} s", ns as f64 / 1e9)
    } else if ns >= 100_000 {
        format!("{:.1} ms", ns as f64 / 1e6)
    } else {
        format!("{:.1} us", ns as f64 / 1e3)
    }
}
