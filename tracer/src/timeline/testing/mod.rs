//! Hand-written traces for tests of every stage from here down.
//!
//! ```
//! use whyidle::timeline::{build, testing::{MS, TraceBuilder, key}};
//!
//! let timeline = build(
//!     TraceBuilder::new(0, 1000 * MS)
//!         .device(0)
//!         .reading(0, 0, 500 * MS, 40.0)
//!         .on_device(0, 10)
//!         .thread(10, 10, "trainer")
//!         .thread(20, 20, "loader")
//!         .wait(10, 100 * MS, 300 * MS, 301 * MS, |w| w.read(3, 77).woken_by(20))
//!         .submits(10, 310 * MS, 320 * MS, 50)
//!         .records(),
//! );
//! assert_eq!(timeline.threads[&key(10)].off_cpu.len(), 1);
//! ```

mod cuda;
mod wait;

pub use wait::Wait;

use crate::trace::{
    CudaCall, CudaFamily, Device, DeviceProcess, End, File, FileId, Frame, Host, Mapping, Ns, OffCpu,
    Reading, ReadingSource, Record, Sample, Span, Stack, StackEnd, StackId, StackKind, State, Submits,
    Symbol, TargetKind, ThreadExit, ThreadKey, ThreadSeen, WaitTotal,
};

/// One microsecond, in nanoseconds.
pub const US: u64 = 1_000;
/// One millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;

/// Every thread of a built trace has this start time, so its id alone names it.
const START_TICKS: u64 = 1;

/// The key of thread `tid` in a built trace.
#[must_use]
pub fn key(tid: u32) -> ThreadKey {
    ThreadKey { tid, start_ticks: START_TICKS }
}

/// Collects records. Threads are named by their ids; a thread's process is the one given to
/// [`TraceBuilder::thread`], or its own id.
#[derive(Clone, Debug)]
pub struct TraceBuilder {
    records: Vec<Record>,
    pids: std::collections::BTreeMap<u32, u32>,
    start: Ns,
    end: Ns,
    next_stack: StackId,
    next_address: u64,
}

impl TraceBuilder {
    /// A recording from `start` to `end` that ended in order: threshold 100 us, tick 166 ms, 99 samples a
    /// second, four processors.
    #[must_use]
    pub fn new(start: Ns, end: Ns) -> Self {
        let host = Host {
            tool_version: "0".into(),
            kernel: "6.1.0".into(),
            hostname: "host".into(),
            online_cpus: vec![0, 1, 2, 3],
            threshold_ns: 100 * US,
            sample_period_ns: 10_101_010,
            tick_ns: 166 * MS,
            start_ns: start,
            start_unix_ns: 1_700_000_000_000_000_000,
            command: "--all".into(),
            own_pid: 1,
            nvidia_majors: vec![195],
        };
        Self {
            records: vec![Record::Host(host)],
            pids: std::collections::BTreeMap::new(),
            start,
            end,
            next_stack: 1,
            next_address: 0x1000,
        }
    }

    /// Any record as it is.
    #[must_use]
    pub fn record(mut self, record: Record) -> Self {
        self.records.push(record);
        self
    }

    #[must_use]
    pub fn device(self, index: u32) -> Self {
        self.record(Record::Device(Device {
            index,
            uuid: format!("GPU-{index}"),
            name: "Simulated".into(),
            power_limit_mw: Some(400_000),
            sample_period_ns: Some(166 * MS),
            ..Device::default()
        }))
    }

    /// One device window read as `busy` percent.
    #[must_use]
    pub fn reading(self, device: u32, start: Ns, end: Ns, busy: f64) -> Self {
        self.reading_with(device, start, end, |r| r.busy_percent = Some(busy))
    }

    /// One device window without a value, to be filled in by `change`.
    #[must_use]
    pub fn reading_with(self, device: u32, start: Ns, end: Ns, change: impl FnOnce(&mut Reading)) -> Self {
        let mut reading = Reading {
            device,
            span: Span::new(start, end),
            source: ReadingSource::NvmlSamples,
            busy_percent: None,
            power_mw: None,
            memory_percent: None,
            age_ns: 0,
            sm_clock_mhz: None,
            throttle_reasons: None,
        };
        change(&mut reading);
        self.record(Record::Reading(reading))
    }

