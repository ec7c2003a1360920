//! The item a thread was working on when it ended another's wait.
//!
//! A worker that delivers late was late over its whole item, not only over the part that overlaps the wait.

use super::claims::is_lock;
use super::classify::classify;
use super::context::Context;
use super::waits::{last_piece, same_object};
use crate::timeline::{GivenWait, Thread};
use crate::trace::{Ns, OffCpu, Span, State, ThreadKey, WakerContext};

/// How far back a chain looks.
pub(crate) const LOOK_BACK: u64 = 60_000_000_000;

/// Where an item starts, and what set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub span: Span,
    /// Nothing nearer than the look-back bounds it.
    pub beyond: bool,
}

/// The item that `giver` ended when it ended the wait whose last piece is `successor.off_cpu[last]`. `waited`
/// is where the stretch looked at begins; `nearer` are the threads nearer the device, the successor included.
pub(crate) fn item(
    context: &Context<'_>,
    giver: &Thread,
    successor: &Thread,
    last: usize,
    waited: Ns,
    nearer: &[ThreadKey],
) -> Item {
    let Some(wait) = successor.off_cpu.get(last) else {
        return Item { span: Span::default(), beyond: false };
    };
    let end = wait.woken.unwrap_or(wait.ran);
    let floor = end.saturating_sub(LOOK_BACK);
    let mut start = floor.max(context.timeline.span.start);
    if let Some(at) = last_delivery(giver, successor, last, wait, end, start) {
        start = start.max(at);
    }
    if let Some(at) = last_request(context, giver, nearer, end, start) {
        start = start.max(at);
    }
    if let Some(born) = giver.born.filter(|&b| b > start && b < end) {
        // Before its birth the creator worked for the same wait.
        start = if waited < born { waited.max(start) } else { born };
    }
    let beyond = start == floor && floor > 0;
    Item { span: Span::new(start.min(end.saturating_sub(1)), end), beyond }
}

/// The last earlier wake-up of the successor by this thread on the same object.
fn last_delivery(
    giver: &Thread,
    successor: &Thread,
    last: usize,
    wait: &OffCpu,
    end: Ns,
    start: Ns,
) -> Option<Ns> {
    let group = successor.merged_wait(last).map_or(&[][..], |m| &m.members);
    let before = giver.given.partition_point(|g| g.at < end);
    giver.given[..before]
        .iter()
        .rev()
        .take_while(|g| g.at > start)
        .filter(|g| g.wakee == successor.key)
        .find(|g| match g.wait {
            GivenWait::OffCpu(i) => {
                i != last
                    && group.binary_search(&i).is_err()
                    && successor.off_cpu.get(i).is_some_and(|o| same_object(o, wait))
            }
            GivenWait::Total(i) => successor.totals.get(i).is_some_and(|t| {
                wait.syscall.as_ref().is_some_and(|c| c.nr == t.syscall && c.args[0] == t.arg0)
            }),
        })
        .map(|g| g.at)
}

/// The end of the giver's last wait that a thread nearer the device ended. Locks are no requests: who releases
/// one asks for nothing.
fn last_request(
    context: &Context<'_>,
    giver: &Thread,
    nearer: &[ThreadKey],
    end: Ns,
    start: Ns,
) -> Option<Ns> {
    let before = giver.off_cpu.partition_point(|o| o.left < end);
    giver.off_cpu[..before]
        .iter()
        .enumerate()
        .rev()
        .take_while(|(_, o)| o.ran > start)
        .filter(|(_, o)| !matches!(o.state, State::Preempted | State::Yielded))
        .filter_map(|(i, o)| Some((i, o, o.woken.filter(|&w| w <= end)?)))
        .find(|&(i, o, _)| {
            let waker = giver.off_cpu[last_piece(giver, i)].waker.as_ref();
            waker.is_some_and(|w| {
                w.context != WakerContext::Interrupt && w.thread.is_some_and(|k| nearer.contains(&k))
            }) && !is_lock(context, giver, o, classify(context, o))
        })
        .map(|(_, _, woken)| woken)
}
