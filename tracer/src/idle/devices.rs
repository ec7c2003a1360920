//! Which device a thread's driver calls are for: from NVML's lists, from contexts, else by fit.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::device_fit::{self, Pace};
use crate::timeline::{Thread, Timeline};
use crate::trace::{CudaFamily, SubmitGroup, Submits, ThreadKey};

/// Programs that hold a device for others, or only look at it: MPS daemons, monitors. Names as the kernel cuts
/// them, to 15 bytes.
const BETWEEN: &[&str] = &["nvidia-cuda-mps", "nvidia-smi", "nvidia-persiste", "nv-hostengine", "dcgm"];
/// The server among them, which NVML may list in its clients' place.
const SERVER: &str = "nvidia-cuda-mps";
/// Stream handles up to this name a default stream of whatever context is current.
const DEFAULT_STREAMS: u64 = 2;

/// Devices that calls may be for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct On {
    /// NVML indices in order: one where it is known or guessed, else every one that it may be.
    pub devices: Vec<u32>,
    /// Not known for certain.
    pub inferred: bool,
}

/// Calls that all go to one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Context(u32, u64),
    /// A stream whose context was not seen.
    Stream(u32, u64),
    /// Calls of a thread before its context was seen.
    Thread(ThreadKey),
}

/// Which device each process, context, stream and thread works on.
#[derive(Debug, Default)]
pub struct DeviceMap {
    processes: BTreeMap<u32, On>,
    /// Of processes that may be on several devices.
    units: BTreeMap<Unit, On>,
    /// The one context in which a stream of a process was seen.
    streams: BTreeMap<(u32, u64), u64>,
    /// Processes that submit nothing of their own.
    between: BTreeSet<u32>,
}

impl On {
    fn sure(device: u32) -> Self {
        Self { devices: vec![device], inferred: false }
    }

    /// The one device, if it is known for certain.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.devices[..] {
            [device] if !self.inferred => Some(device),
            _ => None,
        }
    }
}

impl DeviceMap {
    #[must_use]
    pub fn new(timeline: &Timeline) -> Self {
        let mut map = Self { between: between(timeline), ..Self::default() };
        map.processes(timeline);
        let several: BTreeSet<u32> =
            map.processes.iter().filter(|(_, on)| on.devices.len() > 1).map(|(&pid, _)| pid).collect();
        for thread in timeline.threads.values().filter(|t| several.contains(&t.pid)) {
            map.note_streams(thread);
        }
        for &pid in &several {
            map.resolve(timeline, pid);
        }
        map
    }

    /// Devices of a process, in NVML's lists or as far as it can be told; `None` where it has nothing to do
    /// with one.
    #[must_use]
    pub fn of_process(&self, pid: u32) -> Option<&On> {
        self.processes.get(&pid)
    }

    /// Devices of a call: `context` and `stream` as in the records.
    #[must_use]
    pub fn of_call(&self, thread: &Thread, context: u64, stream: Option<u64>) -> Option<&On> {
        let process = self.processes.get(&thread.pid)?;
        if process.devices.len() <= 1 {
            return Some(process);
        }
        let unit = self.unit(thread, context, stream);
        Some(self.units.get(&unit).unwrap_or(process))
    }

    /// Devices of all that a thread submits; `None` if it submits nothing.
    #[must_use]
    pub fn of_thread(&self, thread: &Thread) -> Option<On> {
        if thread.submits.is_empty() || self.between.contains(&thread.pid) {
            return None;
        }
        let mut all = On::default();
        let calls = thread.submits.iter().flat_map(places);
        for on in calls.filter_map(|(context, stream)| self.of_call(thread, context, stream)) {
            all.devices.extend(&on.devices);
            all.inferred |= on.inferred;
        }
        all.devices.sort_unstable();
        all.devices.dedup();
        Some(all)
    }

    /// Whether it stands between jobs and a device: an MPS daemon, a monitor.
    #[must_use]
    pub fn is_between(&self, pid: u32) -> bool {
        self.between.contains(&pid)
    }

