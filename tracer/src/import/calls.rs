//! From a call's name in a recording to the driver's entry point that a probe would have seen.

use crate::trace::{CopyDirection, CudaFamily};

/// What a host call is to the tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub family: CudaFamily,
    /// The driver's entry point; of a copy the one without a direction.
    pub name: &'static str,
}

/// The runtime's calls and the driver's entry points they lead to, without suffixes.
const RUNTIME: &[(&str, CudaFamily, &str)] = &[
    ("cudaLaunchKernel", CudaFamily::Launch, "cuLaunchKernel"),
    ("cudaLaunchKernelExC", CudaFamily::Launch, "cuLaunchKernelEx"),
    ("cudaLaunchCooperativeKernel", CudaFamily::Launch, "cuLaunchCooperativeKernel"),
    ("cudaGraphLaunch", CudaFamily::GraphLaunch, "cuGraphLaunch"),
    ("cudaMemset", CudaFamily::Memset, "cuMemsetD8_v2"),
    ("cudaMemset2D", CudaFamily::Memset, "cuMemsetD2D8_v2"),
    ("cudaMemsetAsync", CudaFamily::Memset, "cuMemsetD8Async"),
    ("cudaMemset2DAsync", CudaFamily::Memset, "cuMemsetD2D8Async"),
    ("cudaMemcpy", CudaFamily::Copy, "cuMemcpy"),
    ("cudaMemcpyAsync", CudaFamily::Copy, "cuMemcpyAsync"),
    ("cudaMemcpy2D", CudaFamily::Copy, "cuMemcpy2D_v2"),
    ("cudaMemcpy2DAsync", CudaFamily::Copy, "cuMemcpy2DAsync_v2"),
    ("cudaMemcpy3D", CudaFamily::Copy, "cuMemcpy3D_v2"),
    ("cudaMemcpy3DAsync", CudaFamily::Copy, "cuMemcpy3DAsync_v2"),
    ("cudaMemcpyPeer", CudaFamily::Copy, "cuMemcpyPeer"),
    ("cudaMemcpyPeerAsync", CudaFamily::Copy, "cuMemcpyPeerAsync"),
    ("cudaMemcpyToSymbol", CudaFamily::Copy, "cuMemcpy"),
    ("cudaMemcpyToSymbolAsync", CudaFamily::Copy, "cuMemcpyAsync"),
    ("cudaMemcpyFromSymbol", CudaFamily::Copy, "cuMemcpy"),
    ("cudaMemcpyFromSymbolAsync", CudaFamily::Copy, "cuMemcpyAsync"),
    ("cudaMemcpyBatchAsync", CudaFamily::Copy, "cuMemcpyBatchAsync"),
    ("cudaDeviceSynchronize", CudaFamily::Synchronize, "cuCtxSynchronize"),
    ("cudaThreadSynchronize", CudaFamily::Synchronize, "cuCtxSynchronize"),
    ("cudaStreamSynchronize", CudaFamily::Synchronize, "cuStreamSynchronize"),
    ("cudaEventSynchronize", CudaFamily::Synchronize, "cuEventSynchronize"),
    ("cudaEventQuery", CudaFamily::EventQuery, "cuEventQuery"),
    ("cudaStreamQuery", CudaFamily::EventQuery, "cuStreamQuery"),
    ("cudaEventRecord", CudaFamily::EventRecord, "cuEventRecord"),
    ("cudaEventRecordWithFlags", CudaFamily::EventRecord, "cuEventRecordWithFlags"),
    ("cudaMalloc", CudaFamily::Allocate, "cuMemAlloc_v2"),
    ("cudaMallocPitch", CudaFamily::Allocate, "cuMemAllocPitch_v2"),
    ("cudaMalloc3D", CudaFamily::Allocate, "cuMemAllocPitch_v2"),
    ("cudaMallocManaged", CudaFamily::Allocate, "cuMemAllocManaged"),
    ("cudaMallocAsync", CudaFamily::Allocate, "cuMemAllocAsync"),
    ("cudaMallocFromPoolAsync", CudaFamily::Allocate, "cuMemAllocFromPoolAsync"),
    ("cudaFree", CudaFamily::Free, "cuMemFree_v2"),
    ("cudaFreeAsync", CudaFamily::Free, "cuMemFreeAsync"),
    ("cudaFreeHost", CudaFamily::Free, "cuMemFreeHost"),
    ("cudaHostAlloc", CudaFamily::HostAllocate, "cuMemHostAlloc"),
    ("cudaMallocHost", CudaFamily::HostAllocate, "cuMemAllocHost_v2"),
    ("cudaHostRegister", CudaFamily::HostAllocate, "cuMemHostRegister_v2"),
    ("cudaHostUnregister", CudaFamily::HostAllocate, "cuMemHostUnregister"),
    ("cudaLibraryLoadData", CudaFamily::Load, "cuLibraryLoadData"),
    ("cudaLibraryLoadFromFile", CudaFamily::Load, "cuLibraryLoadFromFile"),
];

