//! ioctls on the NVIDIA driver's nodes: one under way, and totals per command.

use super::BUCKETS;

/// A call under way, by thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoctlStart {
    pub entered: u64,
    pub pid: u32,
    pub major: u32,
    pub command: u32,
    pub inner: u32,
    /// `inner` was read.
    pub has_inner: u32,
    pub pad: u32,
}

/// `epoch` tells the half being filled from the half being read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoctlKey {
    pub pid: u32,
    pub major: u32,
    pub command: u32,
    pub inner: u32,
    pub has_inner: u32,
    pub epoch: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IoctlValue {
    pub count: u64,
    pub ns: u64,
    pub longest: u64,
    pub histogram: [u64; BUCKETS],
}
