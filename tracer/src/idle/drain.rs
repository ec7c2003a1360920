//! Calls that wait for the device, and calls whose return leaves it empty.

use std::collections::BTreeMap;

use super::model::Known;
use super::queue::{Event, What};
use super::runs::Run;
use crate::timeline::Thread;
use crate::trace::{CudaCall, CudaFamily, Ns, State, ThreadKey};

/// A call that took this long did not only queue something.
const BLOCKED_NS: u64 = 100_000;
/// A synchronise call that found the device done returns within this much running time.
const RETURN_NS: u64 = 200_000;

/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: i32 = 600;

/// What a copy of a few bytes to the host takes, and how fast it goes on from there (PCIe 3 x16).
const COPY_NS: u64 = 15_000;
const BYTES_PER_NS: u64 = 10;

/// Whether it is about all streams, not one.
fn of_whole_context(call: &CudaCall) -> bool {
    call.family == CudaFamily::Synchronize && (call.name.contains("Ctx") || call.name.contains("Device"))
}

/// Up to when submits must have been made for the call to be about them; `None` where that is not known.
fn covers(call: &CudaCall) -> Option<Ns> {
    let of_event = call.name.contains("Event");
    match (of_event, call.recorded_at, call.family) {
        (true, 0, CudaFamily::EventQuery) => None,
        (true, recorded @ 1.., _) => Some(recorded.min(call.entry)),
        _ => Some(call.entry),
    }
}

/// The last submit a thread, stream or process made up to a time.
struct Last {
    first: Vec<Ns>,
    reach: Vec<Ns>,
}

