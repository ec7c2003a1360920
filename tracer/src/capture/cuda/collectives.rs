//! The entry points of a collective library (NCCL, and RCCL's like it) that are probed, and where their arguments
//! lie (`nccl.h`).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tracer_ebpf::wire::cuda::shape;

use super::names::{Arguments, Group};
use crate::trace::CudaFamily;

const A: Arguments = Arguments::NONE;

const fn group(arguments: Arguments, names: &'static [&'static str]) -> Group {
    let wants_return = arguments.shape != shape::DEATH;
    Group { family: CudaFamily::Collective, wants_return, layout: arguments.packed(), names }
}

const fn operation(communicator: u64, stream: u64) -> Arguments {
    Arguments { object: communicator, stream, shape: shape::COLLECTIVE, ..A }
}

#[rustfmt::skip]
pub(super) const GROUPS: &[Group] = &[
    // (send, receive, count, type, op, comm, stream), and others with as many before the communicator.
    group(operation(6, 7), &["ncclAllReduce", "ncclReduceScatter", "ncclBroadcast", "ncclGather", "ncclScatter"]),
    // (send, receive, count, type, op, root, comm, stream)
    group(operation(7, 8), &["ncclReduce"]),
    // (send, receive, count, type, comm, stream), (buffer, count, type, root or peer, comm, stream)
    group(operation(5, 6), &["ncclAllGather", "ncclAlltoAll", "ncclBcast", "ncclSend", "ncclRecv"]),
    group(Arguments { shape: shape::GROUP_START, ..A }, &["ncclGroupStart"]),
    group(Arguments { shape: shape::GROUP_END, ..A }, &["ncclGroupEnd"]),
    // (comm*, ranks, id by value, so on the stack, rank)
    group(Arguments { address: 1, bytes: 2, times: 3, shape: shape::BIRTH, ..A }, &[
        "ncclCommInitRank", "ncclCommInitRankConfig",
    ]),
    // (comm*, ranks, rank, ids, id*, config*)
    group(Arguments { address: 1, bytes: 2, times: 3, object: 5, shape: shape::BIRTH, ..A }, &[
        "ncclCommInitRankScalable",
    ]),
    group(Arguments { address: 1, bytes: 2, shape: shape::BIRTH_OF_ALL, ..A }, &["ncclCommInitAll"]),
    group(Arguments { object: 1, shape: shape::DEATH, ..A }, &["ncclCommDestroy", "ncclCommAbort"]),
];

/// Whether a name of the table is a collective library's.
pub(super) fn is_function(name: &str) -> bool {
    name.starts_with("nccl")
}

/// `libnccl.so`, `libnccl.so.2`, `librccl.so.1`.
pub(super) fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [&b"libnccl.so"[..], b"librccl.so"]
        .iter()
        .filter_map(|prefix| name.strip_prefix(*prefix))
        .any(|rest| rest.is_empty() || rest[0] == b'.')
}
