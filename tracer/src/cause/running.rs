//! What a thread on the processor was doing: by its samples.

use std::collections::BTreeMap;

use super::context::Context;
use super::ends::step;
use super::entry::Entry;
use super::kernel_busy::{self, Busy};
use super::user_stacks::{self, Work};
use super::{Culprit, CulpritKind, Mechanism, calls, groups};
use crate::timeline::{Thread, apportion};
use crate::trace::{Ns, Sample, Span, StackId};

/// How far beside a stretch without a sample the thread's other samples still speak for it.
const NEARBY: u64 = 1_000_000_000;

/// One kind of work in a stretch.
pub(crate) struct Share {
    pub work: Work,
    pub ns: u64,
    /// Kernel and user stack of its first sample.
    pub stacks: (StackId, StackId),
}

impl Share {
    /// As the end of a chain in `thread`.
    pub(crate) fn entry(self, context: &Context<'_>, thread: &Thread) -> Entry {
        let culprit = self.work.culprit.as_ref();
        let what = culprit.map_or_else(|| "runs code without a name".into(), |c| format!("runs {}", c.name));
        let own = step(thread.key, "running", &what);
        let limit = || groups::out_of_memory(context, thread);
        let culprit = match self.work.mechanism {
            Mechanism::MemoryReclaim => limit().or(self.work.culprit),
            _ => self.work.culprit,
        };
        let entry = Entry::leaf(self.ns, self.work.mechanism, culprit, own);
        let mut entry = entry.with_stacks(self.stacks.0, self.stacks.1);
        entry.importing = self.work.importing;
        entry
    }
}

/// Splits `ns` of running time in `span` over what the samples show. Empty: nothing shows.
pub(crate) fn shares(context: &Context<'_>, thread: &Thread, span: Span, ns: u64) -> Vec<Share> {
    let period = context.timeline.host.sample_period_ns;
    let mut counted = count(context, within(thread, span, period));
    if counted.is_empty() {
        let around = Span::new(span.start.saturating_sub(NEARBY), span.end.saturating_add(NEARBY));
        let nearby = within(thread, around, period);
        // Spinning for the device says nothing of work.
        counted = count(context, nearby.filter(|(s, _)| !calls::waits_for_device(thread, s.at)));
    }
    let mut shares: Vec<Share> = counted
        .into_iter()
        .filter_map(|(label, (count, stacks))| Some(Share { work: context.label(label)?, ns: count, stacks }))
        .collect();
    // Labels are numbered as they are met; what is split must not depend on that.
    shares.sort_by(|a, b| a.work.cmp(&b.work));
    let weights: Vec<u64> = shares.iter().map(|s| s.ns).collect();
    for (share, ns) in shares.iter_mut().zip(apportion(ns, &weights)) {
        share.ns = ns;
    }
    shares
}

/// The samples of `span`, each with the sampling periods of it that it stands for. One from before it counts if
/// it stands for a time that reaches into it.
fn within(thread: &Thread, span: Span, period: Ns) -> impl Iterator<Item = (&Sample, u64)> {
    let from = thread.samples.partition_point(|s| s.at < span.start);
    let to = thread.samples.partition_point(|s| s.at < span.end).max(from);
    let reaching = from.checked_sub(1).map(|before| &thread.samples[before]).filter(|s| s.periods > 1);
    let whole = thread.samples[from..to].iter().map(move |s| (s, periods_in(s, span, period).max(1)));
    reaching.map(|s| (s, periods_in(s, span, period))).filter(|(_, n)| *n > 0).into_iter().chain(whole)
}

fn periods_in(sample: &Sample, span: Span, period: Ns) -> u64 {
    let stands_for = period.saturating_mul(sample.periods.max(1).into());
    let of = Span::new(sample.at, sample.at.saturating_add(stands_for));
    of.intersect(span).map_or(0, |within| within.len().div_ceil(period))
}

/// How many periods by label, and the stacks of each one's first sample.
fn count<'s>(
    context: &Context<'_>,
    samples: impl Iterator<Item = (&'s Sample, u64)>,
) -> BTreeMap<usize, (u64, (StackId, StackId))> {
    let mut counted = BTreeMap::new();
    for (sample, periods) in samples {
        if let Some(label) = context.label_of(sample.kernel_stack, sample.user_stack) {
            counted.entry(label).or_insert((0_u64, (sample.kernel_stack, sample.user_stack))).0 += periods;
        }
    }
    counted
}

/// Labels one sample; `None` if it carries no stack at all.
pub(crate) fn label(context: &Context<'_>, kernel_stack: StackId, user_stack: StackId) -> Option<Work> {
    let kernel = context.frames(kernel_stack);
    let user = user_stacks::work(&context.frames(user_stack));
    let busy = kernel_busy::busy(&kernel).map(|busy| match busy {
        Busy::Swap => Mechanism::MemorySwap,
        Busy::Reclaim => Mechanism::MemoryReclaim,
        Busy::FileFault => Mechanism::StorageFault,
        Busy::FileIo => kernel_busy::file_work(&kernel),
        Busy::FaultZeroing => Mechanism::MemoryFault,
        Busy::CachedRead => Mechanism::PrepareCompute,
    });
    if let Some(mechanism) = busy {
        let user = user.unwrap_or_else(|| Work::of(mechanism, None));
        return Some(Work { mechanism, spins: false, ..user });
    }
    user.or_else(|| {
        let frame = kernel.iter().find(|f| f.resolved)?;
        let culprit = Culprit { kind: CulpritKind::Function, name: format!("{} ([kernel])", frame.name) };
        Some(Work::of(Mechanism::PrepareCompute, Some(culprit)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::attribute;
    use super::super::tests::{FEEDER, idle, trace};
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, key};
    use crate::trace::Record;

    /// What a gap is made of when the feeder's samples come all, or only the first of each stack with its periods.
    fn parts(gap: (u64, u64), thinned: bool) -> Vec<(Mechanism, Option<Culprit>, u64)> {
        let (a, b) = (&["decode.so!run"], &["libjpeg.so!idct"]);
        let trace = trace().samples(FEEDER, 0, 500 * MS, a).samples(FEEDER, 500 * MS, 1000 * MS, b);
        let mut records = trace.records();
        if thinned {
            let first = |s: &Sample| s.at == 0 || s.at == 500 * MS;
            records.retain(|r| !matches!(r, Record::Sample(s) if s.thread == key(FEEDER) && !first(s)));
            for record in &mut records {
                if let Record::Sample(sample) = record {
                    sample.periods = 49;
                }
            }
        }
        let timeline = build(records);
        let ledger = attribute(&timeline, &idle(&timeline, FEEDER, &[gap]));
        ledger.causes.into_iter().map(|c| (c.mechanism, c.culprit, c.ns)).collect()
    }

    #[test]
    fn a_sample_of_many_periods_tells_as_much_as_many_samples() {
        for gap in [(100 * MS, 200 * MS), (450 * MS, 550 * MS), (700 * MS, 710 * MS), (3 * MS, 987 * MS)] {
            let all = parts(gap, false);
            assert!(all.iter().all(|(mechanism, ..)| *mechanism == Mechanism::PrepareCompute), "{all:?}");
            assert_eq!(parts(gap, true), all, "{gap:?}");
        }
    }
}
