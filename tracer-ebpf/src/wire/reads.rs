//! Reads of regular files, counted per process and file while they are watched.

use super::BUCKETS;

/// The read a thread is in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// 0: none.
    pub since: u64,
}

/// `epoch` tells the half being filled from the half being read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadKey {
    pub file: u64,
    pub pid: u32,
    pub epoch: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadValue {
    pub reads: u64,
    pub bytes: u64,
    pub ns: u64,
    pub histogram: [u64; BUCKETS],
}
