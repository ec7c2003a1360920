//! What the feeding threads' driver calls say of one device: launches, silences, copies.

use std::borrow::Cow;

use super::{Copies, CopyWay, Launches, Silences, Unwatched};
use crate::idle::{DeviceIdle, DeviceMap, feeders};
use crate::timeline::{Thread, Timeline, prefix_share, total, union, without};
use crate::trace::{CopyDirection, CudaCall, CudaFamily, Ns, Span, Submits, Watched};

/// A silence: this long without a submit.
const SILENCE_NS: u64 = 200_000;
/// Bounds between the lengths by which silences are told.
const LENGTHS: [u64; 4] = [SILENCE_NS, 1_000_000, 10_000_000, 100_000_000];

/// One device's feeding threads and what was watched of their calls.
pub(super) struct Driving<'t> {
    threads: Vec<Cow<'t, Thread>>,
    window: Span,
    /// Where launches were watched, in order.
    watched: Vec<Span>,
    /// Idle time that has a place, in order.
    idle: Vec<Span>,
}

impl<'t> Driving<'t> {
    pub(super) fn new(timeline: &'t Timeline, map: &DeviceMap, idle: &DeviceIdle) -> Self {
        let (threads, _) = feeders(timeline, map, idle.device);
        let stretches = watched(timeline, idle.window);
        let all = stretches.into_iter().filter(|(_, w)| *w >= Watched::Burst).map(|(span, _)| span);
        let idle_spans = idle.placed.iter().map(|p| p.span).collect();
        Self { threads, window: idle.window, watched: union(all.collect()), idle: idle_spans }
    }

    fn runs(&self) -> impl Iterator<Item = &Submits> {
        let overlaps = |s: &&Submits| s.first < self.window.end && s.last >= self.window.start;
        self.threads.iter().flat_map(|t| &t.submits).filter(overlaps)
    }

    fn calls(&self) -> impl Iterator<Item = &CudaCall> {
        let overlaps =
            |c: &&CudaCall| c.entry < self.window.end && c.exit.unwrap_or(c.entry) >= self.window.start;
        self.threads.iter().flat_map(|t| &t.calls).filter(overlaps)
    }

    /// `None`: nobody was seen to launch.
    pub(super) fn launches(&self) -> Option<Launches> {
        let mut told = Launches { watched_ns: total(&self.watched), ..Launches::default() };
        let (mut timed, mut call_ns) = (0_u64, 0_u64);
        for run in self.runs() {
            let part = |count| self.watched_part(count, Span::new(run.first, run.last));
            told.kernels = told.kernels.saturating_add(part(run.launches));
            told.graphs = told.graphs.saturating_add(part(run.graph_launches));
            told.memsets = told.memsets.saturating_add(part(run.memsets));
            let launch = |f| matches!(f, CudaFamily::Launch | CudaFamily::GraphLaunch);
            for group in run.groups.iter().filter(|g| launch(g.family)) {
                timed = timed.saturating_add(group.timed);
                call_ns = call_ns.saturating_add(group.call_ns);
            }
        }
        if told.kernels.max(told.graphs).max(told.memsets) == 0 {
            return None;
        }
        told.per_second = per_second(told.kernels.saturating_add(told.graphs), told.watched_ns);
        told.call_ns = call_ns.checked_div(timed);
        told.silences = self.silences();
        told.host_ahead_ns = self.host_ahead();
        Some(told)
    }

    /// What of `count` events, evenly spread over `span`, lies where launches were watched.
    fn watched_part(&self, count: u64, span: Span) -> u64 {
        self.watched.iter().fold(0, |sum: u64, stretch| sum.saturating_add(inside(count, span, *stretch)))
    }

