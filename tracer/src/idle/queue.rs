//! The device as one queue: submits cost an unknown time, in proportion to their weights.

use super::cost::AVERAGE;
use super::model::Known;
use crate::trace::{Ns, Span};

/// Resolution of the work left over from one window to the next, parts of a weight.
const UNIT: u64 = 64;
/// Resolution of the cost of a weight of one: this many bits of a nanosecond.
const FRACTION: u32 = 20;
/// The longest window whose cost is searched for to its full length.
const LONGEST: u64 = 1 << 42;

/// What host edges say in a device window. Sorted, an `Empty` goes before a `Submit` of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub at: Ns,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A call returned that leaves nothing queued; how sure that is.
    Empty(Known),
    /// A synchronise call waits, up to the time given, for work that was queued when it began.
    Wait(Ns),
    /// Submits of this weight in all.
    Submit(u64),
}

/// The queue's state between two windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carry {
    /// Work left, in parts of a weight.
    units: u64,
    empty: Option<Known>,
}

impl Default for Carry {
    /// Nothing is known of what came before: one submit may be under way.
    fn default() -> Self {
        Self { units: UNIT * AVERAGE, empty: None }
    }
}

/// A stretch in which the queue holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub span: Span,
    /// A call says so, not the cost alone.
    pub empty: Option<Known>,
}

/// Walks `window` as if a weight of one cost `cost` (in 2^-20 ns), hands over its gaps in order, and gives the state at
/// its end.
fn sweep(window: Span, events: &[Event], carry: Carry, cost: u64, mut gap: impl FnMut(Gap)) -> Carry {
    let busy = |weight: u64| (u128::from(weight) * u128::from(cost)) >> FRACTION;
    let left = busy(carry.units) / u128::from(UNIT);
    let mut done = window.start.saturating_add(narrow(left));
    let mut covered = done;
    let mut empty = carry.empty;
    let mut gap = |from: Ns, to: Ns, empty| {
        let span = Span::new(from.min(window.end), to.min(window.end));
        if !span.is_empty() {
            gap(Gap { span, empty });
        }
    };
    for event in events {
        match event.what {
            What::Submit(weight) => {
                gap(covered, event.at, empty);
                empty = None;
                done = done.max(event.at).saturating_add(narrow(busy(weight)));
                covered = covered.max(done);
            }
            What::Wait(end) => {
                gap(covered, event.at, empty);
                covered = covered.max(end);
            }
            What::Empty(known) => {
                if empty.is_none() {
                    gap(covered, event.at, None);
                    covered = event.at;
                }
                done = done.min(event.at);
                empty = Some(empty.map_or(known, |e| e.min(known)));
            }
        }
    }
    gap(covered, window.end, empty);
    let left = (u128::from(done.saturating_sub(window.end)) * u128::from(UNIT)) << FRACTION;
    let units = left.checked_div(u128::from(cost)).map_or(0, narrow);
    Carry { units, empty }
}

/// The gaps in `window` if a weight of one costs `cost` (in 2^-20 ns), and the state at its end.
pub(super) fn gaps(window: Span, events: &[Event], carry: Carry, cost: u64) -> (Vec<Gap>, Carry) {
    let mut gaps = Vec::new();
    let carry = sweep(window, events, carry, cost, |gap| gaps.push(gap));
    (gaps, carry)
}

/// The largest cost at which the queue is busy for no more than `busy` ns of the window, with its gaps.
/// `None` where even submits that cost nothing leave it busier: calls wait for longer than the device was
/// busy.
pub(super) fn fit(window: Span, events: &[Event], carry: Carry, busy: u64) -> Option<(Vec<Gap>, Carry)> {
    let fits = |cost: u64| {
        let mut idle = 0;
        sweep(window, events, carry, cost, |gap| idle += gap.span.len());
        window.len() - idle <= busy
    };
    if !fits(0) {
        return None;
    }
    let (mut low, mut high) = (0, (window.len().min(LONGEST) + 1) << FRACTION);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(gaps(window, events, carry, low))
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
