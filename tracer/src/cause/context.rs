//! What every rule of a walk looks up: the timeline, and names resolved once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use crate::idle::{DeviceMap, On};
use crate::timeline::{NamedFrame, Thread, Timeline};
use crate::trace::{
    CudaCall, CudaFamily, File, FileId, Ns, OffCpu, Polled, Socket, Span, StackId, ThreadKey, WakerContext,
};

use super::jobs::Jobs;
use super::schedule::{self, Shares};
use super::user_stacks::{self, Work};
use super::verdicts::Verdicts;
use super::{Mechanism, files, running, team};

/// By the indices of the two ticks.
type TickShares = HashMap<(usize, usize), Option<Rc<Shares>>>;
type FrameCache = RefCell<HashMap<StackId, Rc<Vec<NamedFrame>>>>;

#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub timeline: &'a Timeline,
    /// The device whose idle time is explained.
    pub device: Option<u32>,
    pub map: DeviceMap,
    pub jobs: Jobs,
    frames: FrameCache,
    /// Files seen behind descriptors, with when: a short wait has no file of its own.
    descriptors: BTreeMap<(u32, u64), Vec<(Ns, FileId)>>,
    /// Local addresses on which somebody listens.
    listening: BTreeSet<String>,
    /// Processes that were seen on a connection, by its two addresses.
    connections: BTreeMap<(String, String), ThreadKey>,
    /// Threads by process.
    processes: BTreeMap<u32, Vec<ThreadKey>>,
    /// Futex words waited on for CPython's switch interval: per (process, address), threads and time-outs.
    interval_words: BTreeMap<(u32, u64), (BTreeSet<ThreadKey>, u32)>,
    disks: BTreeMap<u32, &'a str>,
    shares: RefCell<TickShares>,
    /// Whether the records of who ran instead are there, and whole.
    pub knows_who_ran: bool,
    /// Processes that listen, or read from a connection they accepted, with the file.
    servers: BTreeMap<u32, FileId>,
    /// Processes that waited on a connection they made themselves.
    clients: BTreeSet<u32>,
    /// Processes that waited on `/dev/fuse`.
    daemons: BTreeSet<u32>,
    label_by_stacks: RefCell<HashMap<(StackId, StackId), Option<usize>>>,
    labels: RefCell<Vec<Work>>,
    pub verdicts: Verdicts,
    pools: RefCell<BTreeMap<u32, Option<(String, usize)>>>,
    teams: RefCell<BTreeMap<u32, Rc<Vec<ThreadKey>>>>,
    faults: RefCell<BTreeMap<ThreadKey, Mechanism>>,
    /// Devices that threads submit to.
    feeds: BTreeMap<ThreadKey, On>,
    /// First launch of each function or graph, by process, context and handle.
    launched: BTreeMap<(u32, u64, u64), Ns>,
}

/// `/dev/fuse`: the miscellaneous devices' major, minor 229.
const DEV_FUSE: u32 = 10 << 20 | 229;

/// CPython's default switch interval, with what a timer's slack and a busy processor add.
const SWITCH_INTERVAL: std::ops::RangeInclusive<u64> = 4_900_000..=6_500_000;

impl<'a> Context<'a> {
    pub(crate) fn new(timeline: &'a Timeline) -> Self {
        let mut context = Self {
            timeline,
            device: None,
            map: DeviceMap::new(timeline),
            jobs: Jobs::new(timeline),
            frames: RefCell::default(),
            descriptors: BTreeMap::new(),
            listening: BTreeSet::new(),
            connections: BTreeMap::new(),
            processes: BTreeMap::new(),
            interval_words: BTreeMap::new(),
            disks: BTreeMap::new(),
            shares: RefCell::default(),
            knows_who_ran: schedule::knows_who_ran(timeline),
            servers: BTreeMap::new(),
            clients: BTreeSet::new(),
            daemons: BTreeSet::new(),
            label_by_stacks: RefCell::default(),
            labels: RefCell::default(),
            verdicts: Verdicts::default(),
            pools: RefCell::default(),
            teams: RefCell::default(),
            faults: RefCell::default(),
            feeds: BTreeMap::new(),
            launched: BTreeMap::new(),
        };
        for file in timeline.files.values() {
            if let Some(socket) = file.socket.as_ref().filter(|s| s.state == files::LISTEN) {
                context.listening.insert(port(&socket.local).to_owned());
            }
        }
        for (&key, thread) in &timeline.threads {
            context.processes.entry(thread.pid).or_default().push(key);
            for off in &thread.off_cpu {
                context.note(key, off);
            }
            context.note_launches(thread);
        }
        for block in timeline.blocks.iter().filter(|b| !b.name.is_empty()) {
            context.disks.insert(block.dev, &block.name);
        }
        context.descriptors.values_mut().for_each(|seen| seen.sort_unstable());
        context
    }