    /// Each process's candidates: the devices in whose lists it is.
    fn processes(&mut self, timeline: &Timeline) {
        let mut listed: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (&index, track) in &timeline.devices {
            for process in &track.processes {
                listed.entry(process.pid).or_default().insert(index);
            }
        }
        let instance = |d: &u32| timeline.devices.get(d).is_some_and(|t| t.device.uuid.starts_with("MIG-"));
        for on in listed.values_mut().filter(|on| on.iter().any(instance)) {
            // A process on an instance may be listed for the whole device too.
            on.retain(|d| instance(d));
        }
        let split = timeline.devices.keys().any(instance);
        let whole = |d: &u32| timeline.devices.get(d).is_some_and(|t| t.device.mig) && !instance(d);
        let all: BTreeSet<u32> = timeline.devices.keys().copied().filter(|d| !(split && whole(d))).collect();
        // Whoever is in no list where the lists name an MPS server is a client of one.
        let servers = leaders(timeline).filter(|(_, comm)| comm.starts_with(SERVER)).map(|(pid, _)| pid);
        let served: BTreeSet<u32> = servers.filter_map(|pid| listed.get(&pid)).flatten().copied().collect();
        let unlisted = if served.is_empty() { all } else { served };
        let submitters = timeline.threads.values().filter(|t| !t.submits.is_empty() || !t.calls.is_empty());
        let pids: BTreeSet<u32> = submitters.map(|t| t.pid).chain(listed.keys().copied()).collect();
        for pid in pids.into_iter().filter(|pid| !self.between.contains(pid)) {
            let on = listed.get(&pid).unwrap_or(&unlisted);
            let on = On { devices: on.iter().copied().collect(), inferred: on.len() > 1 };
            self.processes.insert(pid, on);
        }
    }

    fn note_streams(&mut self, thread: &Thread) {
        let groups = thread.submits.iter().flat_map(|s| &s.groups).map(|g| (g.context, g.stream));
        let calls = thread.calls.iter().filter_map(|c| Some((c.context, c.stream?)));
        for (context, stream) in groups.chain(calls).filter(|&(c, s)| c != 0 && s > DEFAULT_STREAMS) {
            let seen = self.streams.entry((thread.pid, stream)).or_insert(context);
            if *seen != context {
                // The handle was used again: it names no context.
                *seen = 0;
            }
        }
    }

    fn unit(&self, thread: &Thread, context: u64, stream: Option<u64>) -> Unit {
        match (context, stream) {
            (0, Some(stream)) if stream > DEFAULT_STREAMS => match self.streams.get(&(thread.pid, stream)) {
                Some(&context) if context != 0 => Unit::Context(thread.pid, context),
                _ => Unit::Stream(thread.pid, stream),
            },
            (0, _) => Unit::Thread(thread.key),
            (context, _) => Unit::Context(thread.pid, context),
        }
    }

    /// Tells apart what a process does on several devices.
    fn resolve(&mut self, timeline: &Timeline, pid: u32) {
        let Some(process) = self.processes.get(&pid).cloned() else { return };
        let mut paces: BTreeMap<Unit, Vec<Pace>> = BTreeMap::new();
        let mut of_thread: BTreeMap<ThreadKey, BTreeSet<Unit>> = BTreeMap::new();
        for thread in timeline.threads.values().filter(|t| t.pid == pid) {
            for submits in &thread.submits {
                for (unit, pace) in self.paces(thread, submits) {
                    paces.entry(unit).or_default().push(pace);
                    of_thread.entry(thread.key).or_default().insert(unit);
                }
            }
        }
        let mut fitted: BTreeMap<Unit, u32> = BTreeMap::new();
        for (&unit, pace) in &paces {
            if let Some(device) = device_fit::device(timeline, &process.devices, pace) {
                fitted.insert(unit, device);
            }
        }
        let ordered = by_ordinal(timeline, pid, &process.devices);
        // CUDA may be told to count devices in another order than PCI's; where readings say so, they hold.
        let contradicted = ordered.iter().any(|(unit, device)| fitted.get(unit).is_some_and(|f| f != device));
        let known = if contradicted { fitted } else { fitted.into_iter().chain(ordered).collect() };
        self.units.extend(known.iter().map(|(&unit, &device)| (unit, On::sure(device))));
        for (thread, units) in of_thread {
            let own = Unit::Thread(thread);
            // Its context was seen late; if it only ever had one, that held before too.
            let devices: BTreeSet<Option<u32>> =
                units.iter().filter(|&&u| u != own).map(|u| known.get(u).copied()).collect();
            if let (1, Some(&Some(device))) = (devices.len(), devices.first()) {
                self.units.insert(own, On::sure(device));
            }
        }
    }

    /// What a run adds to each unit.
    fn paces(&self, thread: &Thread, submits: &Submits) -> Vec<(Unit, Pace)> {
        if submits.groups.is_empty() {
            let count = submits.launches.saturating_add(submits.graph_launches);
            return vec![(Unit::Thread(thread.key), Pace::new(submits.first, submits.last, count))];
        }
        let kernels = |g: &&SubmitGroup| g.family != CudaFamily::Copy;
        let pace = |g: &SubmitGroup| {
            (self.unit(thread, g.context, Some(g.stream)), Pace::new(g.first, g.last, g.count))
        };
        submits.groups.iter().filter(kernels).map(pace).collect()
    }
}

