//! What placement hands to `cause`.

use std::collections::BTreeMap;

use crate::trace::{Ns, Span, ThreadKey};

/// One device's idle time. `window.len() == busy_ns + idle_ns + unknown_ns`, and
/// `sum(placed) + sum(unplaced) == idle_ns`, exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceIdle {
    pub device: u32,
    /// The complete device windows inside the recording (and inside `--from --to`).
    pub window: Span,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub unknown_ns: u64,
    /// In order, not overlapping; adjacent pieces with one feeder and one `known` are merged.
    pub placed: Vec<PlacedIdle>,
    /// Idle that no silence could hold, per device window.
    pub unplaced: Vec<UnplacedIdle>,
    /// Stretches during which the device's state is not known, with the reason.
    pub unknown: Vec<(Span, UnknownReason)>,
    /// What a launch, graph launch or memset run looked like from all feeders: submit edges of the device.
    pub submits: u64,
    pub launches_per_second: Option<f64>,
}

impl DeviceIdle {
    /// The thread that ended most of the idle time; of equal ones the first.
    #[must_use]
    pub fn main_feeder(&self) -> Option<ThreadKey> {
        let placed = self.placed.iter().map(|p| (p.feeder, p.span.len()));
        let unplaced = self.unplaced.iter().map(|u| (u.feeder, u.ns));
        let mut ended: BTreeMap<ThreadKey, u64> = BTreeMap::new();
        for (feeder, ns) in placed.chain(unplaced) {
            if let Some(feeder) = feeder {
                *ended.entry(feeder).or_default() += ns;
            }
        }
        ended.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0))).map(|(key, _)| key)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// No reading covers it.
    NoReading,
    /// The device gave no value, or one out of range.
    NoValue,
    /// 0 % with power above 35 % of the limit for 2 s.
    PowerContradicts,
    /// 0 % with memory-controller activity.
    MemoryContradicts,
    /// MIG: utilisation is not defined.
    Mig,
}

/// How the place of an idle stretch is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// A call proves the device empty (a synchronise returned, nothing was submitted since).
    Drained,
    /// Host edges bound it from both sides.
    Bounded,
    /// The device's integral plus silences.
    Inferred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedIdle {
    pub span: Span,
    pub known: Known,
    /// Whose next submit or driver call ends the silence; `None` if nobody's did before the window's end.
    pub feeder: Option<ThreadKey>,
    /// Time of that submit (may lie after `span.end`), `None` as for `feeder`.
    pub submit: Option<Ns>,
    /// The process-to-device map was not known for certain.
    pub device_inferred: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnplacedIdle {
    pub span: Span,
    pub ns: u64,
    /// One sentence for the reader.
    pub reason: String,
    /// Submits were less than 200 us apart all through and none blocked: the host launches back to back.
    pub launch_bound: bool,
    /// It lies in calls that waited for the device, for work queued before they began.
    pub in_waits: bool,
    /// The thread that launched most in `span`.
    pub feeder: Option<ThreadKey>,
}
