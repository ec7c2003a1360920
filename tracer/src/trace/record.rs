//! What a trace holds: one enum, in storage form.
//!
//! This is deliberately not the form in which records cross the kernel boundary (`tracer_ebpf`): the wire
//! form is fixed-size and shaped by the verifier, this one is shaped by what analysis asks. Everything from
//! `timeline` down reads these types and nothing else, so analysis is tested with records written by hand.
//!
//! Times are nanoseconds on `CLOCK_MONOTONIC` (what `bpf_ktime_get_ns` returns) unless a name says otherwise.
//! Variants are only ever appended: the encoding numbers them by position (see `docs/format.md`).

use serde::{Deserialize, Serialize};

/// A point in time, nanoseconds on `CLOCK_MONOTONIC`.
pub type Ns = u64;

/// A half-open stretch of time, `start <= end`, nanoseconds on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    pub start: Ns,
    pub end: Ns,
}

impl Span {
    #[must_use]
    pub fn new(start: Ns, end: Ns) -> Self {
        Self { start, end: end.max(start) }
    }

    /// Length in nanoseconds.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end == self.start
    }

    /// The common part, `None` where there is none or it is empty.
    #[must_use]
    pub fn intersect(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    #[must_use]
    pub fn contains(self, at: Ns) -> bool {
        self.start <= at && at < self.end
    }
}

/// Names one thread for good. Thread ids are reused, so the key carries the start time: the thread's
/// `start_boottime` in units of 10 ms, which is what both the kernel side and field 22 of
/// `/proc/<pid>/task/<tid>/stat` (in `USER_HZ`) can give. The idle task (tid 0) has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    pub tid: u32,
    pub start_ticks: u64,
}

/// 64-bit content hash of a stack's addresses; 0 means "none was taken".
pub type StackId = u64;

/// Names a file: `(s_dev, i_ino)` of its inode, plus the hash of its dentry names so that an inode number
/// used again under another name is another file. Resolved by [`Record::File`].
pub type FileId = u64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    Host(Host),
    Probe(ProbeStatus),
    Device(Device),
    DeviceProcess(DeviceProcess),
    Reading(Reading),
    Thread(ThreadSeen),
    ThreadExec(ThreadExec),
    ThreadExit(ThreadExit),
    Mapping(Mapping),
    File(File),
    Stack(Stack),
    OffCpu(OffCpu),
    WaitTotal(WaitTotal),
    Sample(Sample),
    MajorFault(MajorFault),
    Block(BlockTotal),
    Submits(Submits),
    CudaCall(CudaCall),
    RanInstead(RanInstead),
    HostTick(HostTick),
    CgroupTick(CgroupTick),
    Loss(Loss),
    Step(GovernorStep),
    Symbol(Symbol),
    Counter(Counter),
    End(End),
}

/// First record of every trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub tool_version: String,
    /// `uname -r`.
    pub kernel: String,
    pub hostname: String,
    /// Processors that may be used, as the kernel numbers them.
    pub online_cpus: Vec<u32>,
    /// Off-CPU intervals shorter than this are in [`WaitTotal`]s, not in [`OffCpu`] records.
    pub threshold_ns: u64,
    /// Period of the CPU samples, 0 where they are not taken.
    pub sample_period_ns: u64,
    pub tick_ns: u64,
    /// Start of the recording.
    pub start_ns: Ns,
    /// `CLOCK_REALTIME` at `start_ns`.
    pub start_unix_ns: u64,
    /// The command given to `whyidle run`, or how targets were chosen (`--pid 42`).
    pub command: String,
    pub own_pid: u32,
    /// Majors taken as the NVIDIA driver's (195 and the dynamic ones), as used by the kernel side.
    pub nvidia_majors: Vec<u32>,
}

/// Whether a probe is in place; also stored when it is not, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeStatus {
    pub name: String,
    pub attached: bool,
    /// Why not, in one sentence; empty when attached.
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// NVML index. CUDA ordinals and minor numbers differ.
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub minor: Option<u32>,
    pub power_limit_mw: Option<u32>,
    /// Period between the device's own utilisation samples as measured from their stamps.
    pub sample_period_ns: Option<u64>,
    /// MIG devices report no utilisation.
    pub mig: bool,
    pub driver_version: String,
    pub cuda_version: Option<u32>,
    pub pcie_width: Option<u32>,
    pub pcie_width_max: Option<u32>,
    pub pcie_generation: Option<u32>,
    pub pcie_generation_max: Option<u32>,
}

