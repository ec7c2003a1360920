//! What stays below the threshold took of a running stretch.

use super::apportion::{apportion, prefix_share};
use super::model::{Activity, ShortWait, Shorts, Slice, Thread};
use crate::trace::{Ns, Span, WaitTotal};

/// Prefix sums that answer [`Thread::shorts`] without a walk over the thread's life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Running time before each slice.
    running: Vec<u64>,
    /// Latest end of the totals up to each.
    reach: Vec<Ns>,
    /// Group of each off-CPU interval.
    pub merged_of: Vec<Option<usize>>,
}

impl Index {
    pub(super) fn new(slices: &[Slice], totals: &[WaitTotal]) -> Self {
        let mut before = 0;
        let mut running = Vec::with_capacity(slices.len());
        for slice in slices {
            running.push(before);
            if slice.activity == Activity::Running {
                before += slice.span.len();
            }
        }
        let reach = totals
            .iter()
            .scan(0, |reach, total| {
                *reach = total.last.max(*reach);
                Some(*reach)
            })
            .collect();
        Self { running, reach, merged_of: Vec::new() }
    }
}

impl Thread {
    /// Running time before `at`, as slices tell it, since the start of the thread's life.
    #[must_use]
    pub fn running_before(&self, at: Ns) -> u64 {
        let i = self.slices.partition_point(|s| s.span.start < at);
        let Some(i) = i.checked_sub(1) else { return 0 };
        let (slice, before) = (self.slices[i], self.index.running[i]);
        match slice.activity {
            Activity::Running => before + (at.min(slice.span.end) - slice.span.start),
            _ => before,
        }
    }

    /// What short stays took of the running slices in `span`. A total is spread evenly over this thread's
    /// running time between its first and last, so adjacent spans sum exactly; where totals claim more than
    /// the span ran, they are cut to it by largest remainder. `throttled_ns` is part of `runnable_ns`.
    #[must_use]
    pub fn shorts(&self, span: Span) -> Shorts {
        let (from, to) = (self.running_before(span.start), self.running_before(span.end));
        let mut shorts = Shorts::default();
        if from >= to {
            return shorts;
        }
        let begin = self.index.reach.partition_point(|&reach| reach <= span.start);
        for total in self.totals[begin..].iter().take_while(|t| t.first < span.end) {
            let first = self.running_before(total.first);
            let whole = self.running_before(total.last).saturating_sub(first);
            let share =
                |amount| prefix_share(amount, whole, from.saturating_sub(first), to.saturating_sub(first));
            shorts.runnable_ns = shorts.runnable_ns.saturating_add(share(total.runnable_ns));
            shorts.throttled_ns = shorts.throttled_ns.saturating_add(share(total.throttled_ns));
            let wait = ShortWait {
                waker: total.waker,
                syscall: total.syscall,
                arg0: total.arg0,
                count: share(total.count),
                ns: share(total.blocked_ns),
            };
            if wait.ns > 0 || wait.count > 0 {
                shorts.blocked.push(wait);
            }
        }
        shorts.fit(to - from);
        shorts
    }
}

impl Shorts {
    /// Off-processor time in all.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.blocked.iter().map(|b| b.ns).fold(self.runnable_ns, u64::saturating_add)
    }

    fn fit(&mut self, room: u64) {
        if self.ns() > room {
            let weights: Vec<u64> = self.blocked.iter().map(|b| b.ns).chain([self.runnable_ns]).collect();
            let parts = apportion(room, &weights);
            for (wait, &part) in self.blocked.iter_mut().zip(&parts) {
                wait.ns = part;
            }
            self.runnable_ns = parts.last().copied().unwrap_or(0);
        }
        self.throttled_ns = self.throttled_ns.min(self.runnable_ns);
    }
}
