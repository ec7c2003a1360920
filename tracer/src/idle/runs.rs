//! Submits as runs, and the silences between them.

use crate::timeline::{Thread, prefix_share};
use crate::trace::{CudaFamily, Ns, Span, SubmitGroup, Submits, ThreadKey};

/// This long without a submit is a silence.
pub(super) const SILENCE_NS: u64 = 200_000;
/// From a launch's return to its kernel's start on an idle device: medians of 0 to 2 us in the recordings at hand.
const START_NS: u64 = 1_500;
/// No more than one instant for this much of a run; more submits share one.
const INSTANT_NS: u64 = 1_000;
/// Nor more instants than this for one run in one device window, whatever the records claim.
const MAX_INSTANTS: u64 = 1 << 16;

/// Submits of one thread that are alike, evenly spread from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    /// When the first reaches an idle device, and the last: `late` after their calls' entries.
    pub first: Ns,
    pub last: Ns,
    pub thread: ThreadKey,
    pub pid: u32,
    pub count: u64,
    /// Kernel and graph launches among them.
    pub launches: u64,
    /// `first` is an edge that was seen, not a place on the even spread.
    pub exact: bool,
    pub late: u64,
    pub kind: Kind,
}

/// What submits have in common that cost the device about the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub pid: u32,
    /// Only where nothing else tells submits apart.
    pub thread: Option<ThreadKey>,
    pub family: CudaFamily,
    pub stream: u64,
    pub function: u64,
    /// Of the grid; 0 where not known.
    pub blocks: u64,
}

impl Kind {
    fn of_thread(thread: &Thread) -> Self {
        Self {
            pid: thread.pid,
            thread: Some(thread.key),
            family: CudaFamily::Launch,
            stream: 0,
            function: 0,
            blocks: 0,
        }
    }

    fn of_group(thread: &Thread, group: &SubmitGroup) -> Self {
        let blocks = group.grid.iter().map(|&side| u64::from(side)).fold(1, u64::saturating_mul);
        Self {
            pid: thread.pid,
            thread: group.rest.then_some(thread.key),
            family: group.family,
            stream: group.stream,
            function: group.function,
            blocks,
        }
    }
}

/// A thread's runs of submits, one for each kind of submits where the record tells them apart. A thread inside
/// another driver call submits nothing, so the even spread leaves such calls out; a submit that blocked counts
/// from its return.
pub(super) fn of_thread(thread: &Thread) -> Vec<Run> {
    let mut runs = Vec::new();
    for submits in &thread.submits {
        let launches = submits.launches.saturating_add(submits.graph_launches);
        let count = submits.submits();
        if count == 0 {
            continue;
        }
        let calls = Calls::during(thread, submits);
        let whole = Part {
            run: Run {
                first: submits.first,
                last: submits.last,
                thread: thread.key,
                pid: thread.pid,
                count,
                launches,
                exact: true,
                late: 0,
                kind: Kind::of_thread(thread),
            },
            timed: 0,
            call_ns: 0,
        };
        match parts(thread, submits, &whole) {
            Some(parts) => parts.into_iter().for_each(|part| part.cut(&calls, &mut runs)),
            None => whole.cut(&calls, &mut runs),
        }
    }
    runs
}

/// A run by its groups, where those are all of it.
fn parts(thread: &Thread, submits: &Submits, whole: &Part) -> Option<Vec<Part>> {
    let groups = submits.groups.iter().filter(|g| is_submit(g.family) && g.count > 0);
    let mut sum = 0_u64;
    let mut parts = Vec::with_capacity(submits.groups.len());
    for group in groups {
        sum = sum.saturating_add(group.count);
        let first = group.first.clamp(submits.first, submits.last);
        let run = Run {
            first,
            last: group.last.clamp(first, submits.last),
            count: group.count,
            launches: if group.family == CudaFamily::Memset { 0 } else { group.count },
            kind: Kind::of_group(thread, group),
            ..whole.run
        };
        parts.push(Part { run, timed: group.timed, call_ns: group.call_ns });
    }
    (sum == whole.run.count).then_some(parts)
}

/// Calls of a thread during a run: those that took long.
struct Calls {
    /// Other than submits: no submit was made inside.
    holes: Vec<Span>,
    /// Submits that blocked, with what they took by themselves.
    blocked: Vec<(Span, u64)>,
}

impl Calls {
    fn during(thread: &Thread, submits: &Submits) -> Self {
        let from = thread.calls.partition_point(|c| c.entry < submits.first);
        let calls = &thread.calls[from..];
        let calls = &calls[..calls.partition_point(|c| c.entry <= submits.last)];
        let (mut holes, mut blocked): (Vec<Span>, Vec<(Span, u64)>) = (Vec::new(), Vec::new());
        for call in calls {
            let Some(exit) = call.exit else { continue };
            if is_submit(call.family) {
                blocked.push((Span::new(call.entry, exit), call.own_ns().unwrap_or(0)));
            } else if exit <= submits.last {
                let start = holes.last().map_or(call.entry, |h| h.end.max(call.entry));
                holes.push(Span::new(start, exit));
            }
        }
        Self { holes, blocked }
    }

