//! The driver's entry points that are probed, by family, as the library exports them, and where their arguments
//! lie (`cuda.h`).
//!
//! `_ptsz` and `_ptds` are the forms with a default stream per thread; which one a process calls is settled
//! when it is compiled. Forms that CUDA 3.2 and 4.0 replaced (`cuMemAlloc` without `_v2`) are left out: every
//! probe costs time to attach and to detach.

use tracer_ebpf::wire::cuda::{layout, shape};

use super::collectives;
use crate::trace::{CopyDirection, CudaFamily};

/// Entry points alike in family and arguments.
pub(super) struct Group {
    pub(super) family: CudaFamily,
    pub(super) wants_return: bool,
    /// `wire::cuda::layout`.
    pub(super) layout: u64,
    pub(super) names: &'static [&'static str],
}

/// Which argument is what, counted from 1, 0 for none.
#[derive(Clone, Copy, Default)]
pub(super) struct Arguments {
    pub(super) stream: u64,
    pub(super) object: u64,
    pub(super) bytes: u64,
    pub(super) times: u64,
    pub(super) address: u64,
    pub(super) address_too: u64,
    pub(super) shape: u64,
}

/// Arguments in registers; those beyond lie on the stack.
const IN_REGISTERS: u64 = 6;

impl Arguments {
    pub(super) const NONE: Self =
        Self { stream: 0, object: 0, bytes: 0, times: 0, address: 0, address_too: 0, shape: shape::PLAIN };

    pub(super) const fn packed(self) -> u64 {
        let places = [
            (self.stream, layout::STREAM),
            (self.object, layout::OBJECT),
            (self.bytes, layout::BYTES),
            (self.times, layout::TIMES),
            (self.address, layout::ADDRESS),
            (self.address_too, layout::ADDRESS_TOO),
        ];
        let (mut packed, mut i) = (self.shape << layout::SHAPE, 0);
        while i < places.len() {
            packed |= places[i].0 << places[i].1;
            if places[i].0 > IN_REGISTERS {
                packed |= layout::ON_STACK;
            }
            i += 1;
        }
        packed
    }
}

const fn group(family: CudaFamily, arguments: Arguments, names: &'static [&'static str]) -> Group {
    let wants_return = !matches!(arguments.shape, shape::RECORD)
        && (!matches!(family, CudaFamily::SetContext)
            || matches!(arguments.shape, shape::CREATE_CONTEXT | shape::RETAIN_CONTEXT));
    Group { family, wants_return, layout: arguments.packed(), names }
}

/// A copy that names no stream: it uses the null stream.
const fn blocking(direction: CopyDirection, arguments: Arguments, names: &'static [&'static str]) -> Group {
    let mut group = queued(direction, arguments, names);
    group.layout |= layout::NULL_STREAM;
    group
}

const fn queued(direction: CopyDirection, arguments: Arguments, names: &'static [&'static str]) -> Group {
    let mut group = group(CudaFamily::Copy, arguments, names);
    group.layout |= (direction as u64 + 1) << layout::DIRECTION;
    group
}

/// A copy described by a structure, which says the direction.
const fn described(arguments: Arguments, names: &'static [&'static str]) -> Group {
    let mut group = group(CudaFamily::Copy, arguments, names);
    if arguments.stream == 0 {
        group.layout |= layout::NULL_STREAM;
    }
    group
}

/// `width`: two to its power is how many bytes are counted as one.
const fn memset(width: u64, arguments: Arguments, names: &'static [&'static str]) -> Group {
    let mut group = group(CudaFamily::Memset, arguments, names);
    group.layout |= width << layout::WIDTH;
    if arguments.stream == 0 {
        group.layout |= layout::NULL_STREAM;
    }
    group
}

