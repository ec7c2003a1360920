//! What a thread on the processor was doing: by its samples.

use std::collections::BTreeMap;

use super::context::Context;
use super::kernel_stacks::{self, Busy};
use super::user_stacks::{self, Work};
use super::{Culprit, CulpritKind, Mechanism, calls};
use crate::timeline::{Thread, apportion};
use crate::trace::{Sample, Span, StackId};

/// How far beside a stretch without a sample the thread's other samples still speak for it.
const NEARBY: u64 = 1_000_000_000;

/// One kind of work in a stretch.
pub(crate) struct Share {
    pub work: Work,
    pub ns: u64,
    /// Kernel and user stack of its first sample.
    pub stacks: (StackId, StackId),
}

/// Splits `ns` of running time in `span` over what the samples show. Empty: nothing shows.
pub(crate) fn shares(context: &Context<'_>, thread: &Thread, span: Span, ns: u64) -> Vec<Share> {
    let mut counted = count(context, within(thread, span).iter());
    if counted.is_empty() {
        let around = Span::new(span.start.saturating_sub(NEARBY), span.end.saturating_add(NEARBY));
        // Spinning for the device says nothing of work.
        counted =
            count(context, within(thread, around).iter().filter(|s| !calls::waits_for_device(thread, s.at)));
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

fn within(thread: &Thread, span: Span) -> &[Sample] {
    let from = thread.samples.partition_point(|s| s.at < span.start);
    let to = thread.samples.partition_point(|s| s.at < span.end);
    &thread.samples[from..to.max(from)]
}

/// How many samples by label, and the stacks of each one's first.
fn count<'s>(
    context: &Context<'_>,
    samples: impl Iterator<Item = &'s Sample>,
) -> BTreeMap<usize, (u64, (StackId, StackId))> {
    let mut counted = BTreeMap::new();
    for sample in samples {
        if let Some(label) = context.label_of(sample.kernel_stack, sample.user_stack) {
            counted.entry(label).or_insert((0, (sample.kernel_stack, sample.user_stack))).0 += 1;
        }
    }
    counted
}

/// Labels one sample; `None` if it carries no stack at all.
pub(crate) fn label(context: &Context<'_>, kernel_stack: StackId, user_stack: StackId) -> Option<Work> {
    let kernel = context.frames(kernel_stack);
    let user = user_stacks::work(&context.frames(user_stack));
    let busy = kernel_stacks::busy(&kernel).map(|busy| match busy {
        Busy::Swap => Mechanism::MemorySwap,
        Busy::Reclaim => Mechanism::MemoryReclaim,
        Busy::FaultZeroing => Mechanism::MemoryFault,
    });
    if let Some(mechanism) = busy {
        let (culprit, importing) = user.map_or((None, false), |u| (u.culprit, u.importing));
        return Some(Work { mechanism, culprit, importing });
    }
    user.or_else(|| {
        let frame = kernel.iter().find(|f| f.resolved)?;
        let culprit = Culprit { kind: CulpritKind::Function, name: format!("{} ([kernel])", frame.name) };
        Some(Work { mechanism: Mechanism::PrepareCompute, culprit: Some(culprit), importing: false })
    })
}
