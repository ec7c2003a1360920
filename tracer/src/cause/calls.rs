//! Which driver call a thread was inside, and when.

use crate::timeline::Thread;
use crate::trace::{CudaCall, CudaFamily, Ns, Span};

/// Calls of one thread nest, but not deeply: looking further back than this for one still open is pointless.
const NESTING: usize = 16;

/// A launch that takes this long while the device is idle does not queue: it loads or compiles.
pub(crate) const SLOW_LAUNCH: u64 = 1_000_000;

/// Cuts `span` where the thread entered or left a driver call; each part has the call it lies in. Of nested
/// calls the outermost one that loads, allocates or frees counts, else the outermost.
pub(crate) fn cut(thread: &Thread, span: Span) -> Vec<(Span, Option<&CudaCall>)> {
    let calls = overlapping(thread, span);
    if calls.is_empty() {
        return vec![(span, None)];
    }
    let mut edges: Vec<Ns> = calls
        .iter()
        .flat_map(|c| [Some(c.entry), c.exit])
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
                calls.iter().filter(|c| c.entry <= part.start && c.exit.is_some_and(|x| x >= part.end));
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
        match call.exit {
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
    call.name.contains("DtoH")
}

pub(crate) fn blocks(call: &CudaCall) -> bool {
    !call.name.contains("Async")
}

/// Whether the thread was inside a synchronising call at `at`.
pub(crate) fn waits_for_device(thread: &Thread, at: Ns) -> bool {
    let before = thread.calls.partition_point(|c| c.entry <= at);
    let near = thread.calls[..before].iter().rev().take(NESTING);
    near.filter(|c| synchronises(c)).any(|c| c.exit.is_some_and(|x| at < x))
}

/// The last synchronising call of the thread that returned in `span`.
pub(crate) fn last_synchronise(thread: &Thread, span: Span) -> Option<(&CudaCall, Ns)> {
    let before = thread.calls.partition_point(|c| c.entry < span.end);
    thread.calls[..before]
        .iter()
        .rev()
        .take(256)
        .filter(|c| synchronises(c))
        .filter_map(|c| Some((c, c.exit.filter(|&x| span.start <= x && x <= span.end)?)))
        .max_by_key(|&(_, exit)| exit)
}