impl Last {
    fn new<'a>(runs: impl Iterator<Item = &'a Run>) -> Self {
        let mut entries: Vec<(Ns, Ns)> = runs.map(Run::entered).collect();
        entries.sort_unstable();
        let mut end = 0;
        let (first, reach) = entries
            .into_iter()
            .map(|(first, last)| {
                end = last.max(end);
                (first, end)
            })
            .unzip();
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
        CudaFamily::EventQuery if call.result == Some(0) => Some(Known::Bounded),
        // A copy to the device returns without waiting for what other streams hold.
        CudaFamily::Copy if !call.name.contains("DtoH") => None,
        CudaFamily::Copy if !call.name.contains("Async") => Some(Known::Drained),
        // To pageable memory, else it would not have blocked: it returns when the copy is done.
        CudaFamily::Copy => {
            let blocked = call.own_ns().is_some_and(|ns| ns >= BLOCKED_NS);
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
    fn new(calls: &[Call], pid: u32) -> Self {
        let calls = calls.iter().filter(|c| c.pid == pid && c.call.returned().is_some());
        let calls = calls.filter(|c| c.call.family == CudaFamily::Synchronize);
        let mut spans: Vec<(Ns, Ns)> = calls.map(|c| (c.call.entry, c.empty)).collect();
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

/// A call whose return may prove something.
struct Call<'a> {
    thread: ThreadKey,
    pid: u32,
    call: &'a CudaCall,
    known: Known,
    /// What was submitted up to then is what it is about.
    covers: Ns,
    /// Up to when it waited for the device beyond doubt.
    waits_to: Ns,
    /// From when what it waited for was done.
    empty: Ns,
}

impl<'a> Call<'a> {
    fn of_thread(thread: &'a Thread, end: Ns) -> impl Iterator<Item = Self> {
        thread.calls.iter().enumerate().filter_map(move |(i, call)| {
            let (known, covers) = proves(call).zip(covers(call))?;
            let next = thread.calls.get(i + 1).map(|c| c.entry);
            let submit = thread.submits.partition_point(|s| s.first <= call.entry);
            let submit = thread.submits.get(submit).map(|s| s.first);
            let over = next.into_iter().chain(submit).min();
            let (waits_to, empty) = match (call.returned(), call.exit.or(over)) {
                // It waits for nothing.
                (_, over) if call.family == CudaFamily::EventQuery => (call.entry, over.unwrap_or(end)),
                (Some(returned), _) => done(thread, call, returned),
                // Its return was not seen: it was over by then, and nobody knows since when.
                (None, Some(over)) => (call.entry, over),
                (None, None) if call.exit_by_next => (call.entry, end),
                (None, None) => done(thread, call, end),
            };
            // A copy waits for the kernels ahead of it, and then copies.
            let copying =
                if call.family == CudaFamily::Copy { COPY_NS + call.bytes / BYTES_PER_NS } else { 0 };
            let before = |at: Ns| at.saturating_sub(copying).max(call.entry);
            let (waits_to, empty) = (before(waits_to), before(empty));
            Some(Self { thread: thread.key, pid: thread.pid, call, known, covers, waits_to, empty })
        })
    }
}

/// When a call's wait for the device was over, between which two times: a thread that slept was woken for
/// it, and waiting for a processor after that is no waiting for the device; one that spun and was off its
/// processor just before it returned cannot have seen the end.
fn done(thread: &Thread, call: &CudaCall, exit: Ns) -> (Ns, Ns) {
    let mut waits_to = exit;
    let from = thread.off_cpu.partition_point(|o| o.ran <= call.entry);
    let to = thread.off_cpu.partition_point(|o| o.ran <= exit);
    for off in thread.off_cpu.get(from..to).unwrap_or_default().iter().rev() {
        if off.left < call.entry || waits_to - off.ran > RETURN_NS {
            break;
        }
        match off.state {
            State::Preempted | State::Yielded => waits_to = off.left,
            _ => {
                let woken = off.woken.unwrap_or(off.ran);
                return (woken, woken);
            }
        }
    }
    (waits_to, exit)
}

/// Submits of each process and stream; those whose stream is not known under `None`.
struct Streams(BTreeMap<(u32, Option<u64>), Last>);

impl Streams {
    fn new(runs: &[Run]) -> Self {
        let mut by_stream: BTreeMap<(u32, Option<u64>), Vec<&Run>> = BTreeMap::new();
        for run in runs {
            let stream = run.kind.thread.is_none().then_some(run.kind.stream);
            by_stream.entry((run.pid, stream)).or_default().push(run);
        }
        Self(by_stream.into_iter().map(|(key, runs)| (key, Last::new(runs.into_iter()))).collect())
    }

    /// Whether the process submitted to any other stream from `since` up to `at`.
    fn others(&self, pid: u32, stream: Option<u64>, since: Option<Ns>, at: Ns) -> bool {
        let of_process = self.0.range((pid, None)..=(pid, Some(u64::MAX)));
        let others = of_process.filter(|((_, other), _)| other.is_none() || *other != stream);
        others.filter_map(|(_, last)| last.up_to(at)).any(|last| since.is_none_or(|since| last > since))
    }

    /// What a query that was told that work is not done yet says: from the last submit ahead of it to the query
    /// the stream was at work.
    fn not_ready(&self, pid: u32, call: &CudaCall) -> Option<Event> {
        if call.family != CudaFamily::EventQuery || call.result != Some(NOT_READY) {
            return None;
        }
        let last = self.0.get(&(pid, Some(call.stream?)))?.up_to(covers(call)?)?;
        (last < call.entry).then_some(Event { at: last, what: What::Wait(call.entry) })
    }
}

/// The `Empty` and `Wait` events of all calls. A device is empty when each process that submitted to it has
/// had a call return since, before which it submitted nothing more, and nobody goes on waiting.
pub(super) fn synchronise(threads: &[&Thread], runs: &[Run], end: Ns) -> Vec<Event> {
    let last = |thread: &&Thread| {
        let of_thread = runs.iter().filter(|r| r.thread == thread.key);
        (thread.key, Last::new(of_thread))
    };
    let by_thread: BTreeMap<ThreadKey, Last> = threads.iter().map(last).collect();
    // A thread that only copies waits for its own stream, which holds no kernels.
    let submitted = |c: &Call| by_thread.get(&c.thread).is_some_and(|l| l.up_to(c.call.entry).is_some());
    let calls = threads.iter().flat_map(|t| Call::of_thread(t, end));
    let mut calls: Vec<Call> = calls.filter(|c| of_whole_context(c.call) || submitted(c)).collect();
    calls.sort_by_key(|c| (c.empty, c.call.entry, c.thread, c.known));
    let mut by_process: BTreeMap<u32, Process> = BTreeMap::new();
    for thread in threads {
        let process = || Process {
            submits: Last::new(runs.iter().filter(|r| r.pid == thread.pid)),
            waiting: Waiting::new(&calls, thread.pid),
            threads: Vec::new(),
        };
        by_process.entry(thread.pid).or_insert_with(process).threads.push(thread.key);
    }

    // Per process: the entry of the last call that left it empty, and how sure that is.
    let mut emptied: BTreeMap<u32, (Ns, Known)> = BTreeMap::new();
    let streams = Streams::new(runs);
    let queries = threads.iter().flat_map(|t| t.calls.iter().map(|c| (t.pid, c)));
    let mut events: Vec<Event> = queries.filter_map(|(pid, call)| streams.not_ready(pid, call)).collect();
    for Call { thread, pid, call, known, covers, waits_to, empty } in calls {
        let Some(process) = by_process.get(&pid) else { continue };
        let last = |thread: &ThreadKey| by_thread.get(thread)?.up_to(covers);
        let whole = of_whole_context(call);
        let since = emptied.get(&pid).map(|e| e.0);
        let queued = process.submits.up_to(covers).is_some_and(|at| since.is_none_or(|s| at > s));
        if queued && waits_to > call.entry {
            events.push(Event { at: call.entry, what: What::Wait(waits_to) });
        }
        let others = || process.threads.iter().filter(|&&other| other != thread);
        let more = others().filter_map(|other| by_thread.get(other)?.up_to(empty)).any(|at| at > covers);
        // An event may have been recorded before its own thread's last submit.
        let own = covers < call.entry
            && by_thread.get(&thread).and_then(|l| l.up_to(call.entry)).is_some_and(|at| at > covers);
        // Whoever asks for a stream's progress need not mean the one with the kernels.
        let beside = call.family == CudaFamily::EventQuery && streams.others(pid, call.stream, since, covers);
        if call.exit.is_none() || more || own || beside || process.waiting.beyond(empty) {
            continue;
        }
        // Threads of a framework mostly share a stream, but need not.
        let mut shared = others().filter_map(last);
        let shared = !whole && shared.any(|at| since.is_none_or(|since| at > since));
        let known = if shared { known.max(Known::Bounded) } else { known };
        let entry = since.map_or(covers, |since| since.max(covers));
        emptied.insert(pid, (entry, known));
        let mut sure = Some(known);
        for (other, process) in by_process.iter().filter(|(other, _)| **other != pid) {
            let Some(at) = process.submits.up_to(empty) else { continue };
            let emptied = emptied.get(other).filter(|e| e.0 >= at).map(|e| e.1);
            // `Known` is ordered from sure to unsure.
            sure = sure.zip(emptied).map(|(a, b)| a.max(b));
        }
        if let Some(known) = sure {
            events.push(Event { at: empty, what: What::Empty(known) });
        }
    }
    events
}
