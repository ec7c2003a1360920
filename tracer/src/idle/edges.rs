//! What host edges say of one device: its submits, and the calls that wait for it or leave it empty.

use std::collections::BTreeMap;

use super::cost::{AVERAGE, Told};
use super::devices::{DeviceMap, feeders};
use super::drain::synchronise;
use super::queue::{Event, What};
use super::runs::{Burst, Kind, Run, Silence, of_thread, silences};
use crate::timeline::{Thread, Timeline, union};
use crate::trace::{CudaCall, CudaFamily, Ns, Span};

/// No more drains than this teach what submits cost; of more, some evenly among them.
const MOST_DRAINS: usize = 1 << 14;

/// All edges of one device, in order.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub runs: Vec<Run>,
    /// The one that ends last.
    pub last: Option<Run>,
    /// Latest `last` of the runs up to each.
    reach: Vec<Ns>,
    pub silences: Vec<Silence>,
    pub bursts: Vec<Burst>,
    /// `Empty` and `Wait` events.
    calls: Vec<Event>,
    longest_wait: u64,
    copies: Vec<Span>,
    /// What a submit of each kind costs, around [`AVERAGE`].
    pub costs: BTreeMap<Kind, u64>,
    /// Some of these threads may submit to another device.
    pub inferred: bool,
}

impl Edges {
    pub(super) fn of_device(timeline: &Timeline, map: &DeviceMap, device: u32) -> Self {
        let (threads, inferred) = feeders(timeline, map, device);
        let threads: Vec<&Thread> = threads.iter().map(AsRef::as_ref).collect();
        let mut runs: Vec<Run> = threads.iter().flat_map(|t| of_thread(t)).collect();
        runs.sort_unstable();
        let (silences, bursts) = silences(&runs);
        let mut calls = synchronise(&threads, &runs, timeline.span.end);
        calls.sort_unstable();
        let longest_wait = calls
            .iter()
            .map(|e| if let What::Wait(end) = e.what { end - e.at } else { 0 })
            .max()
            .unwrap_or(0);
        let reach = runs
            .iter()
            .scan(0, |reach, run| {
                *reach = run.last.max(*reach);
                Some(*reach)
            })
            .collect();
        let last = runs.iter().max_by_key(|r| (r.last, std::cmp::Reverse(r.thread))).copied();
        Self {
            last,
            reach,
            silences,
            bursts,
            calls,
            longest_wait,
            copies: copies(&threads),
            costs: BTreeMap::new(),
            inferred,
            runs,
        }
    }

    /// The runs that reach into `window`.
    pub(super) fn runs_in(&self, window: Span) -> impl Iterator<Item = &Run> {
        let from = self.reach.partition_point(|&reach| reach < window.start);
        let overlaps = move |r: &&Run| r.last >= window.start;
        self.runs[from..].iter().take_while(move |r| r.first < window.end).filter(overlaps)
    }

    /// What happens in `window`, in order, each submit weighted by what those of its kind cost.
    pub(super) fn events(&self, window: Span) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for run in self.runs_in(window) {
            let cost = self.costs.get(&run.kind).copied().unwrap_or(AVERAGE);
            let submit =
                |(at, count): (Ns, u64)| Event { at, what: What::Submit(count.saturating_mul(cost)) };
            events.extend(run.instants(window).map(submit));
        }
        let early = window.start.saturating_sub(self.longest_wait);
        let from = self.calls.partition_point(|c| c.at < early);
        for call in self.calls[from..].iter().take_while(|c| c.at < window.end) {
            match call.what {
                What::Wait(end) if end > window.start => {
                    events.push(Event { at: call.at.max(window.start), what: call.what });
                }
                What::Empty(_) if call.at >= window.start => events.push(*call),
                _ => {}
            }
        }
        events.sort_unstable();
        events
    }

    /// What calls say of the submits between two that left the device empty: those kept it busy for no longer than
    /// from the first of them to the second call, and for as long as calls waited meanwhile.
    pub(super) fn drains(&self) -> Vec<Told> {
        let mut drains = Vec::new();
        let mut since: Option<Ns> = None;
        let (mut waited, mut waited_to) = (0, 0);
        for call in &self.calls {
            match call.what {
                What::Wait(end) => {
                    waited += end.saturating_sub(call.at.max(waited_to));
                    waited_to = end.max(waited_to);
                }
                What::Empty(_) => {
                    let beyond = waited_to.saturating_sub(call.at);
                    let span = since.replace(call.at).map(|since| Span::new(since, call.at));
                    if let Some((span, first)) = span.and_then(|span| Some((span, self.first_submit(span)?)))
                    {
                        let most = call.at - first;
                        drains.push(Told { span, least: waited.saturating_sub(beyond).min(most), most });
                    }
                    (waited, waited_to) = (0, call.at);
                }
                What::Submit(_) => {}
            }
        }
        let every = drains.len().div_ceil(MOST_DRAINS).max(1);
        drains.into_iter().step_by(every).collect()
    }

    fn first_submit(&self, span: Span) -> Option<Ns> {
        self.runs_in(span).filter_map(|run| run.instants(span).next()).map(|(at, _)| at).min()
    }

    /// Whether a copy was seen in `span`.
    pub(super) fn copied(&self, span: Span) -> bool {
        let i = self.copies.partition_point(|c| c.end < span.start);
        self.copies.get(i).is_some_and(|c| c.start < span.end)
    }
}

/// Stretches with copies, in order and apart.
fn copies(threads: &[&Thread]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for thread in threads {
        // A thread that synchronises and never submits waits for copies.
        let submits = thread.submits.iter().any(|s| s.submits() > 0);
        let only_copies = |c: &CudaCall| !submits && c.family == CudaFamily::Synchronize;
        let calls = thread.calls.iter().filter(|c| c.family == CudaFamily::Copy || only_copies(c));
        spans.extend(calls.map(|c| Span::new(c.entry, c.returned().unwrap_or(c.entry))));
        // Copies are counted with the run they come before or lie in.
        let mut since = 0;
        for submits in &thread.submits {
            if submits.copies > 0 {
                spans.push(Span::new(since, submits.last));
            }
            since = submits.last;
        }
    }
    union(spans)
}