    pub(crate) fn of_device(timeline: &'a Timeline, device: u32) -> Self {
        Self { device: Some(device), ..Self::new(timeline) }
    }

    fn note_launches(&mut self, thread: &Thread) {
        if let Some(on) = self.map.of_thread(thread) {
            self.feeds.insert(thread.key, on);
        }
        let groups = thread.submits.iter().flat_map(|s| &s.groups).map(|g| (g.context, g.function, g.first));
        let calls = thread.calls.iter().filter(|c| is_launch(c)).map(|c| (c.context, c.object, c.entry));
        for (context, function, at) in groups.chain(calls).filter(|&(_, function, _)| function != 0) {
            let first = self.launched.entry((thread.pid, context, function)).or_insert(at);
            *first = at.min(*first);
        }
    }

    /// The one device that a thread submits to, if that is known.
    pub(crate) fn fed_by(&self, thread: ThreadKey) -> Option<u32> {
        self.feeds.get(&thread).and_then(On::only)
    }

    /// Whether a thread submits to a device, as far as is known.
    pub(crate) fn may_feed(&self, thread: ThreadKey, device: u32) -> bool {
        self.feeds.get(&thread).is_some_and(|on| on.devices.contains(&device))
    }

    /// Whether the function of a launch had been launched before.
    pub(crate) fn launched_before(&self, call: &CudaCall) -> bool {
        let first = self.launched.get(&(call.pid, call.context, call.object));
        first.is_some_and(|&first| first < call.entry)
    }

    fn note(&mut self, key: ThreadKey, off: &OffCpu) {
        let Some(call) = &off.syscall else { return };
        if i64::from(call.nr) == libc::SYS_futex {
            let word = self.interval_words.entry((off.pid, call.args[0])).or_default();
            word.0.insert(key);
            let timed_out = off.waker.as_ref().is_some_and(|w| w.context == WakerContext::Interrupt);
            let slept = off.woken.map(|w| w.saturating_sub(off.left));
            word.1 += u32::from(timed_out && slept.is_some_and(|s| SWITCH_INTERVAL.contains(&s)));
        }
        let Some(id) = off.file else { return };
        if self.timeline.files.get(&id).is_some_and(|f| f.rdev == DEV_FUSE) {
            self.daemons.insert(off.pid);
        }
        let seen = self.descriptors.entry((off.pid, call.args[0])).or_default();
        if seen.last().is_none_or(|&(_, last)| last != id) {
            seen.push((off.left, id));
        }
        let Some(socket) = self.timeline.files.get(&id).and_then(|f| f.socket.as_ref()) else { return };
        if socket.state == files::LISTEN || self.is_accepted(&socket.local) {
            self.servers.entry(off.pid).or_insert(id);
        }
        if self.is_outgoing(socket) {
            self.clients.insert(off.pid);
        }
        if !socket.local.is_empty() && !socket.peer.is_empty() {
            self.connections.entry((socket.local.clone(), socket.peer.clone())).or_insert(key);
        }
    }

    /// Two or more threads of the process waited on this word, and three of the waits or more ended after one
    /// switch interval.
    pub(crate) fn is_switch_interval_word(&self, pid: u32, address: u64) -> bool {
        self.interval_words
            .get(&(pid, address))
            .is_some_and(|(threads, ended)| threads.len() >= 2 && *ended >= 3)
    }

