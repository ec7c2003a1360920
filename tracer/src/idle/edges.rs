//! What host edges say of one device: its submits, and the calls that wait for it or leave it empty.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Known;
use super::queue::{Event, What};
use super::runs::{Burst, Run, Silence, of_thread, silences};
use crate::timeline::{Thread, Timeline};
use crate::trace::{CudaCall, CudaFamily, Ns, Span, ThreadKey};

/// Names of processes that stand between jobs and a device and submit nothing of their own.
const BETWEEN: &str = "nvidia-cuda-mps";

/// All edges of one device, in order.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub runs: Vec<Run>,
    /// Latest `last` of the runs up to each.
    reach: Vec<Ns>,
    pub silences: Vec<Silence>,
    pub bursts: Vec<Burst>,
    /// `Empty` and `Wait` events.
    calls: Vec<Event>,
    longest_wait: u64,
    copies: Vec<Span>,
    /// Some of these threads may submit to another device.
    pub inferred: bool,
}

impl Edges {
    pub(super) fn of_device(timeline: &Timeline, device: u32) -> Self {
        let (threads, inferred) = feeders(timeline, device);
        let mut runs: Vec<Run> = threads.iter().flat_map(|t| of_thread(t)).collect();
        runs.sort_unstable();
        let (silences, bursts) = silences(&runs);
        let mut calls = synchronise(&threads, &runs, timeline.span.end);
        calls.sort_unstable();
        let longest_wait = calls
            .iter()
            .map(|e| if let What::Wait(end) = e.what { end - e.at } else { 0 })
            .max()
            .unwrap_or(0);
        let reach = runs
            .iter()
            .scan(0, |reach, run| {
                *reach = run.last.max(*reach);
                Some(*reach)
            })
            .collect();
        Self { reach, silences, bursts, calls, longest_wait, copies: copies(&threads), inferred, runs }
    }

    /// The runs that reach into `window`.
    pub(super) fn runs_in(&self, window: Span) -> impl Iterator<Item = &Run> {
        let from = self.reach.partition_point(|&reach| reach < window.start);
        let overlaps = move |r: &&Run| r.last >= window.start;
        self.runs[from..].iter().take_while(move |r| r.first < window.end).filter(overlaps)
    }

    /// What happens in `window`, in order.
    pub(super) fn events(&self, window: Span) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for run in self.runs_in(window) {
            let submits = run.instants(window);
            events.extend(submits.map(|(at, count)| Event { at, what: What::Submit(count) }));
        }
        let early = window.start.saturating_sub(self.longest_wait);
        let from = self.calls.partition_point(|c| c.at < early);
        for call in self.calls[from..].iter().take_while(|c| c.at < window.end) {
            match call.what {
                What::Wait(end) if end > window.start => {
                    events.push(Event { at: call.at.max(window.start), what: call.what });
                }
                What::Empty(_) if call.at >= window.start => events.push(*call),
                _ => {}
            }
        }
        events.sort_unstable();
        events
    }

    /// Whether a copy was seen in `span`.
    pub(super) fn copied(&self, span: Span) -> bool {
        self.copies.iter().any(|c| c.start < span.end && span.start <= c.end)
    }
}

/// The threads whose submits count for `device`, and whether that is a guess.
fn feeders(timeline: &Timeline, device: u32) -> (Vec<&Thread>, bool) {
    let mut listed: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (&index, track) in &timeline.devices {
        for process in &track.processes {
            listed.entry(process.pid).or_default().insert(index);
        }
    }
    let only = timeline.devices.len() <= 1;
    let mut inferred = false;
    let mut threads = Vec::new();
    for thread in timeline.threads.values() {
        let edges = !thread.submits.is_empty() || !thread.calls.is_empty();
        if !edges || thread.comm.starts_with(BETWEEN) {
            continue;
        }
        let on = listed.get(&thread.pid);
        if on.is_some_and(|on| !on.contains(&device)) {
            continue;
        }
        let certain = only || on.is_some_and(|on| on.len() == 1);
        inferred |= !certain;
        threads.push(thread);
    }
    (threads, inferred)
}

fn copies(threads: &[&Thread]) -> Vec<Span> {
    let runs = threads.iter().flat_map(|t| &t.submits).filter(|s| s.copies > 0);
    let calls = threads.iter().flat_map(|t| &t.calls).filter(|c| c.family == CudaFamily::Copy);
    let calls = calls.map(|c| Span::new(c.entry, c.exit.unwrap_or(c.entry)));
    runs.map(|s| Span::new(s.first, s.last)).chain(calls).collect()
}

