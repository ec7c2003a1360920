//! The ledger: what `finding` and `render` read. The JSON contract's names, so that it serialises as is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a chain ends in or is claimed by; `stage.word` as in the taxonomy (`storage.read`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    #[serde(rename = "storage.read")]
    StorageRead,
    #[serde(rename = "storage.fault")]
    StorageFault,
    #[serde(rename = "storage.metadata")]
    StorageMetadata,
    #[serde(rename = "storage.write")]
    StorageWrite,
    #[serde(rename = "network.read")]
    NetworkRead,
    #[serde(rename = "network.fs")]
    NetworkFs,
    #[serde(rename = "prepare.python")]
    PreparePython,
    #[serde(rename = "prepare.compute")]
    PrepareCompute,
    #[serde(rename = "memory.fault")]
    MemoryFault,
    #[serde(rename = "memory.reclaim")]
    MemoryReclaim,
    #[serde(rename = "memory.swap")]
    MemorySwap,
    #[serde(rename = "copy.pageable")]
    CopyPageable,
    #[serde(rename = "copy.transfer")]
    CopyTransfer,
    #[serde(rename = "launch.bound")]
    LaunchBound,
    #[serde(rename = "launch.sync")]
    LaunchSync,
    #[serde(rename = "device.gap")]
    DeviceGap,
    #[serde(rename = "driver.ioctl")]
    DriverIoctl,
    #[serde(rename = "driver.alloc")]
    DriverAlloc,
    #[serde(rename = "driver.load")]
    DriverLoad,
    #[serde(rename = "driver.lock")]
    DriverLock,
    #[serde(rename = "schedule.contention")]
    ScheduleContention,
    #[serde(rename = "schedule.oversubscribed")]
    ScheduleOversubscribed,
    #[serde(rename = "schedule.affinity")]
    ScheduleAffinity,
    #[serde(rename = "schedule.throttled")]
    ScheduleThrottled,
    #[serde(rename = "schedule.steal")]
    ScheduleSteal,
    #[serde(rename = "lock.futex")]
    LockFutex,
    #[serde(rename = "lock.gil")]
    LockGil,
    #[serde(rename = "lock.kernel")]
    LockKernel,
    #[serde(rename = "peer.collective")]
    PeerCollective,
    #[serde(rename = "ipc.wait")]
    IpcWait,
    #[serde(rename = "timer.sleep")]
    TimerSleep,
    #[serde(rename = "process.spawn")]
    ProcessSpawn,
    #[serde(rename = "process.stopped")]
    ProcessStopped,
    #[serde(rename = "no-demand")]
    NoDemand,
    #[serde(rename = "unexplained")]
    Unexplained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Storage,
    Network,
    Prepare,
    Memory,
    Copy,
    Launch,
    Driver,
    Schedule,
    Lock,
    Peer,
    Process,
    NoDemand,
    Unexplained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CulpritKind {
    File,
    Directory,
    Device,
    Function,
    Process,
    Cgroup,
    Lock,
    Peer,
    Mask,
    Library,
}

/// Who is to blame, as far as the records name one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Culprit {
    pub kind: CulpritKind,
    pub name: String,
}

/// One link of a chain, the device's side first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    pub tid: u32,
    pub pid: u32,
    pub comm: String,
    /// `running`, `runnable`, `blocked`, `interrupt`, `creator`, ...
    pub state: String,
    /// What it was doing, in words: "read of /data/x.jpg", "waits for a queue (pipe read)".
    pub what: String,
    /// Evidence that differs between merged chains (the slowest member, the device's latency), if any.
    pub detail: Option<String>,
    /// Processes that stood at this place in the merged chains; the one shown cost most.
    #[serde(default)]
    pub processes: u32,
    /// Names, innermost first; `module+0xoffset` where there is no name, and at the end, in brackets, why the rest is
    /// missing where it is.
    pub stack: Vec<String>,
}

/// One merged chain. `ns` of all causes of a device sum to its `idle_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    pub mechanism: Mechanism,
    pub leaf: Mechanism,
    pub stage: Stage,
    pub ns: u64,
    /// What would be saved were it gone, at most the idle time; see `docs/causes/README.md`.
    pub gain_ns: u64,
    /// Gaps it took part in.
    pub count: u64,
    pub pid: Option<u32>,
    pub culprit: Option<Culprit>,
    pub chain: Vec<Link>,
    /// Why it is not explained, for `unexplained`; else how the gain was found.
    pub note: Option<String>,
}

/// A device's ledger: `causes` sum to `idle_ns`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    pub device: u32,
    /// Sorted by `ns` descending, then (mechanism, leaf, culprit, pid, chain).
    pub causes: Vec<Cause>,
    /// Pieces in time order, for flame graphs and for `--from --to` splits: index into `causes`, where, how long.
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub cause: usize,
    pub gap: crate::trace::Span,
    pub ns: u64,
}
