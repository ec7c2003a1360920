//! The CUDA runtime's entry points, probed only where they are the only edge there is: where the driver's
//! exported functions are not those that the runtime calls.
//!
//! `__cudaLaunchKernel` is left out: it jumps to `cudaLaunchKernel` (libcudart 13).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::{EntryPoint, Layer, Library, LibraryError};
use crate::symbol::elf;
use crate::trace::CudaFamily;

/// Ids of the runtime's names begin here, above those of the driver's table.
pub(super) const FIRST_ID: u32 = 200;

const GROUPS: &[(CudaFamily, &[&str])] = &[
    (
        CudaFamily::Launch,
        &[
            "cudaLaunchKernel",
            "cudaLaunchKernel_ptsz",
            "cudaLaunchKernelExC",
            "cudaLaunchKernelExC_ptsz",
            "cudaLaunchCooperativeKernel",
            "cudaLaunchCooperativeKernel_ptsz",
        ],
    ),
    (CudaFamily::GraphLaunch, &["cudaGraphLaunch", "cudaGraphLaunch_ptsz"]),
    (
        CudaFamily::Copy,
        &[
            "cudaMemcpy",
            "cudaMemcpy_ptds",
            "cudaMemcpyAsync",
            "cudaMemcpyAsync_ptsz",
            "cudaMemcpy2D",
            "cudaMemcpy2DAsync",
            "cudaMemcpy2DAsync_ptsz",
        ],
    ),
    (CudaFamily::Memset, &["cudaMemset", "cudaMemset_ptds", "cudaMemsetAsync", "cudaMemsetAsync_ptsz"]),
    (
        CudaFamily::Synchronize,
        &[
            "cudaDeviceSynchronize",
            "cudaStreamSynchronize",
            "cudaStreamSynchronize_ptsz",
            "cudaEventSynchronize",
        ],
    ),
    (CudaFamily::Allocate, &["cudaMalloc", "cudaMallocAsync", "cudaMallocAsync_ptsz", "cudaMallocManaged"]),
    (CudaFamily::Free, &["cudaFree", "cudaFreeAsync", "cudaFreeAsync_ptsz", "cudaFreeHost"]),
    (CudaFamily::HostAllocate, &["cudaMallocHost", "cudaHostAlloc", "cudaHostRegister"]),
];

/// A name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeName {
    pub id: u32,
    pub name: &'static str,
    pub family: CudaFamily,
    pub wants_return: bool,
}

/// The whole table, in the order of its ids.
pub fn runtime_names() -> impl Iterator<Item = RuntimeName> {
    let named =
        |(family, names): &'static (CudaFamily, &[&'static str])| names.iter().map(move |n| (*family, *n));
    GROUPS.iter().flat_map(named).zip(FIRST_ID..).map(|((family, name), id)| RuntimeName {
        id,
        name,
        family,
        // A launch or memset returns at once.
        wants_return: Layer::of(family) == Layer::Rare && family != CudaFamily::GraphLaunch,
    })
}

/// Finds the entry points of a runtime library.
pub(super) fn read(file: File, path: PathBuf, pid: u32) -> Result<Library, LibraryError> {
    let opened = |source: io::Error| LibraryError::Open { path: path.clone(), pid, source };
    let copy = file.try_clone().map_err(opened)?;
    let mut offsets = HashMap::new();
    elf::exports(copy, &mut |export| {
        if let Some(n) = runtime_names().find(|n| n.name.as_bytes() == export.name) {
            offsets.entry(export.file_offset).or_insert(n);
        }
    })
    .map_err(|e| LibraryError::Elf { path: path.clone(), pid, reason: e.to_string() })?;
    let mut points: Vec<_> = offsets
        .into_iter()
        .map(|(file_offset, n)| {
            let RuntimeName { id, name, family, wants_return } = n;
            EntryPoint { name, id, family, file_offset, wants_return }
        })
        .collect();
    points.sort_by_key(|p| p.id);
    if points.is_empty() {
        return Err(LibraryError::NoEntryPoint { path, pid });
    }
    Ok(Library::of(file, path, pid, points))
}

/// Whether a call's name is one of the runtime's.
#[must_use]
pub fn is_runtime_call(name: &str) -> bool {
    name.starts_with("cuda")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::names;
    use super::*;

    #[test]
    fn no_id_or_name_is_the_drivers() {
        let driver: BTreeSet<_> = names().map(|n| n.id).collect();
        assert!(driver.iter().all(|id| *id < FIRST_ID));
        let all: Vec<_> = runtime_names().collect();
        // Ids share a table of 256 rows in the kernel with the driver's.
        assert!(all.iter().all(|n| n.id < 256 && is_runtime_call(n.name)));
        assert_eq!(all.iter().map(|n| n.name).collect::<BTreeSet<_>>().len(), all.len());
        assert!(names().all(|n| !is_runtime_call(n.name)));
    }
}