/// The driver's own entry points of which recordings hold events and that are in no row above.
const DRIVER: &[(CudaFamily, &str)] = &[
    (CudaFamily::Memset, "cuMemsetD16_v2"),
    (CudaFamily::Memset, "cuMemsetD32_v2"),
    (CudaFamily::Memset, "cuMemsetD16Async"),
    (CudaFamily::Memset, "cuMemsetD32Async"),
    (CudaFamily::Copy, "cuMemcpyHtoD_v2"),
    (CudaFamily::Copy, "cuMemcpyDtoH_v2"),
    (CudaFamily::Copy, "cuMemcpyDtoD_v2"),
    (CudaFamily::Copy, "cuMemcpyHtoDAsync_v2"),
    (CudaFamily::Copy, "cuMemcpyDtoHAsync_v2"),
    (CudaFamily::Copy, "cuMemcpyDtoDAsync_v2"),
    (CudaFamily::Allocate, "cuMemCreate"),
    (CudaFamily::Free, "cuMemRelease"),
    (CudaFamily::Load, "cuModuleLoad"),
    (CudaFamily::Load, "cuModuleLoadData"),
    (CudaFamily::Load, "cuModuleLoadDataEx"),
    (CudaFamily::Load, "cuModuleLoadFatBinary"),
    (CudaFamily::Load, "cuModuleGetFunction"),
];

/// Place of a call in the tables; `None` for one that no probe sees.
pub(super) fn find(name: &str) -> Option<u16> {
    let plain = plain(name);
    let runtime = RUNTIME.iter().position(|row| row.0 == plain || stem(row.2) == plain);
    let driver = || DRIVER.iter().position(|row| stem(row.1) == plain).map(|at| at + RUNTIME.len());
    u16::try_from(runtime.or_else(driver)?).ok()
}

pub(super) fn known(place: u16) -> Known {
    let place = usize::from(place);
    let (family, name) = match RUNTIME.get(place) {
        Some(row) => (row.1, row.2),
        None => DRIVER[place - RUNTIME.len()],
    };
    Known { family, name }
}

/// Without the suffixes of versions and of default streams: `cudaMemcpyAsync_ptsz`, `cuMemAlloc_v2`.
fn plain(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    stem(name)
}

fn stem(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// The entry point the runtime takes for a copy whose direction is known.
pub(super) fn copy_name(name: &'static str, direction: Option<CopyDirection>) -> &'static str {
    match (name, direction) {
        ("cuMemcpy", Some(CopyDirection::HostToDevice)) => "cuMemcpyHtoD_v2",
        ("cuMemcpy", Some(CopyDirection::DeviceToHost)) => "cuMemcpyDtoH_v2",
        ("cuMemcpy", Some(CopyDirection::DeviceToDevice)) => "cuMemcpyDtoD_v2",
        ("cuMemcpyAsync", Some(CopyDirection::HostToDevice)) => "cuMemcpyHtoDAsync_v2",
        ("cuMemcpyAsync", Some(CopyDirection::DeviceToHost)) => "cuMemcpyDtoHAsync_v2",
        ("cuMemcpyAsync", Some(CopyDirection::DeviceToDevice)) => "cuMemcpyDtoDAsync_v2",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Option<(CudaFamily, &'static str)> {
        find(name).map(|place| (known(place).family, known(place).name))
    }

    #[test]
    fn runtime_and_driver_names_lead_to_the_same_entry_points() {
        let launch = Some((CudaFamily::Launch, "cuLaunchKernelEx"));
        assert_eq!(of("cudaLaunchKernelExC"), launch);
        assert_eq!(of("cudaLaunchKernelExC_ptsz"), launch);
        assert_eq!(of("cuLaunchKernelEx"), launch);
        assert_eq!(of("cudaMemcpyAsync_ptsz"), Some((CudaFamily::Copy, "cuMemcpyAsync")));
        assert_eq!(of("cuMemcpyDtoHAsync_v2"), Some((CudaFamily::Copy, "cuMemcpyDtoHAsync_v2")));
        assert_eq!(of("cuMemAlloc_v2"), Some((CudaFamily::Allocate, "cuMemAlloc_v2")));
        assert_eq!(of("cudaStreamWaitEvent"), None);
        assert_eq!(of("cudaLaunchHostFunc"), None);
        assert_eq!(of("INVALID"), None);
    }

    #[test]
    fn every_row_is_found_as_itself() {
        for (at, row) in RUNTIME.iter().enumerate() {
            assert_eq!(find(row.0), Some(at as u16), "{}", row.0);
        }
        for row in DRIVER {
            assert_eq!(of(row.1), Some((row.0, row.1)));
        }
    }
}
