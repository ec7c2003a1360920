//! From gaps of a window to placed and unplaced idle.

use super::edges::Edges;
use super::model::{Known, PlacedIdle, UnplacedIdle};
use super::queue::Gap;
use super::runs::SILENCE_NS;
use crate::timeline::Timeline;
use crate::trace::{Ns, Span, ThreadKey};

/// Idle of one device as it is being placed.
#[derive(Debug, Default)]
pub(super) struct Placing {
    pub placed: Vec<PlacedIdle>,
    pub unplaced: Vec<UnplacedIdle>,
    /// Where the queue has the idle of `unplaced` that lies between submits, where that is wanted.
    pub between_submits: Option<Vec<Span>>,
}

/// A device window, and how far what calls say and what the device says agree in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub window: Span,
    /// The device read no busy time at all.
    pub all_idle: bool,
    /// The device was busier than stretches that calls prove empty allow.
    pub contradicted: bool,
}

impl Placing {
    /// Takes a window's gaps: what lies in silences, or directly after a call that left the device empty, is
    /// placed; the rest lies between submits that follow one another closely.
    pub(super) fn take(&mut self, timeline: &Timeline, edges: &Edges, gaps: &[Gap], agreement: Agreement) {
        for gap in gaps {
            let mut at = gap.span.start;
            let mut i = edges.silences.partition_point(|s| s.span.end <= at);
            while at < gap.span.end {
                let silence = edges.silences.get(i);
                let from = silence.map_or(Ns::MAX, |s| s.span.start).clamp(at, gap.span.end);
                self.in_burst(edges, gap, Span::new(at, from), agreement.window);
                let Some(silence) = silence else { break };
                let to = silence.span.end.clamp(from, gap.span.end);
                let span = Span::new(from, to);
                let (feeder, submit) = match silence.ended_by {
                    Some(run) => (Some(run.thread), Some(run.entered().0)),
                    None => (last_feeder(timeline, edges, span), None),
                };
                let exact = silence.ended_by.is_none_or(|run| run.exact);
                let known = match gap.empty {
                    Some(known) if exact && !agreement.contradicted => known,
                    _ if agreement.all_idle => Known::Bounded,
                    _ => Known::Inferred,
                };
                self.place(PlacedIdle { span, known, feeder, submit, device_inferred: edges.inferred });
                at = to;
                i += 1;
            }
        }
    }

    /// Idle between submits that are less than a silence apart.
    fn in_burst(&mut self, edges: &Edges, gap: &Gap, span: Span, window: Span) {
        if span.is_empty() {
            return;
        }
        let i = edges.bursts.partition_point(|b| b.span.end < span.end);
        let Some(burst) = edges.bursts.get(i) else { return };
        if gap.empty.is_some() {
            let (feeder, submit) = next_submit(edges, span.end).unzip();
            let known = Known::Inferred;
            return self.place(PlacedIdle {
                span,
                known,
                feeder: feeder.or(Some(burst.feeder)),
                submit,
                device_inferred: edges.inferred,
            });
        }
        if let Some(spans) = &mut self.between_submits {
            spans.push(span);
        }
        let reason = format!("between submits less than {} us apart", SILENCE_NS / 1000);
        self.unplace(UnplacedIdle {
            span: burst.span.intersect(window).unwrap_or(span),
            ns: span.len(),
            reason,
            launch_bound: true,
            in_waits: false,
            feeder: Some(burst.feeder),
        });
    }

    pub(super) fn place(&mut self, piece: PlacedIdle) {
        if piece.span.is_empty() {
            return;
        }
        if let Some(last) = self.placed.last_mut()
            && last.span.end == piece.span.start
            && (PlacedIdle { span: piece.span, ..*last }) == piece
        {
            last.span.end = piece.span.end;
            return;
        }
        self.placed.push(piece);
    }

    pub(super) fn unplace(&mut self, rest: UnplacedIdle) {
        if rest.ns == 0 {
            return;
        }
        match self.unplaced.last_mut() {
            Some(last) if last.span == rest.span && last.reason == rest.reason => last.ns += rest.ns,
            _ => self.unplaced.push(rest),
        }
    }
}

/// The next submit at or after `at`, where it lies between two others of a burst.
fn next_submit(edges: &Edges, at: Ns) -> Option<(ThreadKey, Ns)> {
    let instants = edges.runs_in(Span::new(at, at.saturating_add(SILENCE_NS)));
    let next = |run: &super::runs::Run| {
        let window = Span::new(at, at.saturating_add(SILENCE_NS));
        run.instants(window).next().map(|(at, _)| (at.saturating_sub(run.late), run.thread))
    };
    instants.filter_map(next).min().map(|(at, thread)| (thread, at))
}

/// Nobody submitted again: whoever did last, if alive, is the one the device went on waiting for.
fn last_feeder(timeline: &Timeline, edges: &Edges, span: Span) -> Option<ThreadKey> {
    let last = edges.last?;
    let thread = timeline.threads.get(&last.thread)?;
    thread.exited.is_none_or(|exited| exited >= span.end).then_some(last.thread)
}
