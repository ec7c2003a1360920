//! What the watched threads did, from the timeline alone: waits and samples.

use super::{Flame, Kind, frame};
use crate::timeline::{Activity, NamedFrame, Thread, Timeline};
use crate::trace::{StackId, TargetKind};

/// Blocked time: `comm`, user frames from the outermost, kernel frames. Stays shorter than the recording's
/// threshold have no stack and stand under `[waits under the threshold]`.
#[must_use]
pub fn offcpu(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::OffCpu, timeline);
    for thread in targets(timeline) {
        for slice in &thread.slices {
            if let Activity::Blocked(index) = slice.activity
                && let Some(wait) = thread.off_cpu.get(index)
            {
                add(&mut flame, timeline, thread, (wait.user_stack, wait.kernel_stack), slice.span.len());
            }
        }
        let short = thread.totals.iter().fold(0, |sum: u64, t| sum.saturating_add(t.blocked_ns));
        let stack = vec![frame::safe(&thread.comm), "[waits under the threshold]".to_owned()];
        flame.add(stack, None, short);
    }
    flame
}

/// Processor time: `comm`, user frames from the outermost, kernel frames; each sample weighs one period.
#[must_use]
pub fn oncpu(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::OnCpu, timeline);
    for thread in targets(timeline) {
        for sample in &thread.samples {
            let stacks = (sample.user_stack, sample.kernel_stack);
            add(&mut flame, timeline, thread, stacks, timeline.host.sample_period_ns);
        }
    }
    flame
}

fn new(kind: Kind, timeline: &Timeline) -> Flame {
    let lost = timeline.losses.iter().fold(0, |sum: u64, l| sum.saturating_add(l.count));
    Flame::new(kind, timeline.span.len(), lost)
}

fn targets(timeline: &Timeline) -> impl Iterator<Item = &Thread> {
    timeline.threads.values().filter(|t| t.kind != TargetKind::Bystander)
}

fn add(flame: &mut Flame, timeline: &Timeline, thread: &Thread, (user, kernel): (StackId, StackId), ns: u64) {
    let user = timeline.frames(user);
    let kernel = timeline.frames(kernel);
    let mut stack = vec![frame::safe(&thread.comm)];
    stack.extend(user.iter().rev().map(|f| frame::function(f, false)));
    stack.extend(kernel.iter().rev().map(|f| frame::function(f, true)));
    if stack.len() == 1 {
        stack.push("[no stack]".to_owned());
    }
    let all = || user.iter().chain(&kernel);
    // A kernel thread has no user side to miss.
    let whole = (thread.kernel_thread || !user.is_empty()) && all().next().is_some();
    flame.judge(whole && all().all(|f: &NamedFrame| f.resolved), ns);
    flame.add(stack, None, ns);
}
