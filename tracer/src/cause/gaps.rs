//! From one stretch of device idle to shares: whose thread is asked, and what holds before any chain.

use std::collections::BTreeMap;

use super::context::Context;
use super::ends::inside_synchronise;
use super::entry::{Claim, Entry, Step};
use super::walk::Walker;
use super::{Mechanism, calls, user_stacks};
use crate::idle::{DeviceIdle, PlacedIdle, UnplacedIdle};
use crate::timeline::Activity;
use crate::trace::{CudaCall, Ns, Span, ThreadKey};

/// Shares of one gap or of one window's unplaced idle, summing to `ns`.
#[derive(Debug)]
pub(crate) struct Gap {
    pub span: Span,
    pub ns: u64,
    pub entries: Vec<Entry>,
}

/// Every gap of a device, placed ones first, then what could not be placed.
pub(crate) fn gaps(walker: &Walker<'_>, idle: &DeviceIdle) -> Vec<Gap> {
    let mut gaps = Vec::with_capacity(idle.placed.len() + idle.unplaced.len());
    let (mut previous, mut busy) = (idle.window.start, 0);
    for placed in &idle.placed {
        // Pieces that touch are one gap, known in two ways.
        if placed.span.start > previous || previous == idle.window.start {
            busy = placed.span.start.saturating_sub(previous);
        }
        gaps.push(placed_gap(walker, idle.device, placed, busy));
        previous = placed.span.end;
    }
    gaps.extend(idle.unplaced.iter().filter(|u| u.ns > 0).map(|u| unplaced_gap(walker, u)));
    gaps
}

fn placed_gap(walker: &Walker<'_>, device: u32, placed: &PlacedIdle, busy: u64) -> Gap {
    let (span, ns) = (placed.span, placed.span.len());
    let entries = match placed.feeder {
        Some(feeder) if walker.context.recorded(feeder).is_some() => {
            match run_after_synchronise(walker, placed, feeder, busy) {
                Some((from, claim)) => walker.feeder(feeder, span, Some((from, &claim))),
                None => walker.feeder(feeder, span, None),
            }
        }
        Some(feeder) => {
            vec![Entry::unexplained(ns, "no records of the thread that feeds the device", nobody(feeder))]
        }
        None => without_feeder(walker, device, span),
    };
    Gap { span, ns, entries }
}

/// When the feeder ran from a synchronise's return to its next submit without a wait, and for less than the
/// device was busy since the previous gap: running ahead would have hidden it.
fn run_after_synchronise(
    walker: &Walker<'_>,
    placed: &PlacedIdle,
    feeder: ThreadKey,
    busy: u64,
) -> Option<(Ns, Claim)> {
    let thread = walker.context.recorded(feeder)?;
    let submit = placed.submit?;
    let reach = placed.span.start.saturating_sub(busy);
    let (call, from) = calls::last_synchronise(thread, Span::new(reach, submit))?;
    let waits = thread.slices_in(Span::new(from, submit)).any(|s| matches!(s.activity, Activity::Blocked(_)));
    if waits || submit.saturating_sub(from) >= busy {
        return None;
    }
    let culprit = user_stacks::caller(&walker.context.frames(call.user_stack));
    Some((from, Claim::new(Mechanism::LaunchSync, culprit)))
}

/// Nobody's submit ended the gap before the recording did.
fn without_feeder(walker: &Walker<'_>, device: u32, span: Span) -> Vec<Entry> {
    let context = &walker.context;
    let owners = owners(context, device, span);
    if owners.is_empty() {
        let entry = Entry::leaf(span.len(), Mechanism::NoDemand, None, nobody(ThreadKey::default()));
        return vec![entry];
    }
    if let Some(feeder) = last_submitter(context, device, &owners, span.start) {
        return walker.feeder(feeder, span, None);
    }
    // Whether a process that never submitted anything waits for work can be seen from its first thread.
    let main = (owners.len() == 1)
        .then(|| context.process(owners[0]).iter().find(|k| k.tid == owners[0]))
        .flatten()
        .filter(|&&k| context.recorded(k).is_some());
    let Some(&main) = main else {
        let reason = "no submit was seen, so the thread that feeds the device is not known";
        return vec![Entry::unexplained(span.len(), reason, nobody(ThreadKey::default()))];
    };
    walker
        .feeder(main, span, None)
        .into_iter()
        .map(|entry| match entry.mechanism() {
            Mechanism::NoDemand | Mechanism::Unexplained => entry,
            _ => {
                let reason = "no submit was seen, so the thread that feeds the device is not known";
                Entry::unexplained(entry.ns, reason, nobody(main))
            }
        })
        .collect()
}

