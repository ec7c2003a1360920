//! The CUDA driver's calls, as seen at their entries and returns.

use serde::{Deserialize, Serialize};

use super::time::{Ns, StackId, ThreadKey};

/// A run of submits (launch, graph launch, memset) of one thread in one context without a silence of 200 us
/// between two, or a piece of a longer one: of 50 ms, or of a millisecond or more up to where a 33rd group would
/// begin. Never one a launch. Copies are counted beside, and do not end a silence; where there are only copies,
/// `first` and `last` are theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The same submits and copies by what they were; the counts sum to those above where it is not empty.
    pub groups: Vec<SubmitGroup>,
}

impl Submits {
    /// How many submits there are; none in a run of copies alone.
    #[must_use]
    pub fn submits(&self) -> u64 {
        self.launches.saturating_add(self.graph_launches).saturating_add(self.memsets)
    }
}

/// Calls of one run alike in all of the fields down to `direction`. At most 32 a run, what finds no room in its first
/// millisecond as one for each family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubmitGroup {
    /// What did not fit: every field down to `direction` but the family is zero.
    pub rest: bool,
    /// Launch, graph launch, memset or copy.
    pub family: CudaFamily,
    /// `CUcontext` last set in the thread, 0 where that was not seen.
    pub context: u64,
    /// `CUstream`: 0 and 1 are the legacy default stream, 2 the thread's own.
    pub stream: u64,
    /// `CUfunction` or `CUkernel` of a launch, `CUgraphExec` of a graph launch, else 0.
    pub function: u64,
    /// Blocks of a launch's grid; zero for others and where it could not be read.
    pub grid: [u32; 3],
    pub direction: Option<CopyDirection>,
    pub count: u64,
    /// Entry of the first and of the last of them.
    pub first: Ns,
    pub last: Ns,
    /// Bytes copied or set.
    pub bytes: u64,
    /// Calls whose return was seen, and their time from entry to return, the probes' own cost taken off.
    pub timed: u64,
    pub call_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CopyDirection {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Unified addresses: the call's name does not say.
    Unified,
    /// Between two devices.
    Peer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CudaFamily {
    #[default]
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
    /// `cuEventRecord`: the place in a stream that a later query or synchronise asks about.
    EventRecord,
    /// Of a collective library: a communicator is made.
    Collective,
}

/// A driver call that was long, that synchronised, that pinned host memory or let go of it, or a query whose
/// result was news.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CudaCall {
    pub thread: ThreadKey,
    pub pid: u32,
    pub family: CudaFamily,
    pub entry: Ns,
    /// `None`: it goes on when the recording ends, or nobody knows when it was over.
    pub exit: Option<Ns>,
    /// The driver's entry-point name, as exported.
    pub name: String,
    pub user_stack: StackId,
    /// `CUcontext` last set in the thread, 0 where that was not seen.
    pub context: u64,
    /// `CUstream` the call names, where it names one.
    pub stream: Option<u64>,
    /// `CUevent` of an event's call, `CUfunction` of a launch, `CUgraphExec` of a graph launch, else 0.
    pub object: u64,
    /// Bytes copied, set or allocated.
    pub bytes: u64,
    pub direction: Option<CopyDirection>,
    /// `CUresult`: 0 success, 600 not ready (event and stream queries).
    pub result: Option<i32>,
    /// Host memory of a copy, as far as calls seen show: from `cuMemHostAlloc` and its like, or registered.
    pub pinned: Option<bool>,
    /// Returns are not probed in its process: `exit`, the entry of the thread's next driver call, only says
    /// by when it was over.
    pub exit_by_next: bool,
    /// Queries of the same event that came before with the same result and have no record of their own.
    pub repeats: u64,
    /// Of an event's call: when the event was last recorded, 0 where that was not seen. `stream` is then the
    /// stream it was recorded in.
    pub recorded_at: Ns,
    /// Time between `entry` and `exit` that the probes on the call took themselves.
    pub probe_ns: Ns,
}

impl CudaCall {
    /// When it returned, where its return itself was seen.
    #[must_use]
    pub fn returned(&self) -> Option<Ns> {
        self.exit.filter(|_| !self.exit_by_next)
    }

    /// How long it took by itself, the probes' own time taken off, where its return was seen.
    #[must_use]
    pub fn own_ns(&self) -> Option<Ns> {
        Some(self.returned()?.saturating_sub(self.entry).saturating_sub(self.probe_ns))
    }
}

/// A context and the device it is on, where its creation was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaContext {
    pub at: Ns,
    pub pid: u32,
    pub context: u64,
    /// CUDA's ordinal as the process counts: neither NVML's index nor the minor number.
    pub ordinal: u32,
}

/// Which driver calls are seen from `at` on, until the next of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CudaWatch {
    pub at: Ns,
    pub watched: Watched,
    /// Why it changed, in one sentence.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Watched {
    /// No call.
    #[default]
    Nothing,
    /// Synchronise, graph launch, copy, allocate, load: launches are not seen.
    Rare,
    /// All, for a short while, to learn rates and durations.
    Burst,
    All,
}

/// One collective operation of one rank, from a collective library's exported calls. `entry` and `exit` are
/// those of the call that launches it: its own, or the `ncclGroupEnd` of its group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collective {
    pub thread: ThreadKey,
    pub pid: u32,
    pub entry: Ns,
    pub exit: Option<Ns>,
    /// As exported, `ncclAllReduce`.
    pub name: String,
    /// `ncclComm_t`, a pointer of the process.
    pub communicator: u64,
    /// Position among the process's operations on this communicator, from 0 where its birth was seen.
    pub sequence: u64,
    /// Where the communicator's birth was seen: hash of its unique id, this rank, and how many there are.
    pub group: Option<CollectiveGroup>,
    pub stream: u64,
    pub user_stack: StackId,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CollectiveGroup {
    /// Hash of the `ncclUniqueId`: the same in all ranks.
    pub id: u64,
    pub rank: u32,
    pub ranks: u32,
}