/// A process in NVML's list for a device at a tick (host pid namespace).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProcess {
    pub at: Ns,
    pub device: u32,
    pub pid: u32,
    pub used_memory: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadingSource {
    /// `nvmlDeviceGetSamples(GPU_UTILIZATION_SAMPLES)`.
    NvmlSamples,
    /// `nvmlDeviceGetUtilizationRates`.
    NvmlRates,
    /// GPM graphics-engine utilisation.
    Gpm,
}

/// One device window: what share of `span` had at least one kernel running. Windows of one device are in
/// order and do not overlap; between two there may be a hole (then that time is unknown).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub device: u32,
    pub span: Span,
    pub source: ReadingSource,
    /// Busy share in percent as the device gave it, `None` where it gave nothing or nonsense.
    pub busy_percent: Option<f64>,
    /// Mean over the device's own power window (1 s on most).
    pub power_mw: Option<u32>,
    /// Memory-controller activity, percent.
    pub memory_percent: Option<f64>,
    /// Age of the reading when it was taken, beside its window.
    pub age_ns: u64,
    pub sm_clock_mhz: Option<u32>,
    /// NVML's throttle-reason bits.
    pub throttle_reasons: Option<u64>,
}

/// How a thread came to be among the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TargetKind {
    /// Named on the command line, in a cgroup named there, or listed by NVML.
    Named,
    /// Child process or new thread of a target.
    Inherited,
    /// Not of the job, but it woke a target often.
    Adopted,
    /// No target: named here only because it woke a target or ran instead of one.
    Bystander,
}

/// A thread's identity. Written once when it is first seen and again on rename or adoption; the last holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadSeen {
    pub at: Ns,
    pub key: ThreadKey,
    /// Process id (`tgid`): not the same thing as a thread id.
    pub pid: u32,
    /// Parent process, 0 if not known.
    pub ppid: u32,
    /// The kernel's `comm`, lossily decoded; may hold anything, so escape it before showing it.
    pub comm: String,
    /// The thread's creator, where its birth was seen.
    pub creator: Option<ThreadKey>,
    /// Time of birth where it was seen (`task_newtask`).
    pub born: Option<Ns>,
    pub kind: TargetKind,
    pub kernel_thread: bool,
    /// `(controller, path)` lines of `/proc/<pid>/cgroup`, empty where not read.
    pub cgroups: Vec<(String, String)>,
    /// Command line of the process, empty where not read.
    pub cmdline: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadExec {
    pub at: Ns,
    pub key: ThreadKey,
    pub pid: u32,
    pub comm: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadExit {
    pub at: Ns,
    pub key: ThreadKey,
    pub pid: u32,
}

/// A file mapped executable by a process, so that addresses can be named after the process is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    pub at: Ns,
    pub pid: u32,
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
    pub build_id: Vec<u8>,
}

/// What a descriptor or a fault led to. `names` are dentry names from the file upward; `path` is filled by
/// userspace where it could be completed with the mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    pub id: FileId,
    /// `new_encode_dev` of the file system's device: `major << 20 | minor` as in the kernel's `dev_t`.
    pub dev: u32,
    pub inode: u64,
    /// Device number of a device node, 0 otherwise.
    pub rdev: u32,
    /// `i_mode`.
    pub mode: u32,
    /// `s_magic` of the file system.
    pub fs_magic: u64,
    pub names: Vec<String>,
    pub path: Option<String>,
    /// File-system type as in `/proc/self/mountinfo`.
    pub fs_type: Option<String>,
    pub mount: Option<String>,
    pub socket: Option<Socket>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Socket {
    /// `AF_*`.
    pub family: u16,
    /// `TCP_*` state (10 is LISTEN) or 0.
    pub state: u8,
    /// `address:port`, empty where the family has none.
    pub local: String,
    pub peer: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackKind {
    Kernel,
    User,
}

/// Addresses from the innermost frame outward. User addresses belong to process `pid`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    pub id: StackId,
    pub kind: StackKind,
    pub pid: u32,
    pub addresses: Vec<u64>,
}

/// State a thread was in when it left the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// Still runnable, taken off by the scheduler.
    Preempted,
    /// Still runnable, gave way by itself (`sched_yield`).
    Yielded,
    /// `TASK_INTERRUPTIBLE`.
    Sleeping,
    /// `TASK_UNINTERRUPTIBLE`, killable included.
    Uninterruptible,
    /// SIGSTOP, ptrace or freezer.
    Stopped,
    /// `EXIT_DEAD` / `EXIT_ZOMBIE`: the last time.
    Dead,
    /// `TASK_IDLE`, parked: kernel threads without work.
    Idle,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Syscall {
    /// System-call number of the running architecture (x86-64).
    pub nr: i32,
    pub args: [u64; 6],
}