const A: Arguments = Arguments::NONE;
/// `(f, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, ...)`.
const KERNEL: Arguments = Arguments { object: 1, stream: 9, shape: shape::GRID, ..A };
/// `(dst, src, bytes)`, the host's side the second, the first, or either.
const TO_DEVICE: Arguments = Arguments { bytes: 3, address: 2, ..A };
const TO_HOST: Arguments = Arguments { bytes: 3, address: 1, ..A };
const WITHIN: Arguments = Arguments { bytes: 3, ..A };
const EITHER: Arguments = Arguments { bytes: 3, address: 1, address_too: 2, ..A };
/// `(dst, dstContext, src, srcContext, bytes)`.
const PEER: Arguments = Arguments { bytes: 5, ..A };
const COPY_2D: Arguments = Arguments { shape: shape::COPY_2D, ..A };
const COPY_3D: Arguments = Arguments { shape: shape::COPY_3D, ..A };
/// `(dst, value, count)` and `(dst, pitch, value, width, height)`.
const LINE: Arguments = Arguments { bytes: 3, ..A };
const RECTANGLE: Arguments = Arguments { bytes: 4, times: 5, ..A };

const fn on(stream: u64, arguments: Arguments) -> Arguments {
    Arguments { stream, ..arguments }
}

#[rustfmt::skip]
const GROUPS: &[Group] = &[
    group(CudaFamily::Launch, KERNEL, &[
        "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz",
    ]),
    group(CudaFamily::Launch, Arguments { object: 2, shape: shape::CONFIG, ..A }, &[
        "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz",
    ]),
    group(CudaFamily::GraphLaunch, Arguments { object: 1, stream: 2, ..A }, &[
        "cuGraphLaunch", "cuGraphLaunch_ptsz",
    ]),

    group(CudaFamily::Synchronize, A, &["cuCtxSynchronize"]),
    group(CudaFamily::Synchronize, Arguments { object: 1, ..A }, &["cuCtxSynchronize_v2"]),
    group(CudaFamily::Synchronize, Arguments { stream: 1, ..A }, &[
        "cuStreamSynchronize", "cuStreamSynchronize_ptsz",
    ]),
    group(CudaFamily::Synchronize, Arguments { object: 1, shape: shape::EVENT, ..A }, &["cuEventSynchronize"]),

    blocking(CopyDirection::Unified, EITHER, &["cuMemcpy", "cuMemcpy_ptds"]),
    blocking(CopyDirection::HostToDevice, TO_DEVICE, &["cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"]),
    blocking(CopyDirection::DeviceToHost, TO_HOST, &["cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds"]),
    blocking(CopyDirection::DeviceToDevice, WITHIN, &["cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds"]),
    blocking(CopyDirection::Peer, PEER, &["cuMemcpyPeer", "cuMemcpyPeer_ptds"]),
    described(COPY_2D, &[
        "cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DUnaligned_v2_ptds",
    ]),
    described(COPY_3D, &["cuMemcpy3D_v2", "cuMemcpy3D_v2_ptds"]),
    blocking(CopyDirection::Peer, COPY_3D, &["cuMemcpy3DPeer", "cuMemcpy3DPeer_ptds"]),

    queued(CopyDirection::Unified, on(4, EITHER), &["cuMemcpyAsync", "cuMemcpyAsync_ptsz"]),
    queued(CopyDirection::HostToDevice, on(4, TO_DEVICE), &["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2_ptsz"]),
    queued(CopyDirection::DeviceToHost, on(4, TO_HOST), &["cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz"]),
    queued(CopyDirection::DeviceToDevice, on(4, WITHIN), &["cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2_ptsz"]),
    queued(CopyDirection::Peer, on(6, PEER), &["cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz"]),
    described(on(2, COPY_2D), &["cuMemcpy2DAsync_v2", "cuMemcpy2DAsync_v2_ptsz"]),
    described(on(2, COPY_3D), &["cuMemcpy3DAsync_v2", "cuMemcpy3DAsync_v2_ptsz"]),
    queued(CopyDirection::Peer, on(2, COPY_3D), &["cuMemcpy3DPeerAsync", "cuMemcpy3DPeerAsync_ptsz"]),
    // Arrays of copies: their bytes are not added up.
    queued(CopyDirection::Unified, on(9, A), &["cuMemcpyBatchAsync", "cuMemcpyBatchAsync_ptsz"]),
    queued(CopyDirection::Unified, on(8, A), &["cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync_v2_ptsz"]),

    memset(0, LINE, &["cuMemsetD8_v2", "cuMemsetD8_v2_ptds"]),
    memset(1, LINE, &["cuMemsetD16_v2", "cuMemsetD16_v2_ptds"]),
    memset(2, LINE, &["cuMemsetD32_v2", "cuMemsetD32_v2_ptds"]),
    memset(0, RECTANGLE, &["cuMemsetD2D8_v2", "cuMemsetD2D8_v2_ptds"]),
    memset(1, RECTANGLE, &["cuMemsetD2D16_v2", "cuMemsetD2D16_v2_ptds"]),
    memset(2, RECTANGLE, &["cuMemsetD2D32_v2", "cuMemsetD2D32_v2_ptds"]),
    memset(0, on(4, LINE), &["cuMemsetD8Async", "cuMemsetD8Async_ptsz"]),
    memset(1, on(4, LINE), &["cuMemsetD16Async", "cuMemsetD16Async_ptsz"]),
    memset(2, on(4, LINE), &["cuMemsetD32Async", "cuMemsetD32Async_ptsz"]),
    memset(0, on(6, RECTANGLE), &["cuMemsetD2D8Async", "cuMemsetD2D8Async_ptsz"]),
    memset(1, on(6, RECTANGLE), &["cuMemsetD2D16Async", "cuMemsetD2D16Async_ptsz"]),
    memset(2, on(6, RECTANGLE), &["cuMemsetD2D32Async", "cuMemsetD2D32Async_ptsz"]),

    group(CudaFamily::EventQuery, Arguments { object: 1, shape: shape::EVENT, ..A }, &["cuEventQuery"]),
    group(CudaFamily::EventQuery, Arguments { stream: 1, ..A }, &["cuStreamQuery", "cuStreamQuery_ptsz"]),
    group(CudaFamily::EventRecord, Arguments { object: 1, stream: 2, shape: shape::RECORD, ..A }, &[
        "cuEventRecord", "cuEventRecord_ptsz", "cuEventRecordWithFlags", "cuEventRecordWithFlags_ptsz",
    ]),

    group(CudaFamily::Allocate, Arguments { bytes: 2, ..A }, &["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemCreate"]),
    group(CudaFamily::Allocate, Arguments { bytes: 3, times: 4, ..A }, &["cuMemAllocPitch_v2"]),
    group(CudaFamily::Allocate, Arguments { bytes: 2, stream: 3, ..A }, &["cuMemAllocAsync", "cuMemAllocAsync_ptsz"]),
    group(CudaFamily::Allocate, Arguments { bytes: 2, stream: 4, ..A }, &[
        "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz",
    ]),
    group(CudaFamily::Free, A, &["cuMemFree_v2", "cuMemRelease"]),
    group(CudaFamily::Free, Arguments { stream: 2, ..A }, &["cuMemFreeAsync", "cuMemFreeAsync_ptsz"]),
    group(CudaFamily::Free, Arguments { address: 1, shape: shape::HOST_FREE, ..A }, &["cuMemFreeHost"]),
    group(CudaFamily::HostAllocate, Arguments { bytes: 2, address: 1, shape: shape::HOST_ALLOCATE, ..A }, &[
        "cuMemAllocHost_v2", "cuMemHostAlloc",
    ]),
    group(CudaFamily::HostAllocate, Arguments { bytes: 2, address: 1, shape: shape::HOST_REGISTER, ..A }, &[
        "cuMemHostRegister_v2",
    ]),
    group(CudaFamily::HostAllocate, Arguments { address: 1, shape: shape::HOST_FREE, ..A }, &["cuMemHostUnregister"]),
    group(CudaFamily::Load, A, &[
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
    ]),

    group(CudaFamily::SetContext, Arguments { object: 1, shape: shape::SET_CONTEXT, ..A }, &["cuCtxSetCurrent"]),
    group(CudaFamily::SetContext, Arguments { object: 1, shape: shape::PUSH_CONTEXT, ..A }, &["cuCtxPushCurrent_v2"]),
    group(CudaFamily::SetContext, Arguments { shape: shape::POP_CONTEXT, ..A }, &["cuCtxPopCurrent_v2"]),
    group(CudaFamily::SetContext, Arguments { address: 1, object: 3, shape: shape::CREATE_CONTEXT, ..A }, &["cuCtxCreate_v2"]),
    group(CudaFamily::SetContext, Arguments { address: 1, object: 5, shape: shape::CREATE_CONTEXT, ..A }, &["cuCtxCreate_v3"]),
    group(CudaFamily::SetContext, Arguments { address: 1, object: 4, shape: shape::CREATE_CONTEXT, ..A }, &["cuCtxCreate_v4"]),
    group(CudaFamily::SetContext, Arguments { address: 1, object: 2, shape: shape::RETAIN_CONTEXT, ..A }, &[
        "cuDevicePrimaryCtxRetain",
    ]),
];

