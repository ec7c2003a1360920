//! A report that went all the way: two ranks on two devices, from a trace written by hand.

use crate::finding::Report;
use crate::timeline::testing::{MS, TraceBuilder, US};
use crate::trace::{CopyDirection, CudaFamily, SubmitGroup, Watched};
use crate::{cause, finding, idle, timeline};

const STEP: u64 = 500 * MS;
const STEPS: u64 = 12;
const RANKS: [u32; 2] = [100, 200];
const IMAGE: u64 = 7;
const SOCKET: u64 = 8;

/// Rank 1 reads its batch from a slow disk in every step, and rank 0 waits for it: first on the host, then in
/// the collective. In the last third launches are not watched.
pub(super) fn ranks() -> Report {
    let mut trace = TraceBuilder::new(0, STEPS * STEP)
        .file(IMAGE, "/data/shards/train-0001.tar", |_| ())
        .file(SOCKET, "", |f| {
            f.mode = 0o140_600;
            f.path = None;
        })
        .watch(0, Watched::All)
        .watch(STEPS * STEP / 3 * 2, Watched::Rare);
    for (rank, pid) in [(0, RANKS[0]), (1, RANKS[1])] {
        trace = trace.device(rank).on_device(rank, pid).thread(pid, pid, "python3");
        for window in 0..STEPS * 5 {
            let busy = [0.0, 0.0, 0.0, 95.0, 100.0][window as usize % 5];
            trace = trace.reading(rank, window * 100 * MS, (window + 1) * 100 * MS, busy);
        }
    }
    for step in 0..STEPS {
        trace = one(trace, step, step * STEP);
    }
    let timeline = timeline::build(trace.records());
    let devices: Vec<_> = idle::place(&timeline, None)
        .into_iter()
        .map(|idle| {
            let ledger = cause::attribute(&timeline, &idle);
            (idle, ledger)
        })
        .collect();
    finding::report(&timeline, &devices)
}

fn one(mut trace: TraceBuilder, step: u64, at: u64) -> TraceBuilder {
    let pages = &["schedule", "io_schedule", "folio_wait_bit_common", "filemap_read", "vfs_read"];
    trace = trace
        .wait(RANKS[1], at + MS, at + 300 * MS, at + 300 * MS, |w| {
            w.read(3, IMAGE).kernel(pages).interrupt(&["bio_endio", "blk_mq_complete_request"])
        })
        .wait(RANKS[0], at + 2 * MS, at + 302 * MS, at + 302 * MS, |w| w.read(5, SOCKET).woken_by(RANKS[1]));
    for (rank, pid) in [(0, RANKS[0]), (1, RANKS[1])] {
        let copy = at + (303 + u64::from(rank) * 5) * MS;
        let kernels = SubmitGroup {
            function: 1,
            count: 400,
            first: copy + MS,
            last: copy + 4 * MS,
            timed: 400,
            call_ns: 400 * 6 * US,
            ..SubmitGroup::default()
        };
        let copied = SubmitGroup {
            family: CudaFamily::Copy,
            direction: Some(CopyDirection::HostToDevice),
            count: 1,
            first: copy,
            last: copy,
            bytes: 38_000_000,
            ..SubmitGroup::default()
        };
        trace = trace
            .run(pid, vec![copied, kernels])
            .all_reduce(pid, copy + 4 * MS, step, 77, (rank, 2))
            .call(pid, CudaFamily::Synchronize, "cuStreamSynchronize", copy + 5 * MS, at + STEP - MS);
    }
    trace
}
