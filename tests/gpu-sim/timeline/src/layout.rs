//! What lies in the shared file. Everything is an atomic and valid when zero, so a process killed at any
//! point leaves nothing that cannot be read.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

pub(crate) const MAGIC: u64 = 0x7768_7969_646c_6502;

/// Devices at most.
pub const DEVICES: usize = 8;
pub(crate) const PROCESSES: usize = 64;
pub(crate) const LANES: usize = 128;
/// Events a device remembers for those who wait for them.
pub(crate) const EVENTS: usize = 64;
pub(crate) const MEETINGS: usize = 1024;
/// Busy intervals kept per lane: over 60 s of 2,000 launches a second, none of them touching.
pub const RING: usize = 131_072;
/// Copies kept per lane; only readings of the last seconds ask for them.
pub(crate) const COPY_RING: usize = 16_384;

#[repr(C)]
pub(crate) struct Shared {
    /// Written last when the file is made.
    pub(crate) magic: AtomicU64,
    pub(crate) devices: AtomicU32,
    pub(crate) reserved: AtomicU32,
    pub(crate) created: AtomicU64,
    /// Added to a monotonic time to have it on `CLOCK_REALTIME` and `CLOCK_BOOTTIME`; fixed, so that a
    /// sample keeps its stamp.
    pub(crate) realtime_offset: AtomicI64,
    pub(crate) boottime_offset: AtomicI64,
    pub(crate) states: [StateSlot; DEVICES],
    /// Counts arrivals at meetings; a futex.
    pub(crate) arrivals: AtomicU32,
    pub(crate) reserved_too: AtomicU32,
    pub(crate) meetings: [MeetingSlot; MEETINGS],
    pub(crate) processes: [ProcessSlot; PROCESSES],
    pub(crate) lanes: [LaneSlot; LANES],
    pub(crate) rings: [Rings; LANES],
}

#[repr(C)]
pub(crate) struct MeetingSlot {
    /// 0: free.
    pub(crate) key: AtomicU64,
    pub(crate) latest: AtomicU64,
    pub(crate) arrived: AtomicU32,
    pub(crate) parted: AtomicU32,
}

#[repr(C)]
pub(crate) struct ProcessSlot {
    /// 0: free.
    pub(crate) pid: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// Field 22 of `/proc/<pid>/stat`: process ids are reused.
    pub(crate) start_ticks: AtomicU64,
    pub(crate) contexts: [AtomicU32; DEVICES],
    /// When the first context on a device was made, and when the last went; 0: none yet, still there.
    pub(crate) opened: [AtomicU64; DEVICES],
    pub(crate) closed: [AtomicU64; DEVICES],
    pub(crate) memory: [AtomicU64; DEVICES],
    /// Part in MPS: 0 none, 1 the server, 2 a client of it.
    pub(crate) mps: AtomicU32,
    /// MIG instance it runs in plus one; 0: the whole device.
    pub(crate) instance: AtomicU32,
}

/// What is set on a device while it runs; zero means as it is when nothing is wrong.
#[repr(C)]
pub(crate) struct StateSlot {
    pub(crate) throttle: AtomicU64,
    pub(crate) link_generation: AtomicU32,
    pub(crate) link_width: AtomicU32,
    pub(crate) ecc_corrected: AtomicU64,
    pub(crate) ecc_uncorrected: AtomicU64,
    pub(crate) lost: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// Events ever raised; the ring holds the last of them.
    pub(crate) raised: AtomicU64,
    pub(crate) events: [EventSlot; EVENTS],
}

#[repr(C)]
pub(crate) struct EventSlot {
    pub(crate) kind: AtomicU64,
    pub(crate) value: AtomicU64,
}

/// A queue of device work with one writer. Its intervals are in order because a stream's work is.
#[repr(C)]
pub(crate) struct LaneSlot {
    /// Device index plus one; 0: never used. Kept for good, since the ring holds that device's history.
    pub(crate) device: AtomicU32,
    /// 0: free.
    pub(crate) owner: AtomicU32,
    pub(crate) owner_ticks: AtomicU64,
    /// As in [`ProcessSlot::instance`]; one lane never serves two.
    pub(crate) instance: AtomicU64,
    /// Intervals ever written; the ring holds the last of them.
    pub(crate) busy: AtomicU64,
    pub(crate) copies: AtomicU64,
}

#[repr(C)]
pub(crate) struct Entry {
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
}

#[repr(C)]
pub(crate) struct Rings {
    pub(crate) busy: [Entry; RING],
    pub(crate) copies: [Entry; COPY_RING],
}
