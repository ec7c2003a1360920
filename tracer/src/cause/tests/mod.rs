//! Leaves and links, each on a trace written by hand.

mod chains;
mod claims;
mod driving;
mod gains;
mod leaves;
mod teams;

use super::{Cause, Culprit, CulpritKind, Ledger, Mechanism, attribute};
use crate::idle::{DeviceIdle, Known, PlacedIdle, UnplacedIdle};
use crate::timeline::testing::{MS, TraceBuilder, Wait, key};
use crate::timeline::{Timeline, build};
use crate::trace::{
    BlockTotal, CgroupTick, CudaFamily, File, HostTick, Ns, RanInstead, Record, Socket, Span, State,
    TargetKind, ThreadExec, WakerContext,
};

pub(super) const FEEDER: u32 = 10;
pub(super) const WORKER: u32 = 20;
/// A wait in which a page comes from a disk.
pub(super) const PAGE: &[&str] =
    &["schedule", "io_schedule", "folio_wait_bit_common", "filemap_get_pages", "vfs_read"];
pub(super) const DISK_INTERRUPT: &[&str] =
    &["folio_end_read", "bio_endio", "blk_mq_complete_request", "asm_common_interrupt"];
const TIMER: &[&str] = &["hrtimer_wakeup", "__hrtimer_run_queues", "asm_sysvec_apic_timer_interrupt"];
const NETWORK: &[&str] = &["sock_def_readable", "tcp_v4_rcv", "net_rx_action", "asm_common_interrupt"];
pub(super) const IMAGE: u64 = 7;
pub(super) const PIPE: u64 = 8;

/// A second of recording with a feeder, a worker of another process, an image file and a pipe.
pub(super) fn trace() -> TraceBuilder {
    TraceBuilder::new(0, 1000 * MS)
        .device(0)
        .on_device(0, FEEDER)
        .thread(FEEDER, FEEDER, "trainer")
        .thread(WORKER, WORKER, "worker")
        .file(IMAGE, "/data/train/a.jpg", |_| ())
        .file(PIPE, "", |f| {
            f.mode = 0o010_600;
            f.path = None;
        })
}

/// A device idle exactly in `gaps`, which `feeder` ended.
pub(super) fn idle(timeline: &Timeline, feeder: u32, gaps: &[(Ns, Ns)]) -> DeviceIdle {
    let placed: Vec<PlacedIdle> = gaps
        .iter()
        .map(|&(start, end)| PlacedIdle {
            span: Span::new(start, end),
            known: Known::Drained,
            feeder: Some(key(feeder)),
            submit: Some(end),
            device_inferred: false,
        })
        .collect();
    let idle_ns: u64 = placed.iter().map(|p| p.span.len()).sum();
    DeviceIdle {
        window: timeline.span,
        idle_ns,
        busy_ns: timeline.span.len() - idle_ns,
        placed,
        ..DeviceIdle::default()
    }
}

/// The ledger of one gap from 100 to 200 ms; it must sum.
fn ledger(trace: TraceBuilder) -> Ledger {
    let timeline = build(trace.records());
    let ledger = attribute(&timeline, &idle(&timeline, FEEDER, &[(100 * MS, 200 * MS)]));
    assert_eq!(ledger.causes.iter().map(|c| c.ns).sum::<u64>(), 100 * MS);
    assert_eq!(ledger.pieces.iter().map(|p| p.ns).sum::<u64>(), 100 * MS);
    ledger
}

/// The only cause of a feeder that waits all through the gap.
fn wait(prepare: impl FnOnce(TraceBuilder) -> TraceBuilder, change: impl FnOnce(Wait) -> Wait) -> Cause {
    let ledger = ledger(prepare(trace()).wait(FEEDER, 100 * MS, 200 * MS, 200 * MS, change));
    assert_eq!(ledger.causes.len(), 1, "{:#?}", ledger.causes);
    ledger.causes.into_iter().next().unwrap()
}

fn same(trace: TraceBuilder) -> TraceBuilder {
    trace
}

fn culprit(cause: &Cause) -> &str {
    cause.culprit.as_ref().map_or("", |c| &c.name)
}
