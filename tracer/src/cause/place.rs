//! Where in a chain a walk stands, and how far it may still go.

use super::entry::Claim;
use crate::trace::{Ns, Span, ThreadKey};

/// Waits that the walks of all gaps may follow, divided over gaps and branches by their length.
const BREADTH: u64 = 131_072;
/// What a gap has at least.
const LEAST: u64 = 64;
/// The same of all the stretches of a window in which one thread is only asked what it needs, and what one has at
/// least.
const NARROW: u64 = 4_096;
const LEAST_NARROW: u64 = 2;
/// The same of a thread for which another spins.
const TEAM: u64 = 256;

#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    /// Threads from the device's side up to, not including, the one looked at.
    pub(super) path: &'p [ThreadKey],
    pub(super) breadth: u64,
    /// From when on the feeder's own running is a synchronise's fault.
    pub(super) synchronised: Option<(Ns, &'p Claim)>,
    /// Another of its team spins for it: what it spins itself is not asked for.
    pub(super) waited_for: bool,
}

impl<'p> Place<'p> {
    /// At the thread that feeds the device.
    /// In a gap of `ns` out of `idle_ns`.
    pub(super) fn first(ns: Ns, idle_ns: u64, synchronised: Option<(Ns, &'p Claim)>) -> Self {
        let breadth = share(BREADTH, ns, idle_ns).max(LEAST);
        Self { path: &[], breadth, synchronised, waited_for: false }
    }

    /// At a thread for which the last of `path` spins.
    pub(super) fn of_team(self, path: &'p [ThreadKey]) -> Self {
        Self { path, breadth: self.breadth.min(TEAM), synchronised: None, waited_for: true }
    }

    /// At a thread of which only sums are wanted, for `ns` of a window.
    pub(super) fn narrow(ns: Ns, window: Span) -> Self {
        let breadth = share(NARROW, ns, window.len()).max(LEAST_NARROW);
        Self { path: &[], breadth, synchronised: None, waited_for: false }
    }

    /// Only the feeder's own time in a gap is sure to be idle time of the device.
    pub(super) fn idle_to(&self, end: Ns) -> Option<Ns> {
        self.path.is_empty().then_some(end)
    }

    /// The same place for a part of `whole` that is `ns` long.
    pub(super) fn for_part(self, ns: Ns, whole: Span) -> Self {
        Self { breadth: share(self.breadth, ns, whole.len()), ..self }
    }

    /// The same place for `ns` out of `whole` of waits for one thread, and how many of them are followed: the longest
    /// stand for the rest. The longest of such groups are always followed.
    pub(super) fn for_group(self, ns: Ns, whole: Span, rank: usize) -> (Self, usize) {
        let least = u64::from(rank < ALWAYS && self.breadth > 0);
        let breadth = share(self.breadth, ns, whole.len()).max(least);
        let followed = usize::try_from(breadth / EACH).unwrap_or(FOLLOWED).clamp(1, FOLLOWED);
        (Self { breadth, ..self }, followed)
    }
}

/// Waits for one thread that are followed at most in one stretch of another, and the breadth that each must have.
const FOLLOWED: usize = 64;
const EACH: u64 = 8;
/// Threads waited for the longest whose waits are followed whatever the breadth.
const ALWAYS: usize = 2;

fn share(breadth: u64, ns: Ns, whole: u64) -> u64 {
    u64::try_from(u128::from(breadth) * u128::from(ns) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}