    /// The process is in NVML's list for the device from the start.
    #[must_use]
    pub fn on_device(self, device: u32, pid: u32) -> Self {
        let at = self.start;
        self.record(Record::DeviceProcess(DeviceProcess { at, device, pid, used_memory: None }))
    }

    /// A target from the recording's start.
    #[must_use]
    pub fn thread(self, pid: u32, tid: u32, comm: &str) -> Self {
        self.thread_with(pid, tid, comm, |_| ())
    }

    /// A target born at `born`, made by `creator`.
    #[must_use]
    pub fn born(self, pid: u32, tid: u32, comm: &str, born: Ns, creator: u32) -> Self {
        self.thread_with(pid, tid, comm, |t| {
            t.at = born;
            t.born = Some(born);
            t.creator = Some(key(creator));
            t.kind = TargetKind::Inherited;
        })
    }

    /// No target, only named.
    #[must_use]
    pub fn bystander(self, pid: u32, tid: u32, comm: &str) -> Self {
        self.thread_with(pid, tid, comm, |t| t.kind = TargetKind::Bystander)
    }

    #[must_use]
    pub fn thread_with(
        mut self,
        pid: u32,
        tid: u32,
        comm: &str,
        change: impl FnOnce(&mut ThreadSeen),
    ) -> Self {
        self.pids.insert(tid, pid);
        let mut seen = ThreadSeen {
            at: self.start,
            key: key(tid),
            pid,
            ppid: 0,
            comm: comm.into(),
            creator: None,
            born: None,
            kind: TargetKind::Named,
            kernel_thread: false,
            cgroups: Vec::new(),
            cmdline: vec![comm.into()],
        };
        change(&mut seen);
        self.record(Record::Thread(seen))
    }

    #[must_use]
    pub fn exit(self, tid: u32, at: Ns) -> Self {
        let pid = self.pid(tid);
        self.record(Record::ThreadExit(ThreadExit { at, key: key(tid), pid }))
    }

    /// Slept from `left` until it was woken at `woken`, and ran again at `ran`. No system call and no waker
    /// unless `change` gives them.
    #[must_use]
    pub fn wait(mut self, tid: u32, left: Ns, woken: Ns, ran: Ns, change: impl FnOnce(Wait) -> Wait) -> Self {
        let wait = change(Wait::new(tid, self.pid(tid), left, Some(woken), ran, State::Sleeping));
        let mut off = wait.off;
        if let Some(waker) = &mut off.waker
            && let Some(thread) = waker.thread
        {
            waker.pid = self.pid(thread.tid);
        }
        if !wait.kernel.is_empty() {
            (self, off.kernel_stack) = self.stack(0, StackKind::Kernel, &wait.kernel);
        }
        if !wait.user.is_empty() {
            let pid = off.pid;
            (self, off.user_stack) = self.stack(pid, StackKind::User, &wait.user);
        }
        if !wait.waker_kernel.is_empty() {
            let id;
            (self, id) = self.stack(0, StackKind::Kernel, &wait.waker_kernel);
            if let Some(waker) = &mut off.waker {
                waker.kernel_stack = id;
            }
        }
        self.record(Record::OffCpu(off))
    }

    /// Preempted from `left` to `ran`.
    #[must_use]
    pub fn preempted(self, tid: u32, left: Ns, ran: Ns, change: impl FnOnce(&mut OffCpu)) -> Self {
        let mut off = Wait::new(tid, self.pid(tid), left, None, ran, State::Preempted).off;
        change(&mut off);
        self.record(Record::OffCpu(off))
    }

    /// Short stays of `tid`, `count` of them, woken by `waker`.
    #[must_use]
    pub fn total(
        self,
        tid: u32,
        waker: Option<u32>,
        first: Ns,
        last: Ns,
        change: impl FnOnce(&mut WaitTotal),
    ) -> Self {
        let mut total = WaitTotal {
            thread: key(tid),
            pid: self.pid(tid),
            waker: waker.map(key),
            waker_pid: waker.map_or(0, |w| self.pid(w)),
            syscall: -1,
            arg0: 0,
            count: 1,
            blocked_ns: 0,
            runnable_ns: 0,
            throttled_ns: 0,
            first,
            last,
        };
        change(&mut total);
        self.record(Record::WaitTotal(total))
    }

