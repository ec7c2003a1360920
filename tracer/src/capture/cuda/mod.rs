//! Finds every mapped CUDA driver library of the targets and the file offsets of its entry points.
//!
//! By file offset because the runtime takes the driver's functions from `cuGetProcAddress`, past every
//! symbol look-up; by mapping because containers and wheels hide the library from every fixed path.

pub mod bypass;
mod collectives;
mod layer;
mod library;
mod names;
pub mod policy;
pub mod pristine;
pub mod runtime;
mod scan;

#[cfg(test)]
mod tests;

use crate::trace::CudaFamily;

pub use layer::Layer;
pub use library::{Library, LibraryError, exported};
pub use names::{Name, name, names};
pub use scan::{Libraries, driver_code, runtimes};

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