    fn silences(&self) -> Vec<Silences> {
        let submits = |s: &&Submits| s.submits() > 0;
        let mut runs: Vec<Span> = self.runs().filter(submits).map(|s| Span::new(s.first, s.last)).collect();
        runs.sort_unstable();
        let mut told: Vec<Silences> = LENGTHS
            .iter()
            .zip(LENGTHS.iter().skip(1).map(|&to| Some(to)).chain([None]))
            .map(|(&from_ns, to_ns)| Silences { from_ns, to_ns, count: 0, ns: 0 })
            .collect();
        let mut note = |silence: Span| {
            for part in self.watched.iter().filter_map(|w| w.intersect(silence)) {
                let bound = LENGTHS.partition_point(|&from| from <= part.len());
                if let Some(slot) = bound.checked_sub(1).and_then(|i| told.get_mut(i)) {
                    slot.count += 1;
                    slot.ns += part.len();
                }
            }
        };
        let mut end = self.window.start;
        for run in runs {
            if run.start > end {
                note(Span::new(end, run.start));
            }
            end = end.max(run.end);
        }
        if end < self.window.end {
            note(Span::new(end, self.window.end));
        }
        told
    }

    /// Time in which a thread stood in a call that waits for the device while that worked; `None` where no
    /// such call was seen.
    fn host_ahead(&self) -> Option<u64> {
        let waits = |c: &&CudaCall| match c.family {
            CudaFamily::Synchronize => true,
            CudaFamily::Copy => direction(c) == CopyDirection::DeviceToHost && blocks(c),
            // Against a full queue; one that was quick has no record.
            CudaFamily::Launch | CudaFamily::GraphLaunch => true,
            _ => false,
        };
        let spans: Vec<Span> =
            self.calls().filter(waits).filter_map(|c| self.clip(Span::new(c.entry, c.returned()?))).collect();
        (!spans.is_empty()).then(|| without(&union(spans), &self.idle))
    }

    fn clip(&self, span: Span) -> Option<Span> {
        span.intersect(self.window)
    }

    /// `None`: no copy was seen.
    pub(super) fn copies(&self) -> Option<Copies> {
        let mut told = Copies::default();
        let mut to_device: Vec<Span> = Vec::new();
        let mut grouped = 0_u64;
        for run in self.runs() {
            let span = Span::new(run.first, run.last);
            told.count = told.count.saturating_add(inside(run.copies, span, self.window));
            for group in run.groups.iter().filter(|g| g.family == CudaFamily::Copy) {
                let span = Span::new(group.first, group.last.max(group.first));
                let (count, bytes) =
                    (inside(group.count, span, self.window), inside(group.bytes, span, self.window));
                grouped = grouped.saturating_add(count);
                told.way(group.direction).add(count, bytes);
                if group.direction == Some(CopyDirection::HostToDevice) {
                    to_device.push(span);
                }
            }
        }
        let mut in_calls: Vec<Span> = Vec::new();
        let mut calls = 0_u64;
        for call in self.calls().filter(|c| c.family == CudaFamily::Copy) {
            calls += 1;
            let way = direction(call);
            let span = Span::new(call.entry, call.returned().unwrap_or(call.entry));
            in_calls.extend(self.clip(span));
            if way == CopyDirection::HostToDevice {
                to_device.push(span);
            }
            // The counts of runs hold every copy, those with a record of their own too.
            if grouped == 0 {
                told.way(Some(way)).add(1, call.bytes);
            }
            match call.pinned {
                Some(true) => told.pinned += 1,
                Some(false) => told.pageable += 1,
                None => told.memory_unknown += 1,
            }
        }
        told.count = told.count.max(calls).max(grouped);
        if told.count == 0 {
            return None;
        }
        let bytes =
            [told.to_device, told.to_host, told.other].iter().fold(0, |n: u64, w| n.saturating_add(w.bytes));
        told.bytes_per_second = (bytes > 0).then(|| per_second(bytes, self.window.len())).flatten();
        let in_calls = union(in_calls);
        told.in_calls_ns = total(&in_calls);
        told.with_compute_ns = without(&in_calls, &self.idle);
        let gaps = gaps(to_device);
        told.longest_gap_ns = gaps.iter().copied().max();
        told.mean_gap_ns = gaps.iter().sum::<u64>().checked_div(u64::try_from(gaps.len()).unwrap_or(0));
        Some(told)
    }
}