/// What is known of an ioctl on an NVIDIA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvidiaIoctl {
    pub command: u32,
    /// Inner RM control command where `command` is RM_CONTROL and user memory was readable.
    pub inner: Option<u32>,
}

/// What interrupted context a wake-up came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakerContext {
    /// The waker's own doing, softirq work done directly in its own system call included.
    Task,
    /// An interrupt (timer, device): the running thread only happened to be there.
    Interrupt,
    /// Not known: no kernel stack was taken.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waker {
    /// `None` when the waker was the idle task (always an interrupt).
    pub thread: Option<ThreadKey>,
    pub pid: u32,
    pub context: WakerContext,
    pub kernel_stack: StackId,
    /// Only where the wait was already past the threshold.
    pub user_stack: StackId,
    /// The waker's own system call from its saved registers.
    pub syscall: Option<i32>,
    /// The waker was itself inside an ioctl on an NVIDIA node.
    pub in_nvidia_ioctl: bool,
}

/// A finished stay off the processor that lasted at least the threshold, or one cut by the start or end of
/// the recording. `left <= woken <= ran` where present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffCpu {
    pub thread: ThreadKey,
    pub pid: u32,
    /// When it left the processor; the recording's start if `cut_start`.
    pub left: Ns,
    /// When it became runnable; `None` if it left runnable, or was not woken before the recording's end.
    pub woken: Option<Ns>,
    /// When it ran again; the recording's end if `cut_end`.
    pub ran: Ns,
    pub state: State,
    /// Already under way at attach.
    pub cut_start: bool,
    /// Still open when the recording ended.
    pub cut_end: bool,
    /// In a throttled group when it left / when it was woken.
    pub throttled: bool,
    pub cpu_left: u32,
    pub cpu_queued: u32,
    pub cpu_ran: u32,
    /// `nr_cpus_allowed`, and the first 256 bits of the mask.
    pub cpus_allowed: u32,
    pub cpu_mask: [u64; 4],
    /// `None`: it was in no system call, so in a fault (if it blocked) or preempted in user mode.
    pub syscall: Option<Syscall>,
    pub ioctl: Option<NvidiaIoctl>,
    /// 32 bits at the futex address when it left, for futex waits.
    pub futex_value: Option<u32>,
    pub file: Option<FileId>,
    /// A path argument read at switch-out (open, stat), where the call takes one.
    pub path_arg: Option<String>,
    pub kernel_stack: StackId,
    pub user_stack: StackId,
    pub waker: Option<Waker>,
}

/// Stays off the processor shorter than the threshold, added up. One per (thread, waker, system call, first
/// argument) and tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitTotal {
    pub thread: ThreadKey,
    pub pid: u32,
    pub waker: Option<ThreadKey>,
    pub waker_pid: u32,
    /// -1: in no system call.
    pub syscall: i32,
    pub arg0: u64,
    pub count: u64,
    pub blocked_ns: u64,
    pub runnable_ns: u64,
    pub throttled_ns: u64,
    /// Start of the first and end of the last stay.
    pub first: Ns,
    pub last: Ns,
}

/// A CPU sample of a target thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Ns,
    pub thread: ThreadKey,
    pub pid: u32,
    pub cpu: u32,
    pub kernel_stack: StackId,
    pub user_stack: StackId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MajorFault {
    /// End of the fault.
    pub at: Ns,
    pub thread: ThreadKey,
    pub pid: u32,
    pub address: u64,
    pub file: Option<FileId>,
    /// Offset into the file in bytes, where known.
    pub offset: Option<u64>,
}

/// One disk, one tick: what finished and how long requests took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockTotal {
    pub span: Span,
    /// `dev_t` as in [`File::dev`].
    pub dev: u32,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Sum of issue-to-complete latencies.
    pub latency_ns: u64,
    /// Time with at least one request in flight, within `span`.
    pub busy_ns: u64,
    pub max_in_flight: u32,
    /// Latency histogram, bucket i holds latencies of `[2^i, 2^(i+1))` microseconds.
    pub histogram: [u32; 24],
    /// Kernel name of the disk, empty where not known.
    pub name: String,
}

