//! Finds every mapped CUDA driver library of the targets and the file offsets of its entry points.

use crate::trace::CudaFamily;

/// One exported function of a driver library to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// Exported name (`cuLaunchKernel_ptsz`).
    pub name: &'static str,
    /// Index into the table of names, carried as the probe's cookie.
    pub id: u32,
    pub family: CudaFamily,
    /// Offset of the function's first byte in the file.
    pub file_offset: u64,
    /// Its return is wanted too (synchronise, copy, allocate, free, load).
    pub wants_return: bool,
}