/// The last submit a thread or process made up to a time.
struct Last {
    first: Vec<Ns>,
    reach: Vec<Ns>,
}

impl Last {
    fn new<'a>(runs: impl Iterator<Item = &'a Run>) -> Self {
        let (mut first, mut reach) = (Vec::new(), Vec::new());
        let mut end = 0;
        for run in runs {
            end = run.last.max(end);
            first.push(run.first);
            reach.push(end);
        }
        Self { first, reach }
    }

    fn up_to(&self, at: Ns) -> Option<Ns> {
        let i = self.first.partition_point(|&f| f <= at).checked_sub(1)?;
        Some(self.reach[i].min(at))
    }
}

/// How sure a call that returned makes it that nothing its process submitted before is still queued.
fn proves(call: &CudaCall) -> Option<Known> {
    match call.family {
        // An event may have been recorded long before the last submit.
        CudaFamily::Synchronize if call.name.contains("Event") => Some(Known::Bounded),
        CudaFamily::Synchronize => Some(Known::Drained),
        CudaFamily::Copy if !call.name.contains("Async") => Some(Known::Drained),
        _ => None,
    }
}

/// The `Empty` and `Wait` events of all calls. A device is empty when each process that submitted to it has
/// had a call return since, before which it submitted nothing more.
fn synchronise(threads: &[&Thread], runs: &[Run], end: Ns) -> Vec<Event> {
    let mut by_thread: BTreeMap<ThreadKey, Last> = BTreeMap::new();
    let mut by_process: BTreeMap<u32, (Last, Vec<ThreadKey>)> = BTreeMap::new();
    for thread in threads {
        let last = Last::new(runs.iter().filter(|r| r.thread == thread.key));
        by_thread.insert(thread.key, last);
        let process = || (Last::new(runs.iter().filter(|r| r.pid == thread.pid)), Vec::new());
        by_process.entry(thread.pid).or_insert_with(process).1.push(thread.key);
    }
    let mut calls: Vec<(Ns, &Thread, &CudaCall, Known)> = Vec::new();
    for &thread in threads {
        for (i, call) in thread.calls.iter().enumerate() {
            let Some(known) = proves(call) else { continue };
            let next = thread.calls.get(i + 1).map(|c| c.entry);
            let submit = thread.submits.partition_point(|s| s.first <= call.entry);
            let submit = thread.submits.get(submit).map(|s| s.first);
            let over = next.into_iter().chain(submit).min().unwrap_or(end);
            calls.push((call.exit.unwrap_or(over), thread, call, known));
        }
    }
    calls.sort_by_key(|&(exit, thread, call, known)| (exit, call.entry, thread.key, known));

    // Per process: the entry of the last call that left it empty, and how sure that is.
    let mut emptied: BTreeMap<u32, (Ns, Known)> = BTreeMap::new();
    let mut events = Vec::new();
    for (exit, thread, call, known) in calls {
        let Some((own, members)) = by_process.get(&thread.pid) else { continue };
        let since = emptied.get(&thread.pid).map(|e| e.0);
        let queued = own.up_to(call.entry).is_some_and(|at| since.is_none_or(|s| at > s));
        if queued && call.family == CudaFamily::Synchronize && exit > call.entry {
            events.push(Event { at: call.entry, what: What::Wait(exit) });
        }
        let more = members
            .iter()
            .filter(|&&m| m != thread.key)
            .any(|m| by_thread.get(m).and_then(|l| l.up_to(exit)).is_some_and(|at| at > call.entry));
        if call.exit.is_none() || more {
            continue;
        }
        let entry = emptied.get(&thread.pid).map_or(call.entry, |e| e.0.max(call.entry));
        emptied.insert(thread.pid, (entry, known));
        let others = by_process.iter().filter(|(pid, _)| **pid != thread.pid);
        let mut sure = Some(known);
        for (pid, (last, _)) in others {
            let Some(at) = last.up_to(exit) else { continue };
            let other = emptied.get(pid).filter(|e| e.0 >= at).map(|e| e.1);
            // `Known` is ordered from sure to unsure.
            sure = sure.zip(other).map(|(a, b)| a.max(b));
        }
        if let Some(known) = sure {
            events.push(Event { at: exit, what: What::Empty(known) });
        }
    }
    events
}
