//! Calls that wait for the device, and calls whose return leaves it empty.

use std::collections::BTreeMap;

use super::model::Known;
use super::queue::{Event, What};
use super::runs::Run;
use crate::timeline::Thread;
use crate::trace::{CudaCall, CudaFamily, Ns, ThreadKey};

/// A call that took this long did not only queue something.
const BLOCKED_NS: u64 = 100_000;

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
        // A copy to the device returns without waiting for what other streams hold.
        CudaFamily::Copy if !call.name.contains("DtoH") => None,
        CudaFamily::Copy if !call.name.contains("Async") => Some(Known::Drained),
        // To pageable memory, else it would not have blocked: it returns when the copy is done.
        CudaFamily::Copy => {
            let blocked = call.exit.is_some_and(|exit| exit - call.entry >= BLOCKED_NS);
            blocked.then_some(Known::Bounded)
        }
        _ => None,
    }
}

/// A process's synchronise calls, to tell whether a thread goes on waiting at some time.
struct Waiting {
    entries: Vec<Ns>,
    reach: Vec<Ns>,
}

impl Waiting {
    fn new(threads: &[&Thread], pid: u32) -> Self {
        let calls = threads.iter().filter(|t| t.pid == pid).flat_map(|t| &t.calls);
        let calls = calls.filter(|c| c.family == CudaFamily::Synchronize);
        let mut spans: Vec<(Ns, Ns)> = calls.filter_map(|c| c.exit.map(|exit| (c.entry, exit))).collect();
        spans.sort_unstable();
        let mut end = 0;
        let (entries, reach) = spans
            .into_iter()
            .map(|(entry, exit)| {
                end = exit.max(end);
                (entry, end)
            })
            .unzip();
        Self { entries, reach }
    }

    /// Whether a call that began before `at` returned well after it: then something was still queued. Calls
    /// that wait for the same thing return within a moment of one another.
    fn beyond(&self, at: Ns) -> bool {
        let i = self.entries.partition_point(|&entry| entry < at).checked_sub(1);
        i.is_some_and(|i| self.reach[i] > at.saturating_add(BLOCKED_NS))
    }
}

struct Process {
    submits: Last,
    waiting: Waiting,
    threads: Vec<ThreadKey>,
}

/// The `Empty` and `Wait` events of all calls. A device is empty when each process that submitted to it has
/// had a call return since, before which it submitted nothing more, and nobody goes on waiting.
pub(super) fn synchronise(threads: &[&Thread], runs: &[Run], end: Ns) -> Vec<Event> {
    let mut by_thread: BTreeMap<ThreadKey, Last> = BTreeMap::new();
    let mut by_process: BTreeMap<u32, Process> = BTreeMap::new();
    for thread in threads {
        let last = Last::new(runs.iter().filter(|r| r.thread == thread.key));
        by_thread.insert(thread.key, last);
        let process = || Process {
            submits: Last::new(runs.iter().filter(|r| r.pid == thread.pid)),
            waiting: Waiting::new(threads, thread.pid),
            threads: Vec::new(),
        };
        by_process.entry(thread.pid).or_insert_with(process).threads.push(thread.key);
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
        let Some(process) = by_process.get(&thread.pid) else { continue };
        let since = emptied.get(&thread.pid).map(|e| e.0);
        let queued = process.submits.up_to(call.entry).is_some_and(|at| since.is_none_or(|s| at > s));
        if queued && call.family == CudaFamily::Synchronize && exit > call.entry {
            events.push(Event { at: call.entry, what: What::Wait(exit) });
        }
        let more = process
            .threads
            .iter()
            .filter(|&&m| m != thread.key)
            .any(|m| by_thread.get(m).and_then(|l| l.up_to(exit)).is_some_and(|at| at > call.entry));
        if call.exit.is_none() || more || process.waiting.beyond(exit) {
            continue;
        }
        let entry = emptied.get(&thread.pid).map_or(call.entry, |e| e.0.max(call.entry));
        emptied.insert(thread.pid, (entry, known));
        let others = by_process.iter().filter(|(pid, _)| **pid != thread.pid);
        let mut sure = Some(known);
        for (pid, other) in others {
            let Some(at) = other.submits.up_to(exit) else { continue };
            let emptied = emptied.get(pid).filter(|e| e.0 >= at).map(|e| e.1);
            // `Known` is ordered from sure to unsure.
            sure = sure.zip(emptied).map(|(a, b)| a.max(b));
        }
        if let Some(known) = sure {
            events.push(Event { at: exit, what: What::Empty(known) });
        }
    }
    events
}
