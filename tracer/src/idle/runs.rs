//! Submits as runs, and the silences between them.

use crate::timeline::{Thread, prefix_share};
use crate::trace::{CudaFamily, Ns, Span, ThreadKey};

/// This long without a submit is a silence.
pub(super) const SILENCE_NS: u64 = 200_000;
/// No more than one instant for this much of a run; more submits share one.
const INSTANT_NS: u64 = 1_000;
/// Nor more instants than this for one run in one device window, whatever the records claim.
const MAX_INSTANTS: u64 = 1 << 16;

/// Submits of one thread, evenly spread from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub first: Ns,
    pub last: Ns,
    pub thread: ThreadKey,
    pub pid: u32,
    pub count: u64,
    /// Kernel and graph launches among them.
    pub launches: u64,
    /// `first` is an edge that was seen, not a place on the even spread.
    pub exact: bool,
}

/// A thread's runs of submits. A thread inside another driver call submits nothing, so the even spread
/// leaves such calls out; a submit that blocked counts from its return.
pub(super) fn of_thread(thread: &Thread) -> Vec<Run> {
    let mut runs = Vec::new();
    for submits in &thread.submits {
        let launches = submits.launches.saturating_add(submits.graph_launches);
        let count = launches.saturating_add(submits.memsets);
        if count == 0 {
            continue;
        }
        let from = thread.calls.partition_point(|c| c.entry < submits.first);
        let calls = &thread.calls[from..];
        let calls = &calls[..calls.partition_point(|c| c.entry <= submits.last)];
        let mut holes: Vec<Span> = Vec::new();
        let mut blocked = None;
        for call in calls {
            let Some(exit) = call.exit else { continue };
            if is_submit(call.family) {
                blocked = blocked.max((call.entry == submits.last).then_some(exit));
            } else if exit <= submits.last {
                let start = holes.last().map_or(call.entry, |h| h.end.max(call.entry));
                holes.push(Span::new(start, exit));
            }
        }
        let run = Run {
            first: submits.first,
            last: submits.last,
            thread: thread.key,
            pid: thread.pid,
            count,
            launches,
            exact: true,
        };
        match blocked {
            Some(exit) if count == 1 => runs.push(Run { first: exit, last: exit, ..run }),
            Some(exit) => {
                let rest = Run { last: run.at(count - 2, count), count: count - 1, ..run };
                split(rest.with_launches(launches.min(count - 1)), &holes, &mut runs);
                runs.push(
                    Run { first: exit, last: exit, count: 1, ..run }
                        .with_launches(launches - launches.min(count - 1)),
                );
            }
            None => split(run, &holes, &mut runs),
        }
    }
    runs
}

fn is_submit(family: CudaFamily) -> bool {
    matches!(family, CudaFamily::Launch | CudaFamily::GraphLaunch | CudaFamily::Memset)
}

/// Cuts a run at its holes, its submits spread evenly over what is left.
fn split(run: Run, holes: &[Span], runs: &mut Vec<Run>) {
    let mut free: Vec<Span> = Vec::with_capacity(holes.len() + 1);
    let mut cursor = run.first;
    for hole in holes.iter().filter(|h| !h.is_empty() && h.end <= run.last) {
        free.push(Span::new(cursor, hole.start));
        cursor = hole.end;
    }
    free.push(Span::new(cursor, run.last));
    let whole: u64 = free.iter().map(|f| f.len()).sum();
    if free.len() == 1 || whole == 0 || run.count < 2 {
        return runs.push(run);
    }
    let gaps = run.count - 1;
    let (mut before, mut index) = (0_u64, 0_u64);
    for part in free {
        // Submits up to the end of this part: the i-th lies at `whole * i / gaps` of the free time.
        let upto = if before + part.len() >= whole {
            run.count
        } else {
            ceil_div(before + part.len(), gaps, whole).min(gaps)
        };
        if upto > index {
            let place = |i: u64| {
                let at = prefix_share(whole, gaps, 0, i).saturating_sub(before);
                part.start + at.min(part.len())
            };
            let launches = prefix_share(run.launches, run.count, index, upto);
            let exact = run.exact && index == 0;
            let (first, last) = (place(index), place(upto - 1));
            runs.push(Run { first, last, count: upto - index, launches, exact, ..run });
        }
        (before, index) = (before + part.len(), upto.max(index));
    }
}

/// `a * b / c`, rounded up.
fn ceil_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from((u128::from(a) * u128::from(b)).div_ceil(u128::from(c))).unwrap_or(u64::MAX)
}

impl Run {
    fn with_launches(self, launches: u64) -> Self {
        Self { launches, ..self }
    }

    /// Where the `i`-th of `points` evenly spread instants lies.
    fn at(&self, i: u64, points: u64) -> Ns {
        self.first + prefix_share(self.last - self.first, points.saturating_sub(1).max(1), 0, i)
    }

    /// The run's submits in `window` as (instant, how many), in order.
    pub(super) fn instants(&self, window: Span) -> impl Iterator<Item = (Ns, u64)> + '_ {
        let len = self.last - self.first;
        let coarse = (window.len() / MAX_INSTANTS).max(INSTANT_NS);
        let points = self.count.min(len / coarse + 1);
        let from = match window.start.checked_sub(self.first) {
            Some(skip) if len > 0 => ceil_div(skip, points.saturating_sub(1), len),
            _ => 0,
        };
        (from.saturating_sub(1)..points)
            .map(move |i| (self.at(i, points), prefix_share(self.count, points, i, i + 1)))
            .skip_while(move |&(at, _)| at < window.start)
            .take_while(move |&(at, _)| at < window.end)
    }

    /// Submits in `window`, as the even spread has them, and launches among them.
    pub(super) fn counts(&self, window: Span) -> (u64, u64) {
        let len = self.last - self.first;
        if len == 0 {
            let inside = window.contains(self.first);
            return if inside { (self.count, self.launches) } else { (0, 0) };
        }
        let (from, to) = (window.start.saturating_sub(self.first), window.end.saturating_sub(self.first));
        (prefix_share(self.count, len, from, to), prefix_share(self.launches, len, from, to))
    }
}

/// A stretch without a submit on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub span: Span,
    /// The run whose first submit ends it.
    pub ended_by: Option<Run>,
}

/// A stretch in which submits are less than a silence apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub span: Span,
    /// The thread that submitted most in it.
    pub feeder: ThreadKey,
}

/// Silences and bursts of sorted runs, each in order. Silences reach to both ends of time.
pub(super) fn silences(runs: &[Run]) -> (Vec<Silence>, Vec<Burst>) {
    let mut silences = Vec::new();
    let mut bursts: Vec<Burst> = Vec::new();
    let mut end: Ns = 0;
    let mut counts = std::collections::BTreeMap::new();
    for run in runs {
        if run.first >= end.saturating_add(SILENCE_NS) || bursts.is_empty() {
            silences.push(Silence { span: Span::new(end, run.first), ended_by: Some(*run) });
            bursts.push(Burst { span: Span::new(run.first, run.last), feeder: run.thread });
            counts.clear();
        }
        let count = counts.entry(run.thread).or_insert(0_u64);
        *count = count.saturating_add(run.count);
        end = end.max(run.last);
        if let Some(burst) = bursts.last_mut() {
            burst.span.end = end;
            let most = counts.iter().max_by_key(|&(key, count)| (*count, std::cmp::Reverse(*key)));
            burst.feeder = most.map_or(burst.feeder, |(key, _)| *key);
        }
    }
    silences.push(Silence { span: Span::new(end, Ns::MAX), ended_by: None });
    (silences, bursts)
}