    pub(crate) fn thread(&self, key: ThreadKey) -> Option<&'a Thread> {
        self.timeline.threads.get(&key)
    }

    /// A thread whose own records were kept.
    pub(crate) fn recorded(&self, key: ThreadKey) -> Option<&'a Thread> {
        self.thread(key).filter(|t| !t.slices.is_empty())
    }

    pub(crate) fn process(&self, pid: u32) -> &[ThreadKey] {
        self.processes.get(&pid).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn frames(&self, id: StackId) -> Rc<Vec<NamedFrame>> {
        if let Some(frames) = self.frames.borrow().get(&id) {
            return Rc::clone(frames);
        }
        let frames = Rc::new(self.timeline.frames(id));
        self.frames.borrow_mut().insert(id, Rc::clone(&frames));
        frames
    }

    pub(crate) fn file(&self, off: &OffCpu) -> Option<&'a File> {
        self.timeline.files.get(&off.file.filter(|&id| id != 0)?)
    }

    /// The kernel's name of a disk.
    pub(crate) fn disk(&self, dev: u32) -> Option<&'a str> {
        self.disks.get(&dev).copied()
    }

    /// What the processors did between the ticks around a span.
    pub(crate) fn processors_over(&self, span: Span) -> Option<Rc<Shares>> {
        let ticks = &self.timeline.host_ticks;
        let from = ticks.partition_point(|t| t.at <= span.start).checked_sub(1)?;
        let to = ticks.partition_point(|t| t.at < span.end);
        let mut known = self.shares.borrow_mut();
        known.entry((from, to)).or_insert_with(|| Shares::between(ticks, from, to).map(Rc::new)).clone()
    }

    /// A socket on which a process serves others.
    pub(crate) fn serves(&self, pid: u32) -> Option<&'a File> {
        self.timeline.files.get(self.servers.get(&pid)?)
    }

    /// What the epoll descriptor of a wait watches, where that was seen.
    pub(crate) fn polled(&self, off: &OffCpu) -> Option<&'a Polled> {
        let call = off.syscall.as_ref().filter(|c| Polled::CALLS.contains(&i64::from(c.nr)))?;
        let fd = call.args[0];
        self.timeline.polled.iter().rev().find(|p| p.pid == off.pid && u64::from(p.fd) == fd)
    }

    /// Whether a process waited on a connection it made itself.
    pub(crate) fn asks(&self, pid: u32) -> bool {
        self.clients.contains(&pid)
    }

    /// A connection to a peer that was not accepted here.
    pub(crate) fn is_outgoing(&self, socket: &Socket) -> bool {
        !socket.peer.is_empty() && socket.state != files::LISTEN && !self.is_accepted(&socket.local)
    }

    /// The number of a CPU sample's label.
    pub(crate) fn label_of(&self, kernel_stack: StackId, user_stack: StackId) -> Option<usize> {
        let key = (kernel_stack, user_stack);
        if let Some(&label) = self.label_by_stacks.borrow().get(&key) {
            return label;
        }
        let label = running::label(self, kernel_stack, user_stack).map(|work| {
            let mut labels = self.labels.borrow_mut();
            labels.iter().position(|l| *l == work).unwrap_or_else(|| {
                labels.push(work);
                labels.len() - 1
            })
        });
        self.label_by_stacks.borrow_mut().insert(key, label);
        label
    }

    pub(crate) fn label(&self, number: usize) -> Option<Work> {
        self.labels.borrow().get(number).cloned()
    }

    /// The threading library that a process was sampled in, and in how many of its threads.
    pub(crate) fn pool_library(&self, pid: u32) -> Option<(String, usize)> {
        if let Some(pool) = self.pools.borrow().get(&pid) {
            return pool.clone();
        }
        let mut threads: BTreeMap<String, usize> = BTreeMap::new();
        for thread in self.process(pid).iter().filter_map(|&k| self.thread(k)) {
            let library = thread.samples.iter().find_map(|sample| {
                user_stacks::pool_library(&self.frames(sample.user_stack)).map(str::to_owned)
            });
            if let Some(library) = library {
                *threads.entry(library).or_default() += 1;
            }
        }
        let pool = threads.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0))).filter(|p| p.1 > 1);
        self.pools.borrow_mut().insert(pid, pool.clone());
        pool
    }

    /// Threads of a process that were sampled in a team.
    pub(crate) fn team(&self, pid: u32) -> Rc<Vec<ThreadKey>> {
        if let Some(team) = self.teams.borrow().get(&pid) {
            return Rc::clone(team);
        }
        let of_it = |&&key: &&ThreadKey| self.thread(key).is_some_and(|t| team::is_member(self, t));
        let team: Rc<Vec<ThreadKey>> = Rc::new(self.process(pid).iter().filter(of_it).copied().collect());
        self.teams.borrow_mut().insert(pid, Rc::clone(&team));
        team
    }

    /// Whether a process was seen to wait for requests to a file system that it serves.
    pub(crate) fn serves_files(&self, pid: u32) -> bool {
        self.daemons.contains(&pid)
    }

    /// What a thread's short waits in faults are put down to, found out once.
    pub(crate) fn faults(&self, thread: ThreadKey, find: impl FnOnce() -> Mechanism) -> Mechanism {
        if let Some(&known) = self.faults.borrow().get(&thread) {
            return known;
        }
        let found = find();
        self.faults.borrow_mut().insert(thread, found);
        found
    }

    /// The file last seen behind a descriptor of a process before `at`, else the first one after.
    pub(crate) fn descriptor(&self, pid: u32, fd: u64, at: Ns) -> Option<&'a File> {
        let seen = self.descriptors.get(&(pid, fd))?;
        let after = seen.partition_point(|s| s.0 <= at);
        let (_, id) = seen.get(after.saturating_sub(1))?;
        self.timeline.files.get(id)
    }

    /// Somebody on this host listens on the port of this local address: the connection was accepted.
    pub(crate) fn is_accepted(&self, local: &str) -> bool {
        self.listening.contains(port(local))
    }

    /// A thread seen on the other end of a connection whose two ends are on this host.
    pub(crate) fn other_end(&self, file: &File) -> Option<ThreadKey> {
        let socket = file.socket.as_ref()?;
        self.connections.get(&(socket.peer.clone(), socket.local.clone())).copied()
    }
}

fn is_launch(call: &CudaCall) -> bool {
    matches!(call.family, CudaFamily::Launch | CudaFamily::GraphLaunch)
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or(address)
}
