//! Device windows in which launches were not watched: no launch seen does not mean that none was made.

use super::model::UnplacedIdle;
use super::runs::Run;
use crate::timeline::Timeline;
use crate::trace::{CudaFamily, CudaWatch, Ns, Span, ThreadKey, Watched};

/// How the reasons of idle time in such windows begin.
pub(super) const UNWATCHED: &str = "launches were not watched";

/// A window reads like a burst if their idle shares differ by no more than this many parts of a thousand.
const ALIKE: u64 = 100;
/// A burst was launch-bound if this many parts of a thousand of its idle time were.
const MOSTLY: u64 = 900;

/// Stretches in which launches were not watched, in order.
#[derive(Debug, Default)]
pub(super) struct Watches {
    blind: Vec<(Span, String)>,
    /// In the order of time.
    bursts: Vec<Burst>,
}

/// What a window looked like in which launches were watched.
#[derive(Clone, Copy, Debug)]
struct Burst {
    window: Span,
    /// Parts of a thousand.
    idle: u64,
    bound: u64,
    feeder: Option<ThreadKey>,
}

impl Watches {
    pub(super) fn new(timeline: &Timeline, runs: &[Run]) -> Self {
        let sees_launches = |w: &CudaWatch| matches!(w.watched, Watched::All | Watched::Burst);
        // A server that launches graphs alone misses nothing where graph launches are watched.
        let during = |span: Span| runs.iter().filter(move |r| r.last >= span.start && r.first < span.end);
        let mut watched = timeline
            .watches()
            .filter(|(_, w)| sees_launches(w))
            .flat_map(|(span, _)| during(span))
            .peekable();
        let graphs_alone =
            watched.peek().is_some() && watched.all(|r| r.kind.family == CudaFamily::GraphLaunch);
        let sees_all = |w: &CudaWatch| sees_launches(w) || (w.watched == Watched::Rare && graphs_alone);
        let blind =
            timeline.watches().filter(|(_, w)| !sees_all(w)).map(|(span, w)| (span, w.reason.clone()));
        Self { blind: blind.collect(), bursts: Vec::new() }
    }

    /// Why launches were not watched in a part of `window`.
    pub(super) fn blind(&self, window: Span) -> Option<&str> {
        let i = self.blind.partition_point(|(span, _)| span.end <= window.start);
        self.blind.get(i).filter(|(span, _)| span.start < window.end).map(|(_, reason)| reason.as_str())
    }

    /// Takes note of a window in which launches were watched: its idle time, and what of it was found.
    pub(super) fn note(&mut self, window: Span, idle: u64, unplaced: &[UnplacedIdle]) {
        if self.blind.is_empty() {
            return;
        }
        let bound =
            || unplaced.iter().rev().take_while(|u| u.span.start >= window.start).filter(|u| u.launch_bound);
        let feeder = bound().max_by_key(|u| u.ns).and_then(|u| u.feeder);
        let (idle_share, bound) = (share(idle, window.len()), share(bound().map(|u| u.ns).sum(), idle));
        self.bursts.push(Burst { window, idle: idle_share, bound, feeder });
    }

    /// Of the last window before and the first one after in which launches were watched, the nearer one of those that read
    /// like this one.
    fn like(&self, window: Span, idle: u64) -> Option<&Burst> {
        let at = self.bursts.partition_point(|b| b.window.start < window.start);
        let (before, after) = (at.checked_sub(1).and_then(|i| self.bursts.get(i)), self.bursts.get(at));
        let alike = |b: &&Burst| b.idle.abs_diff(share(idle, window.len())) <= ALIKE;
        before.into_iter().chain(after).filter(alike).min_by_key(|b| apart(b.window, window))
    }

    /// The idle time of a window in which launches were not watched; all in which they were have been noted.
    pub(super) fn unplaced(&self, window: Span, idle: u64, why: &str) -> UnplacedIdle {
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        match self.like(window, idle).filter(|burst| burst.bound >= MOSTLY) {
            Some(burst) => UnplacedIdle {
                span: window,
                ns: idle,
                reason: format!(
                    "{UNWATCHED}{why}; extrapolated from when they were, {:.1} s {}",
                    seconds(apart(burst.window, window)),
                    if burst.window.start < window.start { "before" } else { "after" }
                ),
                launch_bound: true,
                in_waits: false,
                feeder: burst.feeder,
            },
            None => UnplacedIdle {
                span: window,
                ns: idle,
                reason: format!("{UNWATCHED}{why}"),
                launch_bound: false,
                in_waits: false,
                feeder: None,
            },
        }
    }
}

/// Between two windows.
fn apart(a: Span, b: Span) -> Ns {
    a.start.max(b.start).saturating_sub(a.end.min(b.end))
}

/// In parts of a thousand.
fn share(part: u64, whole: u64) -> u64 {
    let parts = (u128::from(part) * 1000).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(parts).unwrap_or(1000)
}

#[expect(clippy::cast_precision_loss, reason = "to be shown")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
