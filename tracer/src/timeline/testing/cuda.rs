//! Driver calls of hand-written traces, with what they are for.

use super::{TraceBuilder, key};
use crate::trace::{
    Collective, CollectiveGroup, CopyDirection, CudaCall, CudaContext, CudaFamily, CudaWatch, Ns, Record,
    SubmitGroup, Submits, Watched,
};

impl TraceBuilder {
    /// One run of `count` launches in a context, from `first` to `last`.
    #[must_use]
    pub fn launches(self, tid: u32, context: u64, first: Ns, last: Ns, count: u64) -> Self {
        self.run(
            tid,
            vec![SubmitGroup { context, function: 1, count, first, last, ..SubmitGroup::default() }],
        )
    }

    /// One run of `count` copies of `bytes` in all, on their way to the device.
    #[must_use]
    pub fn copies(self, tid: u32, context: u64, first: Ns, last: Ns, count: u64, bytes: u64) -> Self {
        self.run(
            tid,
            vec![SubmitGroup {
                family: CudaFamily::Copy,
                direction: Some(CopyDirection::HostToDevice),
                context,
                count,
                bytes,
                first,
                last,
                ..SubmitGroup::default()
            }],
        )
    }

    /// One run of these groups.
    #[must_use]
    pub fn run(self, tid: u32, groups: Vec<SubmitGroup>) -> Self {
        let pid = self.pid(tid);
        let count =
            |family| groups.iter().filter(|g| g.family == family).fold(0, |sum: u64, g| sum + g.count);
        self.record(Record::Submits(Submits {
            thread: key(tid),
            pid,
            first: groups.iter().map(|g| g.first).min().unwrap_or(0),
            last: groups.iter().map(|g| g.last).max().unwrap_or(0),
            launches: count(CudaFamily::Launch),
            graph_launches: count(CudaFamily::GraphLaunch),
            memsets: count(CudaFamily::Memset),
            copies: count(CudaFamily::Copy),
            user_stack: 0,
            groups,
        }))
    }

    /// A driver call that returned, to be filled in by `change`.
    #[must_use]
    pub fn call_with(
        self,
        tid: u32,
        family: CudaFamily,
        name: &str,
        (entry, exit): (Ns, Ns),
        change: impl FnOnce(&mut CudaCall),
    ) -> Self {
        let mut call = CudaCall {
            thread: key(tid),
            pid: self.pid(tid),
            family,
            entry,
            exit: Some(exit),
            name: name.into(),
            ..CudaCall::default()
        };
        change(&mut call);
        self.record(Record::CudaCall(call))
    }

    /// A context was seen being made on a device.
    #[must_use]
    pub fn context(self, pid: u32, context: u64, ordinal: u32) -> Self {
        let at = self.start;
        self.record(Record::CudaContext(CudaContext { at, pid, context, ordinal }))
    }

    /// What is watched from `at` on.
    #[must_use]
    pub fn watch(self, at: Ns, watched: Watched) -> Self {
        self.record(Record::CudaWatch(CudaWatch { at, watched, reason: "to test".into() }))
    }

    /// An all-reduce of `rank` of `ranks` on communicator `id`.
    #[must_use]
    pub fn all_reduce(self, tid: u32, at: Ns, sequence: u64, id: u64, (rank, ranks): (u32, u32)) -> Self {
        let pid = self.pid(tid);
        self.record(Record::Collective(Collective {
            thread: key(tid),
            pid,
            entry: at,
            exit: Some(at + 1),
            name: "ncclAllReduce".into(),
            communicator: id,
            sequence,
            group: Some(CollectiveGroup { id, rank, ranks }),
            stream: 0,
            user_stack: 0,
        }))
    }
}
