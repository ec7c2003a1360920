//! The types every later stage reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::trace::{
    BlockTotal, CgroupTick, Collective, Counter, CudaCall, CudaContext, CudaWatch, Device, DeviceActivity,
    DeviceClock, DeviceEvent, DeviceProcess, DeviceState, FaultTotal, File, FileId, FileReads, GovernorStep,
    Host, HostTick, IoctlTotal, Loss, MajorFault, Mapping, Ns, OffCpu, Polled, ProbeStatus, PythonStack,
    RanInstead, Reading, Reclaim, Sample, Span, Stack, StackId, Submits, Symbol, TargetKind, ThreadKey,
    WaitTotal, Waker,
};

/// A whole recording, indexed. All vectors are sorted by time.
#[derive(Debug, Default)]
pub struct Timeline {
    pub host: Host,
    /// The record of the host and of the recording's start is there. Without it `host` holds what others tell.
    pub host_known: bool,
    /// From the recording's start to its last record. Where the start is not known, from the first thing seen
    /// while it was recorded.
    pub span: Span,
    /// The recording ended in order; otherwise it is cut.
    pub ended: Option<crate::trace::End>,
    pub probes: Vec<ProbeStatus>,
    pub devices: BTreeMap<u32, DeviceTrack>,
    pub threads: BTreeMap<ThreadKey, Thread>,
    pub files: BTreeMap<FileId, File>,
    pub stacks: BTreeMap<StackId, Stack>,
    pub python_stacks: BTreeMap<StackId, PythonStack>,
    /// Names by (pid, 0 for the kernel; address).
    pub names: BTreeMap<(u32, u32, u64), Arc<Symbol>>,
    pub blocks: Vec<BlockTotal>,
    pub ran_instead: Vec<RanInstead>,
    pub host_ticks: Vec<HostTick>,
    pub cgroup_ticks: Vec<CgroupTick>,
    pub losses: Vec<Loss>,
    pub steps: Vec<GovernorStep>,
    pub polled: Vec<Polled>,
    pub mappings: Vec<Mapping>,
    pub cuda_contexts: Vec<CudaContext>,
    /// Empty: all driver calls were watched, or none ever (then no thread has one).
    pub cuda_watches: Vec<CudaWatch>,
    pub ioctls: Vec<IoctlTotal>,
    pub counters: Vec<Counter>,
    pub file_reads: Vec<FileReads>,
    pub fault_totals: Vec<FaultTotal>,
}

impl Timeline {
    /// What was watched of driver calls, each from when until when; the last has no end.
    pub fn watches(&self) -> impl Iterator<Item = (Span, &CudaWatch)> {
        let watches = &self.cuda_watches;
        let ends = watches.iter().skip(1).map(|w| w.at).chain([Ns::MAX]);
        watches.iter().zip(ends).map(|(watch, end)| (Span::new(watch.at, end.max(watch.at)), watch))
    }
}

#[derive(Debug, Default)]
pub struct DeviceTrack {
    pub device: Device,
    /// In order, not overlapping.
    pub readings: Vec<Reading>,
    pub processes: Vec<DeviceProcess>,
    pub activities: Vec<DeviceActivity>,
    pub states: Vec<DeviceState>,
    pub events: Vec<DeviceEvent>,
    pub clocks: Vec<DeviceClock>,
}

#[derive(Clone, Debug)]
pub struct Thread {
    pub key: ThreadKey,
    pub pid: u32,
    pub ppid: u32,
    pub comm: String,
    pub kind: TargetKind,
    pub kernel_thread: bool,
    pub creator: Option<ThreadKey>,
    pub born: Option<Ns>,
    pub exited: Option<Ns>,
    /// Times at which it ran `execve`.
    pub execs: Vec<Ns>,
    pub cgroups: Vec<(String, String)>,
    pub cmdline: Vec<String>,
    /// Adjacent, in order, covering the thread's life within the recording exactly; empty for bystanders.
    pub slices: Vec<Slice>,
    pub off_cpu: Vec<OffCpu>,
    pub totals: Vec<WaitTotal>,
    pub samples: Vec<Sample>,
    pub faults: Vec<MajorFault>,
    pub submits: Vec<Submits>,
    pub calls: Vec<CudaCall>,
    pub collectives: Vec<Collective>,
    pub reclaims: Vec<Reclaim>,
    /// Waits of [`Thread::off_cpu`] that are one wait, in order; see [`Thread::merged_wait`].
    pub merged: Vec<MergedWait>,
    /// Wake-ups this thread gave to others, sorted by (time, wakee, which wait).
    pub given: Vec<Given>,
    pub(crate) index: super::shorts::Index,
}

/// Waits of one thread that are one wait, re-armed: in the same system call on the same object, with no
/// submit and no seen delivery between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedWait {
    /// Indices into [`Thread::off_cpu`], ascending. Preemptions between them are not members.
    pub members: Vec<usize>,
}

/// A wake-up given to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given {
    /// When; for short waits the end of the last one.
    pub at: Ns,
    pub wakee: ThreadKey,
    pub wait: GivenWait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GivenWait {
    /// Index into the wakee's [`Thread::off_cpu`].
    OffCpu(usize),
    /// Index into the wakee's [`Thread::totals`].
    Total(usize),
}

/// One stretch of a thread's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub span: Span,
    pub activity: Activity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// On a processor, as far as records tell; what short stays ([`WaitTotal`]s) take of it is asked of
    /// [`Thread::shorts`].
    Running,
    /// Waiting for a processor; index into [`Thread::off_cpu`].
    Runnable(usize),
    /// Waiting for an event; index into [`Thread::off_cpu`].
    Blocked(usize),
    /// The thread's records for this stretch were lost or it was not yet a target.
    Unseen,
}

/// What the short stays took of a running stretch, by largest remainder: the parts never exceed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shorts {
    pub blocked: Vec<ShortWait>,
    pub runnable_ns: u64,
    pub throttled_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortWait {
    pub waker: Option<ThreadKey>,
    pub syscall: i32,
    pub arg0: u64,
    pub count: u64,
    pub ns: u64,
}

/// [`NamedFrame::module`] of Python functions.
pub const PYTHON: &str = "[python]";

/// One named frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedFrame {
    /// Function name, or `module+0x1234` where there is none.
    pub name: String,
    /// Base name of the file it lies in; `[kernel]` for the kernel, [`PYTHON`] for Python functions, empty
    /// where not known.
    pub module: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Whether `name` is a real symbol.
    pub resolved: bool,
}

impl Thread {
    /// The wait that `off_cpu[index]` is part of, itself alone if it was not re-armed; `None` for a stay
    /// without an event waited for (preempted, yielded).
    #[must_use]
    pub fn merged_wait(&self, index: usize) -> Option<&MergedWait> {
        self.merged.get((*self.index.merged_of.get(index)?)?)
    }

    /// Who ended the wait that `off_cpu[index]` is part of: the waker of its last piece holds for all.
    #[must_use]
    pub fn ended_by(&self, index: usize) -> Option<&Waker> {
        let last = *self.merged_wait(index)?.members.last()?;
        self.off_cpu.get(last)?.waker.as_ref()
    }

    /// The slices that overlap `span`, clipped to it, in order.
    pub fn slices_in(&self, span: Span) -> impl Iterator<Item = Slice> + '_ {
        let from = self.slices.partition_point(|s| s.span.end <= span.start);
        self.slices[from..]
            .iter()
            .take_while(move |s| s.span.start < span.end)
            .filter_map(move |s| s.span.intersect(span).map(|i| Slice { span: i, activity: s.activity }))
    }
}
