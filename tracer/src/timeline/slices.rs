//! One thread's life as adjacent slices.

use super::model::{Activity, Slice};
use crate::trace::{Ns, OffCpu, Span, State};

/// A thread's life within the recording, and since when its records say what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub span: Span,
    pub seen_from: Ns,
}

/// Clips sorted off-CPU intervals to the thread's life and to one another: an interval that begins before
/// the one ahead of it has ended begins at that end instead. What is left of none is dropped.
pub(super) fn tidy(off_cpu: Vec<OffCpu>, life: Span) -> Vec<OffCpu> {
    let mut cursor = life.start;
    let mut tidied = Vec::with_capacity(off_cpu.len());
    for mut off in off_cpu {
        off.left = off.left.max(cursor);
        off.ran = off.ran.min(life.end);
        if off.state == State::Dead || off.left >= off.ran {
            continue;
        }
        off.woken = match off.state {
            State::Preempted | State::Yielded => None,
            _ => off.woken.map(|w| w.clamp(off.left, off.ran)),
        };
        cursor = off.ran;
        tidied.push(off);
    }
    tidied
}

/// Slices of a life whose off-CPU intervals are tidy.
pub(super) fn slices(off_cpu: &[OffCpu], life: Life) -> Vec<Slice> {
    let mut slices = Vec::with_capacity(off_cpu.len() * 3 + 2);
    let mut push = |start: Ns, end: Ns, activity| {
        if start < end {
            slices.push(Slice { span: Span { start, end }, activity });
        }
    };
    let first = off_cpu.first().map_or(life.span.end, |o| o.left);
    let mut cursor = life.seen_from.clamp(life.span.start, life.span.end).min(first);
    push(life.span.start, cursor, Activity::Unseen);
    for (i, off) in off_cpu.iter().enumerate() {
        push(cursor, off.left, Activity::Running);
        let runnable = match off.state {
            State::Preempted | State::Yielded => off.left,
            _ => off.woken.unwrap_or(off.ran),
        };
        push(off.left, runnable, Activity::Blocked(i));
        push(runnable, off.ran, Activity::Runnable(i));
        cursor = off.ran;
    }
    push(cursor, life.span.end, Activity::Running);
    slices
}
