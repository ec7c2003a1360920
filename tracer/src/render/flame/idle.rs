//! Idle GPU time by wait chain.

use super::{Flame, Kind, frame};
use crate::cause::{Cause, Link, Mechanism};
use crate::finding::Report;
use crate::render::word;

/// From the report's causes: `GPU 0 idle`, then `comm: what` per link, then the leaf's functions from the
/// outermost to the innermost, then `[mechanism]`. Widths sum to the devices' idle time.
#[must_use]
pub fn idle(report: &Report) -> Flame {
    let window = report.gpus.iter().map(|g| g.window_ns).max().unwrap_or(0);
    let lost = report.losses.iter().fold(0, |sum: u64, l| sum.saturating_add(l.count));
    let mut flame = Flame::new(Kind::Idle, window, lost);
    for gpu in &report.gpus {
        for cause in &gpu.causes {
            let mut stack = vec![device(gpu.index)];
            stack.extend(cause.chain.iter().zip(1..).map(|(l, next)| link(l, cause.chain.get(next))));
            if let Some(leaf) = cause.chain.last() {
                stack.extend(leaf.stack.iter().rev().map(|f| frame::safe(f)));
            }
            stack.push(tip(cause));
            flame.add(stack, Some(cause.stage), cause.ns);
            if let Some(leaf) = cause.chain.last()
                && (!leaf.stack.is_empty()
                    || ["running", "blocked"].iter().any(|s| leaf.state.starts_with(s)))
            {
                // What is missing of it stands there in brackets.
                let complete = leaf.stack.last().is_some_and(|outermost| !outermost.starts_with('['));
                flame.judge(complete, cause.ns);
            }
        }
    }
    flame
}

fn device(index: u32) -> String {
    format!("GPU {index} idle")
}

/// Whether `frame` is a device's own.
pub(super) fn is_device(frame: &str) -> bool {
    frame.strip_prefix("GPU ").and_then(|f| f.strip_suffix(" idle")).is_some_and(|n| n.parse::<u32>().is_ok())
}

/// `comm: what`. The id of the thread waited for is left out: it would part the workers of one pool.
fn link(link: &Link, next: Option<&Link>) -> String {
    let what = match next {
        Some(next) => link.what.replace(&format!("{} {}", next.comm, next.tid), &next.comm),
        None => link.what.clone(),
    };
    frame::safe(&if link.comm.is_empty() { what } else { format!("{}: {what}", link.comm) })
}

fn tip(cause: &Cause) -> String {
    let (name, _) = word::mechanism(cause.mechanism);
    match &cause.note {
        Some(note) if cause.mechanism == Mechanism::Unexplained => frame::safe(&format!("[{name}: {note}]")),
        _ => format!("[{name}]"),
    }
}
