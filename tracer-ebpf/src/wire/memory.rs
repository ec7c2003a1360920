//! A target's own work to get memory: reclaim and compaction in its context.

/// `trace::ReclaimKind` by position.
pub mod reclaim {
    pub const DIRECT: u32 = 0;
    pub const CGROUP: u32 = 1;
    pub const COMPACTION: u32 = 2;
}

/// One that lasted at least the threshold.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reclaim {
    pub kind: u32,
    /// One of [`reclaim`].
    pub what: u32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    pub since: u64,
    pub until: u64,
    /// Pages freed, 0 where the event does not tell.
    pub pages: u64,
}

/// One under way, by [`ReclaimKey`] with an epoch of 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InReclaim {
    pub since: u64,
    pub pid: u32,
    pub pad: u32,
}

/// `epoch` tells the half of the totals being filled from the half being read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReclaimKey {
    pub start_boottime: u64,
    pub tid: u32,
    pub what: u32,
    pub epoch: u32,
    pub pad: u32,
}

/// Those shorter than the threshold, added up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ReclaimValue {
    pub count: u64,
    pub ns: u64,
    pub pages: u64,
    pub pid: u32,
    pub pad: u32,
}
