//! The item a thread was working on when it ended another's wait.
//!
//! A worker that delivers late was late over its whole item, not only over the part that overlaps the wait.

use super::claims::is_lock;
use super::classify::classify;
use super::context::Context;
use super::kernel_stacks::Sleep;
use super::waits::{by_signal, last_piece, same_object};
use crate::timeline::{GivenWait, Thread};
use crate::trace::{Ns, OffCpu, Span, State, ThreadKey, WakerContext};

/// How far back a chain looks.
pub(crate) const LOOK_BACK: u64 = 60_000_000_000;

/// Wake-ups of one thread searched for the last delivery on the same object.
const SEARCHED: usize = 4_096;

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
    // The request first: what lies before it need not be searched for deliveries.
    if let Some(at) = last_request(context, giver, nearer, end, start) {
        start = start.max(at);
    }
    if let Some(at) = last_delivery(giver, successor, last, wait, end, start) {
        start = start.max(at);
    }
    if let Some(at) = acquired(context, giver, successor, wait, end, start) {
        start = start.max(at);
    }
    if let Some(born) = giver.born.filter(|&b| b > start && b < end) {
        // Before its birth the creator worked for the same wait.
        start = if waited < born { waited.max(start) } else { born };
    }
    let beyond = start == floor && floor > 0;
    Item { span: Span::new(start.min(end.saturating_sub(1)), end), beyond }
}

/// Of a wait for a lock: when the giver last had to wait for the same one. It held it since.
fn acquired(
    context: &Context<'_>,
    giver: &Thread,
    successor: &Thread,
    wait: &OffCpu,
    end: Ns,
    start: Ns,
) -> Option<Ns> {
    let class = classify(context, wait);
    if !is_lock(context, successor, wait, class) {
        return None;
    }
    let before = giver.off_cpu.partition_point(|o| o.left < end);
    let earlier = giver.off_cpu[..before].iter().rev().take(SEARCHED).take_while(|o| o.ran > start);
    let same = |off: &OffCpu| {
        let its_class = classify(context, off);
        its_class == class
            && (class == Some(Sleep::KernelLock) || same_object(off, wait))
            && is_lock(context, giver, off, its_class)
    };
    earlier
        .filter_map(|off| Some((off.woken.filter(|&woken| woken <= end)?, off)))
        .find(|(_, off)| same(off))
        .map(|w| w.0)
}

/// The last earlier wake-up of the successor by this thread on the same object; where there is none, on any
/// (CPython's condition variables wait on a new lock each time).
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
    let mut on_another = None;
    let earlier = giver.given[..before].iter().rev().take(SEARCHED).take_while(|g| g.at > start);
    for given in earlier.filter(|g| g.wakee == successor.key) {
        let same = match given.wait {
            GivenWait::OffCpu(i) if i == last || group.binary_search(&i).is_ok() => continue,
            GivenWait::OffCpu(i) => successor.off_cpu.get(i).is_some_and(|o| same_object(o, wait)),
            GivenWait::Total(i) => successor.totals.get(i).is_some_and(|t| {
                wait.syscall.as_ref().is_some_and(|c| c.nr == t.syscall && c.args[0] == t.arg0)
            }),
        };
        if same {
            return Some(given.at);
        }
        if matches!(given.wait, GivenWait::OffCpu(_)) {
            on_another = on_another.or(Some(given.at));
        }
    }
    on_another
}

/// The end of the giver's last wait that a thread nearer the device ended, itself or through a thread that only
/// passed the request on; or that a signal cut short, before the request had come.
fn last_request(
    context: &Context<'_>,
    giver: &Thread,
    nearer: &[ThreadKey],
    end: Ns,
    start: Ns,
) -> Option<Ns> {
    ended_waits(context, giver, end, start)
        .take_while(|wait| wait.woken > start)
        .find(|wait| wait.signal || nearer.contains(&wait.by) || relayed(context, giver, wait, nearer))
        .map(|wait| wait.woken)
}

/// A wait of a thread that another thread ended.
struct Ended {
    left: Ns,
    woken: Ns,
    by: ThreadKey,
    /// By a signal: it waited for something that had not come.
    signal: bool,
}

/// The thread's waits that other threads ended up to `end` and after `floor`, the last one first. Locks are left out:
/// who releases one asks for nothing.
fn ended_waits<'t>(
    context: &'t Context<'_>,
    thread: &'t Thread,
    end: Ns,
    floor: Ns,
) -> impl Iterator<Item = Ended> + 't {
    let before = thread.off_cpu.partition_point(|o| o.left < end);
    thread.off_cpu[..before]
        .iter()
        .enumerate()
        .rev()
        // Those that interrupts ended are looked at too, so the search must end by itself.
        .take(SEARCHED)
        .take_while(move |(_, o)| o.ran > floor)
        .filter(|(_, o)| !matches!(o.state, State::Preempted | State::Yielded))
        .filter_map(move |(i, off)| {
            let woken = off.woken.filter(|&w| w <= end)?;
            let last = &thread.off_cpu[last_piece(thread, i)];
            let waker = last.waker.as_ref()?;
            let by = waker.thread.filter(|_| waker.context != WakerContext::Interrupt)?;
            (!is_lock(context, thread, off, classify(context, off))).then_some(Ended {
                left: off.left,
                woken,
                by,
                signal: off.state != State::Stopped && by_signal(last),
            })
        })
}

/// Of a wait, who ended it may have held the request this part at most, to count as having passed it on.
const RELAY_SHARE: u64 = 10;

/// Whether the thread that ended `wait` had itself just been woken by one nearer the device: the writer thread
/// behind a queue between processes.
fn relayed(context: &Context<'_>, giver: &Thread, wait: &Ended, nearer: &[ThreadKey]) -> bool {
    let Some(relay) = context.recorded(wait.by).filter(|r| r.key != giver.key) else { return false };
    let least = wait.woken.saturating_sub(wait.woken.saturating_sub(wait.left) / RELAY_SHARE);
    let asked = ended_waits(context, relay, wait.woken, least).next();
    asked.is_some_and(|asked| nearer.contains(&asked.by) && asked.woken > least)
}
