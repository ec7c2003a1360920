//! Block layer: cumulative numbers of one disk.

use super::BUCKETS;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockStats {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub latency_ns: u64,
    /// Time with a request in flight up to `changed`.
    pub busy_ns: u64,
    /// Last change of `in_flight`.
    pub changed: u64,
    pub in_flight: u64,
    /// Largest `in_flight` in `max_epoch`.
    pub max_in_flight: u32,
    pub max_epoch: u32,
    pub histogram: [u64; BUCKETS],
}