impl Copies {
    fn way(&mut self, direction: Option<CopyDirection>) -> &mut CopyWay {
        match direction {
            Some(CopyDirection::HostToDevice) => &mut self.to_device,
            Some(CopyDirection::DeviceToHost) => &mut self.to_host,
            _ => &mut self.other,
        }
    }
}

impl CopyWay {
    fn add(&mut self, count: u64, bytes: u64) {
        self.count = self.count.saturating_add(count);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What part of the placed idle time lies where no call, or no launch, was watched, and what of the rest was
/// made out of bursts.
pub(super) fn unwatched(timeline: &Timeline, idle: &DeviceIdle) -> Unwatched {
    let mut told = Unwatched::default();
    for (stretch, watched) in watched(timeline, idle.window) {
        let within = |span: Span| span.intersect(stretch).map_or(0, Span::len);
        let placed: u64 = idle.placed.iter().map(|p| within(p.span)).sum();
        let bound = idle.unplaced.iter().filter(|u| u.launch_bound);
        let bound: u64 = bound.map(|u| prefix_share(u.ns, u.span.len(), 0, within(u.span))).sum();
        match watched {
            Watched::Nothing => told.no_calls_ns += placed,
            Watched::Rare => told.no_launches_ns += placed,
            Watched::Burst | Watched::All => continue,
        }
        told.extrapolated_ns += bound;
    }
    told
}

/// What was watched in each stretch of `window`. A trace that says nothing of it holds all calls.
fn watched(timeline: &Timeline, window: Span) -> Vec<(Span, Watched)> {
    let Some(first) = timeline.cuda_watches.first() else { return vec![(window, Watched::All)] };
    let before = (Span::new(0, first.at), Watched::Nothing);
    [before]
        .into_iter()
        .chain(timeline.watches().map(|(span, watch)| (span, watch.watched)))
        .filter_map(|(span, watched)| Some((span.intersect(window)?, watched)))
        .filter(|(span, _)| !span.is_empty())
        .collect()
}

/// Lengths of the stretches between spans, which may be of no length.
fn gaps(mut spans: Vec<Span>) -> Vec<u64> {
    spans.sort_unstable();
    let mut gaps = Vec::new();
    let mut end = spans.first().map_or(0, |s| s.start);
    for span in spans {
        gaps.extend(span.start.checked_sub(end).filter(|&gap| gap > 0));
        end = end.max(span.end);
    }
    gaps
}

/// What of `count` events, evenly spread over `span`, lies in `window`.
fn inside(count: u64, span: Span, window: Span) -> u64 {
    if span.is_empty() {
        return if window.contains(span.start) { count } else { 0 };
    }
    let at = |t: Ns| t.saturating_sub(span.start);
    prefix_share(count, span.len(), at(window.start), at(window.end))
}

pub(super) fn direction(call: &CudaCall) -> CopyDirection {
    call.direction.unwrap_or_else(|| {
        let named = |part| call.name.contains(part);
        match () {
            () if named("HtoD") => CopyDirection::HostToDevice,
            () if named("DtoH") => CopyDirection::DeviceToHost,
            () if named("DtoD") => CopyDirection::DeviceToDevice,
            () if named("Peer") => CopyDirection::Peer,
            () => CopyDirection::Unified,
        }
    })
}

fn blocks(call: &CudaCall) -> bool {
    !call.name.contains("Async")
}

#[expect(clippy::cast_precision_loss, reason = "a rate to be shown")]
fn per_second(count: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| count as f64 * 1e9 / ns as f64)
}
