//! Teams of threads that meet at a barrier, and spin there until the last of them has come.

use std::cmp::Reverse;

use super::context::Context;
use super::running;
use crate::timeline::{Activity, Thread};
use crate::trace::{OffCpu, Span, ThreadKey};

/// Who of `thread`'s team came last: the member that worked, wanted to, or waited for something else than the team, for
/// the longest of `span`.
pub(crate) fn last_to_come(context: &Context<'_>, thread: &Thread, span: Span) -> Option<ThreadKey> {
    let team = context.team(thread.pid);
    let members = team.iter().filter(|&&k| k != thread.key);
    members
        .filter_map(|&k| context.recorded(k))
        .map(|member| (away(context, member, span), Reverse(member.key)))
        .max()
        .filter(|&(away, _)| away > 0)
        .map(|(_, Reverse(key))| key)
}

/// Whether a thread was ever sampled in a team.
pub(crate) fn is_member(context: &Context<'_>, thread: &Thread) -> bool {
    thread.samples.iter().any(|s| {
        let label = context.label_of(s.kernel_stack, s.user_stack);
        label.and_then(|l| context.label(l)).is_some_and(|work| work.pooled)
    })
}

/// How long of `span` a member was not at the barrier.
fn away(context: &Context<'_>, member: &Thread, span: Span) -> u64 {
    let of = |slice: crate::timeline::Slice| match slice.activity {
        Activity::Runnable(_) => slice.span.len(),
        Activity::Running => slice.span.len() - spinning(context, member, slice.span, slice.span.len()),
        Activity::Blocked(i) if member.off_cpu.get(i).is_some_and(|off| !at_barrier(context, off)) => {
            slice.span.len()
        }
        Activity::Blocked(_) | Activity::Unseen => 0,
    };
    member.slices_in(span).map(of).sum()
}

/// Asleep for its team, having spun long enough.
fn at_barrier(context: &Context<'_>, off: &OffCpu) -> bool {
    let spins = || running::label(context, 0, off.user_stack).is_some_and(|work| work.spins);
    context.verdicts.at_barrier(off.user_stack, spins)
}

/// How much of `ns` of running in `span` a thread spun.
pub(crate) fn spinning(context: &Context<'_>, thread: &Thread, span: Span, ns: u64) -> u64 {
    let shares = running::shares(context, thread, span, ns);
    shares.iter().filter(|s| s.work.spins).map(|s| s.ns).sum()
}
