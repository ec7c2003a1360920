//! Disks.

use serde::{Deserialize, Serialize};

use super::time::Span;

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
