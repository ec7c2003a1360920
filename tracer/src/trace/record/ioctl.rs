//! Calls into the NVIDIA driver's nodes.

use serde::{Deserialize, Serialize};

use super::time::Span;
use super::wait::NvidiaIoctl;

/// One command of one process in one stretch: how often and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoctlTotal {
    /// The stretch in which calls were watched: in duty bursts a part of the time.
    pub span: Span,
    pub pid: u32,
    /// Major of the node: tells the driver's commands from the memory manager's.
    pub major: u32,
    pub ioctl: NvidiaIoctl,
    pub count: u64,
    pub ns: u64,
    pub longest_ns: u64,
    /// Latency histogram, bucket i holds latencies of `[2^i, 2^(i+1))` microseconds, under 2 us in bucket 0.
    pub histogram: [u32; 24],
}