/// Processes on the device around the gap. One that has only just left still counts.
fn owners(context: &Context<'_>, device: u32, span: Span) -> Vec<u32> {
    let Some(track) = context.timeline.devices.get(&device) else { return Vec::new() };
    // A process is listed once when it appears where lists do not change, or at every tick.
    let mut last: BTreeMap<u32, Ns> = BTreeMap::new();
    // Not all are listed: clients of an MPS server, processes of another pid namespace.
    let here = |pid: u32| context.map.of_process(pid).is_some_and(|on| on.devices.contains(&device));
    let submits = context.timeline.threads.values().filter_map(|t| Some((t.pid, t.submits.first()?.first)));
    last.extend(submits.filter(|&(pid, first)| first < span.end && here(pid)));
    let listed = track.processes.iter().filter(|p| p.at < span.end && !context.map.is_between(p.pid));
    last.extend(listed.map(|p| (p.pid, p.at)));
    let alive = |pid: u32| {
        let mut threads = context.process(pid).iter().filter_map(|&k| context.thread(k)).peekable();
        threads.peek().is_none() || threads.any(|t| t.exited.is_none_or(|x| x > span.start))
    };
    last.into_keys().filter(|&pid| alive(pid)).collect()
}

fn last_submitter(context: &Context<'_>, device: u32, owners: &[u32], before: Ns) -> Option<ThreadKey> {
    owners
        .iter()
        .flat_map(|&pid| context.process(pid))
        .filter_map(|&key| {
            let thread = context.recorded(key).filter(|_| context.may_feed(key, device))?;
            let index = thread.submits.partition_point(|s| s.first <= before);
            // A thread that went on with copies alone submitted no work.
            let last = thread.submits[..index].iter().rev().find(|s| s.submits() > 0)?;
            Some((last.last, key))
        })
        .max()
        .map(|(_, key)| key)
}

fn unplaced_gap(walker: &Walker<'_>, unplaced: &UnplacedIdle) -> Gap {
    let feeder = unplaced.feeder.unwrap_or_default();
    let entry = if unplaced.launch_bound {
        let thread = walker.context.recorded(feeder);
        let stack = thread.and_then(|t| {
            let index = t.submits.partition_point(|s| s.first < unplaced.span.end);
            t.submits[..index].iter().rev().map(|s| s.user_stack).find(|&s| s != 0)
        });
        let culprit = stack.and_then(|s| user_stacks::caller(&walker.context.frames(s)));
        let step = Step {
            thread: feeder,
            state: "running",
            what: "launches back to back, with idle time between them".into(),
            waits_for: None,
        };
        Entry::leaf(unplaced.ns, Mechanism::LaunchBound, culprit, step).with_stacks(0, stack.unwrap_or(0))
    } else if let Some(entry) = in_waits(walker, unplaced) {
        entry
    } else {
        let what = "no host event says where in the window this lies".into();
        let step = Step { thread: feeder, state: "unseen", what, waits_for: None };
        Entry::unexplained(unplaced.ns, unplaced.reason.as_str(), step)
    };
    Gap { span: unplaced.span, ns: unplaced.ns, entries: vec![entry] }
}

/// Idle somewhere inside calls that wait for the device: a cause only where all of them waited for the same.
fn in_waits(walker: &Walker<'_>, unplaced: &UnplacedIdle) -> Option<Entry> {
    let feeder = walker.context.thread(unplaced.feeder.filter(|_| unplaced.in_waits)?)?;
    let threads = walker.context.process(feeder.pid).iter().filter_map(|&key| walker.context.thread(key));
    let waits = threads.flat_map(|thread| {
        let calls = thread.calls.iter().filter(|c| calls::synchronises(c));
        let overlaps = |c: &&CudaCall| {
            c.entry < unplaced.span.end && c.returned().is_some_and(|exit| exit > unplaced.span.start)
        };
        calls.filter(overlaps).map(move |call| (thread, call))
    });
    let mut all: Option<Entry> = None;
    for (thread, call) in waits {
        let entry = inside_synchronise(&walker.context, thread, Some(call.entry), unplaced.ns, call);
        match &all {
            Some(first) if first.key.leaf != entry.key.leaf => return None,
            Some(_) => {}
            None => all = Some(entry),
        }
    }
    all.filter(|entry| entry.key.leaf != Mechanism::Unexplained)
}

fn nobody(thread: ThreadKey) -> Step {
    Step { thread, state: "unseen", what: "no thread is known to have ended this".into(), waits_for: None }
}
