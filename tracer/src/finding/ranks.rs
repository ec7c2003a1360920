//! Waits between ranks: what stands beside the ledger, and who comes last.

use super::{Collectives, LastRank};
use crate::idle::{Blind, DeviceCollectives, DeviceIdle};
use crate::timeline::without;
use crate::trace::Span;

/// Time that the device's kernels waited for another rank, as far as it is known: at most its busy time.
pub(super) fn waited(of: &DeviceCollectives, idle: &DeviceIdle) -> Option<u64> {
    let waits = of.waits.as_ref().ok()?;
    let inside: Vec<Span> = waits.iter().filter_map(|w| w.intersect(idle.window)).collect();
    // A kernel that waits keeps the device busy.
    let gaps: Vec<Span> = idle.placed.iter().map(|p| p.span).collect();
    Some(without(&inside, &gaps).min(idle.busy_ns))
}

pub(super) fn told(of: &DeviceCollectives) -> Collectives {
    let why = |blind: &Blind| match blind {
        Blind::NoBirth => "a communicator was made before the recording, so its ranks cannot be told",
        Blind::RanksElsewhere => "some ranks run on other hosts, or in processes that are not watched",
        Blind::NoDevice => "on which device a rank is, is not known",
    };
    let last = of.last.iter().map(|l| LastRank {
        rank: l.rank,
        pid: l.pid,
        operations: l.count,
        behind_ns: l.behind_ns,
    });
    Collectives {
        unknown_reason: of.waits.as_ref().err().map(|blind| why(blind).to_owned()),
        operations: of.operations,
        last: last.collect(),
    }
}

/// "Rank 1 (pid 20) came last in 48 of 50 collective operations, 30.0 ms after the first on average."
pub(super) fn slowest(of: &Collectives) -> Option<String> {
    let last = of.last.first()?;
    Some(format!(
        "Rank {} (pid {}) came last in {} of {} collective operations, {} after the first rank on average.",
        last.rank,
        last.pid,
        last.operations,
        of.operations,
        crate::cause::seconds(last.behind_ns / last.operations.max(1)),
    ))
}
