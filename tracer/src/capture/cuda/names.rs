//! The driver's entry points that are probed, by family, as the library exports them.
//!
//! `_ptsz` and `_ptds` are the forms with a default stream per thread; which one a process calls is settled
//! when it is compiled. Forms that CUDA 3.2 and 4.0 replaced (`cuMemAlloc` without `_v2`) are left out: every
//! probe costs time to attach and to detach.

use crate::trace::CudaFamily;

/// Each name, and each with the suffix.
macro_rules! both {
    ($suffix:literal: $($name:literal)*) => { &[$($name, concat!($name, $suffix)),*] };
}

struct Group {
    family: CudaFamily,
    wants_return: bool,
    names: &'static [&'static str],
}

const fn group(family: CudaFamily, wants_return: bool, names: &'static [&'static str]) -> Group {
    Group { family, wants_return, names }
}

/// Only what returns at once by definition is spared its return probe: launches, and memsets that take a
/// stream.
const GROUPS: &[Group] = &[
    group(
        CudaFamily::Launch,
        false,
        both!("_ptsz": "cuLaunchKernel" "cuLaunchKernelEx" "cuLaunchCooperativeKernel"),
    ),
    group(CudaFamily::GraphLaunch, false, both!("_ptsz": "cuGraphLaunch")),
    group(
        CudaFamily::Synchronize,
        true,
        &[
            "cuCtxSynchronize",
            "cuCtxSynchronize_v2",
            "cuStreamSynchronize",
            "cuStreamSynchronize_ptsz",
            "cuEventSynchronize",
        ],
    ),
    group(
        CudaFamily::Copy,
        true,
        both!("_ptds":
            "cuMemcpy" "cuMemcpyHtoD_v2" "cuMemcpyDtoH_v2" "cuMemcpyDtoD_v2" "cuMemcpyPeer"
            "cuMemcpy2D_v2" "cuMemcpy2DUnaligned_v2" "cuMemcpy3D_v2" "cuMemcpy3DPeer"
        ),
    ),
    group(
        CudaFamily::Copy,
        true,
        both!("_ptsz":
            "cuMemcpyAsync" "cuMemcpyHtoDAsync_v2" "cuMemcpyDtoHAsync_v2" "cuMemcpyDtoDAsync_v2"
            "cuMemcpyPeerAsync" "cuMemcpy2DAsync_v2" "cuMemcpy3DAsync_v2" "cuMemcpy3DPeerAsync"
            "cuMemcpyBatchAsync"
        ),
    ),
    group(
        CudaFamily::Memset,
        true,
        both!("_ptds":
            "cuMemsetD8_v2" "cuMemsetD16_v2" "cuMemsetD32_v2"
            "cuMemsetD2D8_v2" "cuMemsetD2D16_v2" "cuMemsetD2D32_v2"
        ),
    ),
    group(
        CudaFamily::Memset,
        false,
        both!("_ptsz":
            "cuMemsetD8Async" "cuMemsetD16Async" "cuMemsetD32Async"
            "cuMemsetD2D8Async" "cuMemsetD2D16Async" "cuMemsetD2D32Async"
        ),
    ),
    group(CudaFamily::EventQuery, true, &["cuEventQuery", "cuStreamQuery", "cuStreamQuery_ptsz"]),
    group(
        CudaFamily::Allocate,
        true,
        &[
            "cuMemAlloc_v2",
            "cuMemAllocPitch_v2",
            "cuMemAllocManaged",
            "cuMemAllocAsync",
            "cuMemAllocAsync_ptsz",
            "cuMemAllocFromPoolAsync",
            "cuMemAllocFromPoolAsync_ptsz",
            "cuMemCreate",
        ],
    ),
    group(
        CudaFamily::Free,
        true,
        &["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFreeHost", "cuMemRelease"],
    ),
    group(
        CudaFamily::HostAllocate,
        true,
        &["cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemHostRegister_v2", "cuMemHostUnregister"],
    ),
    group(
        CudaFamily::Load,
        true,
        &[
            "cuModuleLoad",
            "cuModuleLoadData",
            "cuModuleLoadDataEx",
            "cuModuleLoadFatBinary",
            // With lazy loading, the default since CUDA 12.2, the code is loaded here.
            "cuModuleGetFunction",
            "cuLibraryLoadData",
            "cuLibraryLoadFromFile",
            "cuLinkAddData_v2",
            "cuLinkComplete",
        ],
    ),
    group(CudaFamily::SetContext, true, &["cuCtxSetCurrent", "cuCtxPushCurrent_v2"]),
];

/// A name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Place in the table.
    pub id: u32,
    pub name: &'static str,
    pub family: CudaFamily,
    pub wants_return: bool,
}

/// The whole table, in the order of [`Name::id`].
pub fn names() -> impl Iterator<Item = Name> {
    let named = |group: &'static Group| group.names.iter().map(move |name| (group, *name));
    GROUPS.iter().flat_map(named).zip(0..).map(|((group, name), id)| Name {
        id,
        name,
        family: group.family,
        wants_return: group.wants_return,
    })
}

/// The name with this id, as carried by a probe's cookie.
#[must_use]
pub fn name(id: u32) -> Option<Name> {
    names().nth(id as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_numbered_in_order() {
        let all: Vec<_> = names().collect();
        assert_eq!(all.iter().map(|n| n.name).collect::<BTreeSet<_>>().len(), all.len());
        for (at, entry) in all.iter().enumerate() {
            assert_eq!((entry.id as usize, name(entry.id)), (at, Some(*entry)));
        }
        assert_eq!(name(all.len() as u32), None);
    }

    #[test]
    fn returns_are_wanted_of_all_that_may_wait() {
        for entry in names() {
            let submits_only = entry.name.starts_with("cuLaunch")
                || entry.name.starts_with("cuGraphLaunch")
                || (entry.name.starts_with("cuMemset") && entry.name.contains("Async"));
            assert_eq!(entry.wants_return, !submits_only, "{}", entry.name);
        }
    }

    #[test]
    fn families_are_what_the_names_say() {
        let family = |wanted: &str| names().find(|n| n.name == wanted).map(|n| n.family);
        assert_eq!(family("cuLaunchKernelEx_ptsz"), Some(CudaFamily::Launch));
        assert_eq!(family("cuMemcpyDtoHAsync_v2_ptsz"), Some(CudaFamily::Copy));
        assert_eq!(family("cuMemcpyDtoH_v2_ptds"), Some(CudaFamily::Copy));
        assert_eq!(family("cuStreamSynchronize"), Some(CudaFamily::Synchronize));
        assert_eq!(family("cuLaunchHostFunc"), None);
    }
}
