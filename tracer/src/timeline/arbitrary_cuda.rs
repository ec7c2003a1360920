//! Arbitrary driver calls and accounts beside them: few contexts, few streams, hostile counts.

use proptest::prelude::*;
use proptest::sample::select;

use super::arbitrary::{amount, span, thread, time};
use crate::trace::{
    Collective, CollectiveGroup, CopyDirection, CudaContext, CudaFamily, CudaWatch, FaultTotal, FileReads,
    IoctlTotal, NvidiaIoctl, Reclaim, ReclaimKind, Record, SubmitGroup, Submits, Watched,
};

fn group() -> impl Strategy<Value = SubmitGroup> {
    let families = vec![
        CudaFamily::Launch,
        CudaFamily::Launch,
        CudaFamily::GraphLaunch,
        CudaFamily::Memset,
        CudaFamily::Copy,
    ];
    let directions = vec![None, Some(CopyDirection::HostToDevice), Some(CopyDirection::DeviceToHost)];
    let what = (select(families), select(directions), any::<bool>());
    let place = (0..3_u64, select(vec![0, 2, 0x77, 0x78]), 0..3_u64);
    (what, place, span(), amount(), amount()).prop_map(|(what, place, span, count, bytes)| SubmitGroup {
        rest: what.2,
        family: what.0,
        direction: what.1,
        context: place.0,
        stream: place.1,
        function: place.2,
        count,
        first: span.start,
        last: span.end,
        bytes,
        timed: count / 2,
        call_ns: bytes,
        ..SubmitGroup::default()
    })
}

/// A run whose groups sum to its counts.
pub(super) fn grouped() -> impl Strategy<Value = Submits> {
    (thread(), prop::collection::vec(group(), 1..4)).prop_map(|(thread, groups)| {
        let count = |family| {
            let of_family = groups.iter().filter(|g| g.family == family);
            of_family.fold(0_u64, |sum, g| sum.saturating_add(g.count))
        };
        Submits {
            thread,
            pid: thread.tid,
            first: groups.iter().map(|g| g.first).min().unwrap_or(0),
            last: groups.iter().map(|g| g.last).max().unwrap_or(0),
            launches: count(CudaFamily::Launch),
            graph_launches: count(CudaFamily::GraphLaunch),
            memsets: count(CudaFamily::Memset),
            copies: count(CudaFamily::Copy),
            groups,
            user_stack: 0,
        }
    })
}

fn collective() -> impl Strategy<Value = Collective> {
    let group = (1..3_u64, 0..3_u32, 0..3_u32);
    let group = prop::option::of(group.prop_map(|(id, rank, ranks)| CollectiveGroup { id, rank, ranks }));
    (thread(), time(), group, 0..3_u64).prop_map(|(thread, entry, group, sequence)| Collective {
        thread,
        pid: thread.tid,
        entry,
        exit: None,
        name: "ncclAllReduce".into(),
        communicator: 1,
        sequence,
        group,
        stream: 0x77,
        user_stack: 0,
    })
}

/// What stands beside scheduling and submits.
pub(super) fn beside() -> impl Strategy<Value = Record> {
    let watched = vec![Watched::Nothing, Watched::Rare, Watched::Burst, Watched::All];
    let kinds = vec![ReclaimKind::Direct, ReclaimKind::Cgroup, ReclaimKind::Compaction, ReclaimKind::SwapIn];
    let numbers = || (span(), 1..4_u32, amount(), amount());
    prop_oneof![
        2 => collective().prop_map(Record::Collective),
        1 => (time(), 1..4_u32, 1..3_u64, 0..3_u32).prop_map(|(at, pid, context, ordinal)| {
            Record::CudaContext(CudaContext { at, pid, context, ordinal })
        }),
        1 => (time(), select(watched)).prop_map(|(at, watched)| {
            Record::CudaWatch(CudaWatch { at, watched, reason: String::new() })
        }),
        1 => (thread(), span(), select(kinds), amount(), amount()).prop_map(|(thread, span, kind, ns, pages)| {
            Record::Reclaim(Reclaim { thread, pid: thread.tid, kind, span, count: pages, ns, pages })
        }),
        1 => numbers().prop_map(|(span, pid, minor, major)| {
            Record::FaultTotal(FaultTotal { span, pid, minor, major })
        }),
        1 => numbers().prop_map(|(span, pid, count, ns)| Record::IoctlTotal(IoctlTotal {
            span, pid, major: 195, ioctl: NvidiaIoctl { command: 0x2a, inner: None }, count, ns,
            longest_ns: ns, histogram: [0; 24],
        })),
        1 => numbers().prop_map(|(span, pid, reads, bytes)| Record::FileReads(FileReads {
            span, pid, file: 1, reads, bytes, ns: bytes, histogram: [0; 24],
        })),
    ]
}
