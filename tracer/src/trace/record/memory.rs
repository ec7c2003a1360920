//! Page faults and the memory they had to wait for.

use serde::{Deserialize, Serialize};

use super::time::{FileId, Ns, Span, ThreadKey};

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

/// Page faults of one process in one stretch, from its own counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultTotal {
    pub span: Span,
    pub pid: u32,
    pub minor: u64,
    pub major: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReclaimKind {
    /// The thread itself freed memory because an allocation found none.
    #[default]
    Direct,
    /// The same within its cgroup's limit.
    Cgroup,
    Compaction,
    SwapIn,
}

/// A thread's own work to get memory, from the kernel's begin and end events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reclaim {
    pub thread: ThreadKey,
    pub pid: u32,
    pub kind: ReclaimKind,
    /// One that lasted at least the threshold; or the tick in which `count` shorter ones lie.
    pub span: Span,
    pub count: u64,
    /// Sum of their lengths.
    pub ns: u64,
    /// Pages freed or moved, where the event tells.
    pub pages: u64,
}
