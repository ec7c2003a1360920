//! Which driver call a thread was inside, and when.

use super::context::Context;
use crate::timeline::{Activity, Thread};
use crate::trace::{CopyDirection, CudaCall, CudaFamily, Ns, Span};

/// Calls of one thread nest, but not deeply: looking further back than this for one still open is pointless.
const NESTING: usize = 16;

/// A launch that takes this long while the device is idle does not queue.
const SLOW_LAUNCH: u64 = 1_000_000;

/// Cuts `span` where the thread entered or left a driver call; each part has the call it lies in. Of nested
/// calls the outermost one that loads, allocates or frees counts, else the outermost.
pub(crate) fn cut(thread: &Thread, span: Span) -> Vec<(Span, Option<&CudaCall>)> {
    let calls = overlapping(thread, span);
    if calls.is_empty() {
        return vec![(span, None)];
    }
    let mut edges: Vec<Ns> = calls
        .iter()
        .flat_map(|c| [Some(c.entry), c.returned()])
        .flatten()
        .filter(|&at| span.start < at && at < span.end)
        .chain([span.start, span.end])
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
        .windows(2)
        .map(|edge| {
            let part = Span::new(edge[0], edge[1]);
            let inside =
                calls.iter().filter(|c| c.entry <= part.start && c.returned().is_some_and(|x| x >= part.end));
            (part, inside.min_by_key(|c| (!claims(c.family), c.entry)).copied())
        })
        .collect()
}

fn claims(family: CudaFamily) -> bool {
    matches!(family, CudaFamily::Allocate | CudaFamily::Free | CudaFamily::HostAllocate | CudaFamily::Load)
}

fn overlapping(thread: &Thread, span: Span) -> Vec<&CudaCall> {
    let before = thread.calls.partition_point(|c| c.entry < span.end);
    let mut finished = 0;
    let mut found = Vec::new();
    for call in thread.calls[..before].iter().rev() {
        match call.returned() {
            Some(exit) if exit > span.start => found.push(call),
            _ => finished += 1,
        }
        if finished > NESTING {
            break;
        }
    }
    found.reverse();
    found
}

/// A call in which the host waits for the device: a synchronise, or a blocking copy back to the host.
pub(crate) fn synchronises(call: &CudaCall) -> bool {
    call.family == CudaFamily::Synchronize
        || (call.family == CudaFamily::Copy && copies_back(call) && blocks(call))
}

pub(crate) fn copies_back(call: &CudaCall) -> bool {
    call.direction == Some(CopyDirection::DeviceToHost) || call.name.contains("DtoH")
}

/// A launch that has to load or compile before it can queue: long by its own doing, not for want of a
/// processor, and of a function not launched before.
pub(crate) fn loads(context: &Context<'_>, thread: &Thread, call: &CudaCall) -> bool {
    is_long_launch(thread, call) && !context.launched_before(call)
}

pub(crate) fn is_long_launch(thread: &Thread, call: &CudaCall) -> bool {
    let launch = matches!(call.family, CudaFamily::Launch | CudaFamily::GraphLaunch);
    let Some(exit) = call.returned().filter(|_| launch && call.own_ns() >= Some(SLOW_LAUNCH)) else {
        return false;
    };
    let own = thread.slices_in(Span::new(call.entry, exit)).map(|slice| match slice.activity {
        Activity::Running => {
            let shorts = thread.shorts(slice.span);
            slice.span.len().saturating_sub(shorts.runnable_ns)
        }
        Activity::Blocked(_) | Activity::Unseen => slice.span.len(),
        Activity::Runnable(_) => 0,
    });
    own.sum::<u64>() >= SLOW_LAUNCH
}

/// What waits in the device's queue when a thread begins to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    Nothing,
    Kernels,
    Copies,
    /// With the bytes of the copies.
    Both(u64),
}

/// What the process submitted from the thread's last synchronise on up to `call`. Other threads' synchronising
/// may be of other streams.
pub(crate) fn queued(context: &Context<'_>, thread: &Thread, call: &CudaCall) -> Queued {
    let before = thread.calls.partition_point(|c| c.entry < call.entry);
    let returned = |c: &CudaCall| c.exit.filter(|&exit| synchronises(c) && exit <= call.entry);
    let since = thread.calls[..before].iter().rev().take(256).find_map(returned).unwrap_or(0);
    let (mut kernels, mut copies, mut bytes) = (false, false, 0_u64);
    for thread in context.process(thread.pid).iter().filter_map(|&key| context.thread(key)) {
        let before = thread.submits.partition_point(|s| s.first <= call.entry);
        for run in thread.submits[..before].iter().rev().take_while(|s| s.last >= since) {
            kernels |= run.launches.max(run.graph_launches).max(run.memsets) > 0;
            copies |= run.copies > 0;
            let copied = run.groups.iter().filter(|g| g.direction.is_some());
            bytes = copied.fold(bytes, |sum, g| sum.saturating_add(g.bytes));
        }
        let from = thread.calls.partition_point(|c| c.entry < since);
        let between = thread.calls[from..].iter().take_while(|c| c.entry < call.entry);
        for copy in between.filter(|c| c.family == CudaFamily::Copy && !blocks(c)) {
            copies = true;
            bytes = bytes.saturating_add(copy.bytes);
        }
    }
    match (kernels, copies) {
        (false, false) => Queued::Nothing,
        (true, false) => Queued::Kernels,
        (false, true) => Queued::Copies,
        (true, true) => Queued::Both(bytes),
    }
}

pub(crate) fn blocks(call: &CudaCall) -> bool {
    !call.name.contains("Async")
}

/// Whether the thread was inside a synchronising call at `at`.
pub(crate) fn waits_for_device(thread: &Thread, at: Ns) -> bool {
    let before = thread.calls.partition_point(|c| c.entry <= at);
    let near = thread.calls[..before].iter().rev().take(NESTING);
    near.filter(|c| synchronises(c)).any(|c| c.returned().is_some_and(|x| at < x))
}

/// The last synchronising call of the thread that returned in `span`.
pub(crate) fn last_synchronise(thread: &Thread, span: Span) -> Option<(&CudaCall, Ns)> {
    let before = thread.calls.partition_point(|c| c.entry < span.end);
    thread.calls[..before]
        .iter()
        .rev()
        .take(256)
        .filter(|c| synchronises(c))
        .filter_map(|c| Some((c, c.returned().filter(|&x| span.start <= x && x <= span.end)?)))
        .max_by_key(|&(_, exit)| exit)
}