    /// A CPU sample with its user stack, innermost frame first, each `function` or `module!function`.
    #[must_use]
    pub fn sample(mut self, tid: u32, at: Ns, frames: &[&str]) -> Self {
        let pid = self.pid(tid);
        let user_stack;
        (self, user_stack) = self.stack(pid, StackKind::User, frames);
        self.record(Record::Sample(Sample { at, thread: key(tid), pid, user_stack, ..Sample::default() }))
    }

    /// Samples every 10 ms from `from` to `to`, all with one stack.
    #[must_use]
    pub fn samples(mut self, tid: u32, from: Ns, to: Ns, frames: &[&str]) -> Self {
        let pid = self.pid(tid);
        let user_stack;
        (self, user_stack) = self.stack(pid, StackKind::User, frames);
        let mut at = from;
        while at < to {
            self.records.push(Record::Sample(Sample {
                at,
                thread: key(tid),
                pid,
                user_stack,
                ..Sample::default()
            }));
            at += 10 * MS;
        }
        self
    }

    /// A run of `launches` submits, the first at `first`, the last at `last`.
    #[must_use]
    pub fn submits(self, tid: u32, first: Ns, last: Ns, launches: u64) -> Self {
        let pid = self.pid(tid);
        self.record(Record::Submits(Submits {
            thread: key(tid),
            pid,
            first,
            last,
            launches,
            ..Submits::default()
        }))
    }

    /// A driver call that returned.
    #[must_use]
    pub fn call(self, tid: u32, family: CudaFamily, name: &str, entry: Ns, exit: Ns) -> Self {
        let pid = self.pid(tid);
        self.record(Record::CudaCall(CudaCall {
            thread: key(tid),
            pid,
            family,
            entry,
            exit: Some(exit),
            name: name.into(),
            ..CudaCall::default()
        }))
    }

    /// A regular file; `names` from the file upward.
    #[must_use]
    pub fn file(self, id: FileId, path: &str, change: impl FnOnce(&mut File)) -> Self {
        let mut file = File {
            id,
            dev: 8 << 20 | 1,
            inode: id,
            mode: 0o100_644,
            fs_magic: 0xef53,
            names: path.rsplit('/').filter(|n| !n.is_empty()).map(String::from).collect(),
            path: Some(path.into()),
            fs_type: Some("ext4".into()),
            mount: Some("/".into()),
            ..File::default()
        };
        change(&mut file);
        self.record(Record::File(file))
    }

    /// A mapped file of a process.
    #[must_use]
    pub fn mapping(self, pid: u32, path: &str) -> Self {
        let at = self.start;
        self.record(Record::Mapping(Mapping {
            image: 0,
            at,
            pid,
            start: 0x1000,
            end: 0x9000,
            offset: 0,
            path: path.into(),
            build_id: Vec::new(),
        }))
    }

    /// Stores a stack whose frames have names, innermost first; `module!function`, or `function` of no
    /// module (of `[kernel]` where `kind` is kernel). Returns its id.
    #[must_use]
    pub fn stack(mut self, pid: u32, kind: StackKind, frames: &[impl AsRef<str>]) -> (Self, StackId) {
        let id = self.next_stack;
        self.next_stack += 1;
        let mut addresses = Vec::new();
        for frame in frames {
            let plain = if kind == StackKind::Kernel { "[kernel]" } else { "" };
            let (module, function) = frame.as_ref().split_once('!').unwrap_or((plain, frame.as_ref()));
            addresses.push(self.next_address);
            self.records.push(Record::Symbol(Symbol {
                image: 0,
                kind,
                pid,
                address: self.next_address,
                frames: vec![Frame { function: function.into(), file: None, line: None }],
                module: module.into(),
                file_offset: self.next_address,
                build_id: Vec::new(),
                reason: String::new(),
            }));
            self.next_address += 0x10;
        }
        let stack = self.record(Record::Stack(Stack {
            id,
            kind,
            pid,
            image: 0,
            addresses,
            end: StackEnd::Unknown,
            python: 0,
        }));
        (stack, id)
    }

    /// The records, with the closing one.
    #[must_use]
    pub fn records(mut self) -> Vec<Record> {
        self.records.push(Record::End(End { at: self.end, reason: "duration".into(), exit_status: None }));
        self.records
    }

    fn pid(&self, tid: u32) -> u32 {
        self.pids.get(&tid).copied().unwrap_or(tid)
    }
}
