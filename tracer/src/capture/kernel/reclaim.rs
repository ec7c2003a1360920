//! Reclaim and compaction from the kernel side: the long ones decoded, the short ones' totals read every tick,
//! those under way when the recording ends.

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use tracer_ebpf::wire::{self, InReclaim, ReclaimKey, ReclaimValue};

use super::CaptureError;
use super::decode::key;
use super::settled::{Settled, Turn};
use super::tables::{failed, take};
use crate::trace::{Ns, Reclaim, ReclaimKind, Record, Span};

/// By position, as `wire::memory::reclaim` numbers them.
const KINDS: [ReclaimKind; 3] = [ReclaimKind::Direct, ReclaimKind::Cgroup, ReclaimKind::Compaction];

fn kind(position: u32) -> ReclaimKind {
    KINDS.get(position as usize).copied().unwrap_or_default()
}

#[must_use]
pub(super) fn reclaim(wire: &wire::Reclaim) -> Reclaim {
    let span = Span::new(wire.since, wire.until.max(wire.since));
    Reclaim {
        thread: key(wire.tid, wire.start_boottime),
        pid: wire.pid,
        kind: kind(wire.what),
        span,
        count: 1,
        ns: span.len(),
        pages: wire.pages,
    }
}

/// The kernel side's two tables.
pub(super) struct Reclaims {
    totals: Settled<ReclaimKey, ReclaimValue>,
    open: HashMap<MapData, ReclaimKey, InReclaim>,
}

impl Reclaims {
    /// # Errors
    /// The object has no such maps.
    pub(super) fn new(ebpf: &mut Ebpf) -> Result<Self, CaptureError> {
        Ok(Self {
            totals: Settled::take(ebpf, "RECLAIMED", |k: &ReclaimKey| k.epoch)?,
            open: take(ebpf, "IN_RECLAIM")?,
        })
    }

    /// # Errors
    /// The map could not be read.
    pub(super) fn flush(&mut self, turn: Turn, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.totals.flush(turn)?;
        send(rows, span, sink);
        Ok(())
    }

    /// What is left once no program runs any more, and those that had not ended by `end`.
    ///
    /// # Errors
    /// A map could not be read.
    pub(super) fn rest(&mut self, end: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.totals.rest()?;
        send(rows, span, sink);
        let mut rows =
            self.open.iter().collect::<Result<Vec<_>, _>>().map_err(|e| failed("IN_RECLAIM", e))?;
        rows.sort_by_key(|(k, v)| (v.since, k.tid, k.what));
        for (k, v) in rows.into_iter().filter(|(_, v)| v.since < end) {
            sink(Record::Reclaim(reclaim(&wire::Reclaim {
                kind: wire::kind::RECLAIM,
                what: k.what,
                tid: k.tid,
                pid: v.pid,
                start_boottime: k.start_boottime,
                since: v.since,
                until: end,
                pages: 0,
            })));
        }
        Ok(())
    }
}

fn send(mut rows: Vec<(ReclaimKey, ReclaimValue)>, span: Span, sink: &mut dyn FnMut(Record)) {
    rows.sort_by_key(|(k, _)| (k.tid, k.start_boottime, k.what, k.epoch));
    rows.iter().for_each(|(k, v)| sink(Record::Reclaim(total(k, v, span))));
}

fn total(k: &ReclaimKey, v: &ReclaimValue, span: Span) -> Reclaim {
    Reclaim {
        thread: key(k.tid, k.start_boottime),
        pid: v.pid,
        kind: kind(k.what),
        span,
        count: v.count,
        ns: v.ns,
        pages: v.pages,
    }
}

#[cfg(test)]
mod tests {
    use tracer_ebpf::wire::memory::reclaim as what;

    use super::*;

    #[test]
    fn kinds_keep_their_positions() {
        assert_eq!(kind(what::DIRECT), ReclaimKind::Direct);
        assert_eq!(kind(what::CGROUP), ReclaimKind::Cgroup);
        assert_eq!(kind(what::COMPACTION), ReclaimKind::Compaction);
    }

    #[test]
    fn a_total_lies_in_its_tick_and_a_long_one_in_itself() {
        let k = ReclaimKey { start_boottime: 70_000_000, tid: 5, what: what::CGROUP, epoch: 1, pad: 0 };
        let v = ReclaimValue { count: 3, ns: 900, pages: 64, pid: 4, pad: 0 };
        let short = total(&k, &v, Span::new(1_000, 2_000));
        assert_eq!((short.span, short.count, short.ns, short.pages), (Span::new(1_000, 2_000), 3, 900, 64));
        assert_eq!((short.thread.tid, short.thread.start_ticks, short.pid), (5, 7, 4));
        let long = reclaim(&wire::Reclaim {
            kind: wire::kind::RECLAIM,
            what: what::DIRECT,
            tid: 5,
            pid: 4,
            start_boottime: 70_000_000,
            since: 10,
            until: 500,
            pages: 32,
        });
        assert_eq!((long.span, long.count, long.ns, long.pages), (Span::new(10, 500), 1, 490, 32));
        assert_eq!(long.thread, short.thread);
    }
}