/// Context and stream of each part of a run.
fn places(submits: &Submits) -> impl Iterator<Item = (u64, Option<u64>)> + '_ {
    let whole = submits.groups.is_empty().then_some((0, None));
    whole.into_iter().chain(submits.groups.iter().map(|g| (g.context, Some(g.stream))))
}

/// Each process's first thread's name.
fn leaders(timeline: &Timeline) -> impl Iterator<Item = (u32, &str)> {
    timeline.threads.values().filter(|t| t.key.tid == t.pid).map(|t| (t.pid, t.comm.as_str()))
}

fn between(timeline: &Timeline) -> BTreeSet<u32> {
    let named = |comm: &str| BETWEEN.iter().any(|name| comm.starts_with(name));
    leaders(timeline).filter(|(_, comm)| named(comm)).map(|(pid, _)| pid).collect()
}

/// Contexts by the order of their ordinals, where as many ordinals were seen as the process has devices.
fn by_ordinal(timeline: &Timeline, pid: u32, devices: &[u32]) -> BTreeMap<Unit, u32> {
    let contexts: BTreeMap<u64, u32> =
        timeline.cuda_contexts.iter().filter(|c| c.pid == pid).map(|c| (c.context, c.ordinal)).collect();
    let ordinals: BTreeSet<u32> = contexts.values().copied().collect();
    if ordinals.len() != devices.len() {
        return BTreeMap::new();
    }
    let index: BTreeMap<u32, u32> = ordinals.into_iter().zip(devices.iter().copied()).collect();
    contexts.into_iter().map(|(context, ordinal)| (Unit::Context(pid, context), index[&ordinal])).collect()
}

/// The threads whose submits count for `device`, each with what it does there alone, and whether any of that
/// is a guess.
#[must_use]
pub fn feeders<'t>(timeline: &'t Timeline, map: &DeviceMap, device: u32) -> (Vec<Cow<'t, Thread>>, bool) {
    let mut inferred = false;
    let mut threads = Vec::new();
    for thread in timeline.threads.values() {
        let edges = !thread.submits.is_empty() || !thread.calls.is_empty();
        let Some(process) = map.of_process(thread.pid).filter(|_| edges) else { continue };
        if !process.devices.contains(&device) {
            continue;
        }
        if let [_] = process.devices[..] {
            inferred |= process.inferred;
            threads.push(Cow::Borrowed(thread));
            continue;
        }
        let (submits, calls, guessed) = part(map, thread, device);
        inferred |= guessed;
        if submits.len() + calls.len() > 0 {
            threads.push(Cow::Owned(Thread { submits, calls, ..thread.clone() }));
        }
    }
    (threads, inferred)
}

/// A thread's runs and calls on one device, and whether any is there by guess.
fn part(map: &DeviceMap, thread: &Thread, device: u32) -> (Vec<Submits>, Vec<crate::trace::CudaCall>, bool) {
    let mut inferred = false;
    let mut here = |context, stream| {
        let on = map.of_call(thread, context, stream);
        let on = on.filter(|on| on.devices.contains(&device));
        inferred |= on.is_some_and(|on| on.inferred);
        on.is_some()
    };
    let submits = thread.submits.iter().filter_map(|submits| {
        if submits.groups.is_empty() {
            return here(0, None).then(|| submits.clone());
        }
        let groups = submits.groups.iter().filter(|g| here(g.context, Some(g.stream))).cloned().collect();
        of_groups(submits, groups)
    });
    let submits = submits.collect();
    let calls = thread.calls.iter().filter(|c| here(c.context, c.stream)).cloned().collect();
    (submits, calls, inferred)
}

/// A run cut down to some of its groups; `None` for none.
fn of_groups(submits: &Submits, groups: Vec<SubmitGroup>) -> Option<Submits> {
    if groups.len() == submits.groups.len() {
        return Some(submits.clone());
    }
    let count = |family| {
        let of_family = groups.iter().filter(|g| g.family == family);
        of_family.fold(0_u64, |sum, g| sum.saturating_add(g.count))
    };
    // A run goes from its first submit to its last; copies lie in it or before.
    let submitted = groups.iter().any(|g| g.family != CudaFamily::Copy);
    let of_run = || groups.iter().filter(|g| !submitted || g.family != CudaFamily::Copy);
    Some(Submits {
        first: of_run().map(|g| g.first).min()?,
        last: of_run().map(|g| g.last.max(g.first)).max()?,
        launches: count(CudaFamily::Launch),
        graph_launches: count(CudaFamily::GraphLaunch),
        memsets: count(CudaFamily::Memset),
        copies: count(CudaFamily::Copy),
        groups,
        ..*submits
    })
}