/// A name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Place in the table.
    pub id: u32,
    pub name: &'static str,
    pub family: CudaFamily,
    pub wants_return: bool,
    /// Where its arguments lie (`wire::cuda::layout`).
    pub layout: u64,
}

/// The whole table, in the order of [`Name::id`]: the driver's, then a collective library's.
pub fn names() -> impl Iterator<Item = Name> {
    let named = |group: &'static Group| group.names.iter().map(move |name| (group, *name));
    GROUPS.iter().chain(collectives::GROUPS).flat_map(named).zip(0..).map(|((group, name), id)| {
        let own_stream = name.ends_with("_ptsz") || name.ends_with("_ptds");
        Name {
            id,
            name,
            family: group.family,
            wants_return: group.wants_return,
            layout: group.layout | if own_stream { layout::PER_THREAD } else { 0 },
        }
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
        assert!(all.len() <= layout::ROWS as usize);
    }

    #[test]
    fn returns_are_wanted_of_all_that_may_wait() {
        for entry in names() {
            let at_once = [
                "cuEventRecord",
                "cuCtxSetCurrent",
                "cuCtxPushCurrent",
                "cuCtxPopCurrent",
                "ncclCommDestroy",
            ];
            let at_once =
                at_once.iter().any(|name| entry.name.starts_with(name)) || entry.name == "ncclCommAbort";
            assert_eq!(entry.wants_return, !at_once, "{}", entry.name);
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

    /// Where the name says what there is, the table says where it lies.
    #[test]
    fn layouts_are_what_the_names_say() {
        let place = |n: &Name, shift: u32| n.layout >> shift & 15;
        for n in names().filter(|n| n.name.starts_with("cuMem")) {
            let (copy, set) = (n.name.starts_with("cuMemcpy"), n.name.starts_with("cuMemset"));
            if !copy && !set {
                continue;
            }
            let queued = n.name.contains("Async");
            assert_eq!(place(&n, layout::STREAM) != 0, queued, "{}", n.name);
            assert_eq!(n.layout & layout::NULL_STREAM != 0, !queued, "{}", n.name);
            let shape = n.layout >> layout::SHAPE & 31;
            let counted = place(&n, layout::BYTES) != 0 || shape != shape::PLAIN || n.name.contains("Batch");
            assert!(counted, "{}", n.name);
            let direction = n.layout >> layout::DIRECTION & 7;
            for (part, wanted) in [("HtoD", 1), ("DtoH", 2), ("DtoD", 3), ("Peer", 5)] {
                assert_eq!(n.name.contains(part), direction == wanted, "{}", n.name);
            }
            for (part, width) in [("D8", 0), ("D16", 1), ("D32", 2)] {
                if set && n.name.contains(part) {
                    assert_eq!(n.layout >> layout::WIDTH & 3, width, "{}", n.name);
                }
            }
        }
        for n in names() {
            let places = [layout::STREAM, layout::OBJECT, layout::BYTES, layout::TIMES, layout::ADDRESS];
            let on_stack = places.iter().any(|p| place(&n, *p) > IN_REGISTERS);
            assert_eq!(n.layout & layout::ON_STACK != 0, on_stack, "{}", n.name);
            assert!(places.iter().all(|p| place(&n, *p) <= 11), "{}: beyond what is read", n.name);
        }
    }
}