    /// The submit that entered at `entry`, if it blocked.
    fn blocked_at(&self, entry: Ns) -> Option<(Span, u64)> {
        self.blocked.iter().rev().find(|(call, _)| call.start == entry).copied()
    }
}

/// Submits that are alike, with their calls' times.
struct Part {
    run: Run,
    timed: u64,
    call_ns: u64,
}

impl Part {
    /// As runs: a blocked submit at either end is one of its own.
    fn cut(mut self, calls: &Calls, runs: &mut Vec<Run>) {
        if let Some(call) = calls.blocked_at(self.run.last) {
            self.peel(call, self.run.count - 1, runs);
        }
        if self.run.count > 0
            && let Some(call) = calls.blocked_at(self.run.first)
        {
            self.peel(call, 0, runs);
        }
        if self.run.count > 0 {
            split(self.run.delayed(self.late()), &calls.holes, runs);
        }
    }

    /// Takes the submit with this number, which blocked, out of the rest.
    fn peel(&mut self, (call, own_ns): (Span, u64), number: u64, runs: &mut Vec<Run>) {
        let run = self.run;
        let (left, last) = (run.count - 1, number > 0);
        // Memsets go last, as they mostly do.
        let launches = if last { run.launches.saturating_sub(left) } else { run.launches.min(1) };
        let at = call.end;
        runs.push(Run { first: at, last: at, count: 1, launches, ..run }.delayed(self.late().min(START_NS)));
        let (first, last) = if last {
            (run.first, run.at(left.saturating_sub(1), run.count))
        } else {
            (run.at(1, run.count), run.last)
        };
        self.run = Run {
            first,
            last,
            count: left,
            launches: run.launches - launches,
            exact: run.exact && number > 0,
            ..run
        };
        self.call_ns = self.call_ns.saturating_sub(own_ns);
        self.timed = self.timed.saturating_sub(1);
    }

    /// A launch's kernel starts just after the call has returned: the call itself writes it to the device's
    /// queue and rings.
    fn late(&self) -> u64 {
        match self.call_ns.checked_div(self.timed) {
            Some(call) => call.saturating_add(START_NS).min(SILENCE_NS / 2),
            None => 0,
        }
    }
}

fn is_submit(family: CudaFamily) -> bool {
    matches!(family, CudaFamily::Launch | CudaFamily::GraphLaunch | CudaFamily::Memset)
}

/// Cuts a run at its holes, its submits spread evenly over what is left.
fn split(run: Run, holes: &[Span], runs: &mut Vec<Run>) {
    let mut free: Vec<Span> = Vec::with_capacity(holes.len() + 1);
    let mut cursor = run.first;
    let inside = |h: &&Span| !h.is_empty() && run.first <= h.start && h.end <= run.last;
    for hole in holes.iter().filter(inside) {
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
    /// Its submits reach the device this much after their calls' entries.
    fn delayed(self, late: u64) -> Self {
        let (first, last) = (self.first.saturating_add(late), self.last.saturating_add(late));
        Self { first, last, late: self.late.saturating_add(late), ..self }
    }

    /// Entries of the first and the last call.
    pub(super) fn entered(&self) -> (Ns, Ns) {
        (self.first.saturating_sub(self.late), self.last.saturating_sub(self.late))
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
    let (mut end, mut last_entry): (Ns, Ns) = (0, 0);
    let mut counts = std::collections::BTreeMap::new();
    for run in runs {
        let entry = run.entered().0;
        if entry >= last_entry.saturating_add(SILENCE_NS) || bursts.is_empty() {
            silences.push(Silence { span: Span::new(end, run.first), ended_by: Some(*run) });
            bursts.push(Burst { span: Span::new(run.first, run.last), feeder: run.thread });
            counts.clear();
        }
        let count = counts.entry(run.thread).or_insert(0_u64);
        *count = count.saturating_add(run.count);
        end = end.max(run.last);
        last_entry = last_entry.max(run.entered().1);
        if let Some(burst) = bursts.last_mut() {
            burst.span.end = end;
            let most = counts.iter().max_by_key(|&(key, count)| (*count, std::cmp::Reverse(*key)));
            burst.feeder = most.map_or(burst.feeder, |(key, _)| *key);
        }
    }
    silences.push(Silence { span: Span::new(end, Ns::MAX), ended_by: None });
    (silences, bursts)
}