/// A run of submits (launch, graph launch, memset) of one thread without a silence of 200 us between two.
/// One record a silence, never one a launch. Copies are counted beside, and do not end a silence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submits {
    pub thread: ThreadKey,
    pub pid: u32,
    /// Entry of the first and of the last submit of the run.
    pub first: Ns,
    pub last: Ns,
    pub launches: u64,
    pub graph_launches: u64,
    pub memsets: u64,
    pub copies: u64,
    /// User stack at the run's first submit.
    pub user_stack: StackId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CudaFamily {
    Launch,
    GraphLaunch,
    Copy,
    Memset,
    Synchronize,
    EventQuery,
    Allocate,
    Free,
    HostAllocate,
    Load,
    SetContext,
}

/// A driver call that was long or that synchronised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CudaCall {
    pub thread: ThreadKey,
    pub pid: u32,
    pub family: CudaFamily,
    pub entry: Ns,
    /// `None`: the return was not seen.
    pub exit: Option<Ns>,
    /// The driver's entry-point name, as exported.
    pub name: String,
    pub user_stack: StackId,
}

/// Who ran on a processor while a target waited for it, per tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanInstead {
    pub span: Span,
    pub cpu: u32,
    pub thread: ThreadKey,
    pub pid: u32,
    pub comm: String,
    pub ns: u64,
    pub target: bool,
}

/// Host state at a tick; counters are cumulative as the kernel gives them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostTick {
    pub at: Ns,
    /// Per processor in `/proc/stat` order: (cpu, idle ns, iowait ns, steal ns).
    pub cpus: Vec<(u32, u64, u64, u64)>,
    /// `/proc/pressure`: total `some` microseconds for cpu, memory, io; `None` where PSI is off.
    pub pressure_us: Option<[u64; 3]>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupTick {
    pub at: Ns,
    pub path: String,
    /// `cfs_quota_us`/`cfs_period_us` or `cpu.max`; `None` where there is no quota.
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub throttled_count: u64,
    pub throttled_ns: u64,
    /// `memory.events` max / `memory.failcnt`.
    pub memory_limit_hits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossClass {
    OffCpu,
    WaitTotal,
    Lifecycle,
    Sample,
    Stack,
    File,
    Cuda,
    Block,
    Fault,
    /// Records the reader could not read back (damage, cut file).
    Stored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossCause {
    /// The ring buffer was full.
    RingFull,
    /// A kernel map was full.
    MapFull,
    /// The program was skipped because it would have re-entered itself.
    Recursion,
    /// Times that went backward; the record was discarded.
    TimeTravel,
    /// A kernel read failed.
    ReadFault,
    /// Userspace could not keep up.
    Userspace,
    /// The trace file is cut or damaged.
    Damaged,
    /// The record could not be decoded.
    Undecodable,
    /// The kernel did not announce a switch, so a stay has no end. Seen on virtual machines whose own agent
    /// is hidden from tracing: the thread that follows it on a processor arrives unannounced (to `perf` too).
    Unannounced,
}

/// Lost records since the previous one of the same (class, cpu, cause), written at least once a second
/// while any counter moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    pub at: Ns,
    pub class: LossClass,
    /// `None` when the loss belongs to no processor.
    pub cpu: Option<u32>,
    pub cause: LossCause,
    pub count: u64,
    /// How much time the lost records could have covered, 0 where not known.
    pub ns_at_risk: u64,
}

/// A step the budget governor took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GovernorStep {
    pub at: Ns,
    pub what: String,
}

/// One line of the name table, written when recording ends. `frames` run innermost first: more than one
/// where functions were inlined. Empty `frames` means unresolved, and `reason` says why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    pub kind: StackKind,
    /// 0 for kernel addresses.
    pub pid: u32,
    pub address: u64,
    pub frames: Vec<Frame>,
    /// File the address lies in (base name or path), `[kernel]`, or empty.
    pub module: String,
    /// Offset into the file, for later naming on another machine.
    pub file_offset: u64,
    pub build_id: Vec<u8>,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// Anything countable that has no record of its own (program run times, ring bytes), for `-v` and benches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    pub at: Ns,
    pub name: String,
    pub value: u64,
}

/// Last record of a recording that ended in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub at: Ns,
    /// Why: "duration", "interrupted", "targets exited", "out of space: ...".
    pub reason: String,
    /// Exit status of the command given to `whyidle run`.
    pub exit_status: Option<i32>,
}
