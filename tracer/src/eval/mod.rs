//! How well idle time is placed: recordings that hold the device's own activity are imported, placed by the
//! host's calls and the device's readings alone, and compared with it. `docs/import.md` has the definitions.

mod score;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read;

use serde::Serialize;

use crate::idle::{Known, Located, locate};
use crate::import::{self, Activity, ImportError, Imported, Scratch, Windows};
use crate::timeline::{build, total, union};
use crate::trace::{Record, Span};

pub use score::{Score, gaps, overlap, score};

/// One device of one recording, in windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    pub device: u32,
    pub window_ns: u64,
    /// From the first kernel or memset to the end of the last.
    pub span_ns: u64,
    /// Without a kernel or memset.
    pub true_idle_ns: u64,
    /// By the device's readings, whole percents.
    pub read_idle_ns: u64,
    /// Idle by the readings against the true, as a share of the true. The rounding's doing alone.
    pub mass_error: f64,
    /// What placement gives, that inside runs of submits included.
    pub all: Score,
    /// Without that inside runs, which is located but not explained piece by piece.
    pub placed: Score,
    /// Shares of the idle time by how its place is known; what is not placed is the rest.
    pub drained: f64,
    pub bounded: f64,
    pub inferred: f64,
    pub unplaced: f64,
}

/// A recording, read once.
#[derive(Debug)]
pub struct Recording {
    /// What the probes would have kept.
    records: Vec<Record>,
    /// The device's busy stretches, by device.
    busy: BTreeMap<u32, Vec<Span>>,
    pub imported: Imported,
}

impl Recording {
    /// # Errors
    /// As [`import::kineto`].
    pub fn read(input: impl Read, scratch: Scratch) -> Result<Self, ImportError> {
        let (mut records, mut busy) = (Vec::new(), BTreeMap::new());
        let imported = import::kineto(input, scratch, Activity::Truth(&mut busy), &mut |record| {
            records.push(record);
            Ok(())
        })?;
        Ok(Self { records, busy, imported })
    }

    /// The host's side and readings of so many nanoseconds.
    pub fn records(&self, window: u64) -> impl Iterator<Item = Record> + '_ {
        let readings = self.busy.iter().flat_map(move |(&device, busy)| Windows::of(device, window, busy));
        self.records.iter().cloned().chain(readings.map(Record::Reading))
    }

    /// When each device was busy.
    #[must_use]
    pub fn busy(&self) -> &BTreeMap<u32, Vec<Span>> {
        &self.busy
    }

    /// Places the idle time of every device with activity, and scores it.
    #[must_use]
    pub fn placement(&self, window: u64) -> Vec<Placement> {
        let timeline = build(self.records(window));
        let located = locate(&timeline, None);
        let of = |located: &Located| {
            let busy = self.busy.get(&located.idle.device)?;
            Some(placement(located, busy, window))
        };
        located.iter().filter_map(of).collect()
    }
}

/// Compares one device's placement with when it was busy.
#[must_use]
pub fn placement(located: &Located, busy: &[Span], window: u64) -> Placement {
    let truth = gaps(busy);
    let span = busy.first().zip(busy.last()).map_or(0, |(first, last)| last.end - first.start);
    let idle = &located.idle;
    let placed: Vec<Span> = idle.placed.iter().map(|p| p.span).collect();
    let all = union(placed.iter().chain(&located.between_submits).copied().collect());
    let known = |wanted: Known| {
        let of = idle.placed.iter().filter(|p| p.known == wanted);
        share(of.map(|p| p.span.len()).sum(), idle.idle_ns)
    };
    let true_idle_ns = total(&truth);
    Placement {
        device: idle.device,
        window_ns: window,
        span_ns: span,
        true_idle_ns,
        read_idle_ns: idle.idle_ns,
        mass_error: share(idle.idle_ns.abs_diff(true_idle_ns), true_idle_ns),
        all: score(&all, &truth),
        placed: score(&union(placed), &truth),
        drained: known(Known::Drained),
        bounded: known(Known::Bounded),
        inferred: known(Known::Inferred),
        unplaced: share(idle.unplaced.iter().map(|u| u.ns).sum(), idle.idle_ns),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to be shown")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
