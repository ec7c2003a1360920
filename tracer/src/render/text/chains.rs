//! The largest wait chains of a device, from the device down to the leaf.

use std::cmp::Reverse;

use crate::cause::{Cause, Link};
use crate::finding::{Gpu, Report};
use crate::render::figure::{count, grouped, share, time};
use crate::render::page::{Ink, Page};
use crate::render::word;

const CHAINS: usize = 3;
/// Devices whose chains are drawn, those with the most idle time.
const DEVICES: usize = 4;
/// Links drawn of one chain: the outer ones and the last.
const LINKS: usize = 10;
/// Frames told of the leaf and of a link before it.
const FRAMES: (usize, usize) = (8, 2);

pub(super) fn write(page: &mut Page, report: &Report) {
    let mut gpus: Vec<&Gpu> =
        report.gpus.iter().filter(|g| g.causes.iter().any(|c| !c.chain.is_empty())).collect();
    gpus.sort_by_key(|g| Reverse(g.idle_ns));
    for gpu in gpus.iter().take(DEVICES) {
        page.heading(&format!("LARGEST WAIT CHAINS of GPU {}, from the device down", gpu.index));
        let mut causes: Vec<&Cause> = gpu.causes.iter().filter(|c| !c.chain.is_empty()).collect();
        causes.sort_by_key(|c| Reverse(c.ns));
        for (i, cause) in causes.iter().take(CHAINS).enumerate() {
            one(page, gpu, i + 1, cause);
        }
    }
    if gpus.len() > DEVICES {
        let text = format!("Chains of {}: see --gpu N.", count((gpus.len() - DEVICES) as u64, "more GPU"));
        page.blank();
        page.paragraph("", Ink::Faint, &text);
    }
}

fn one(page: &mut Page, gpu: &Gpu, number: usize, cause: &Cause) {
    if number > 1 {
        page.blank();
    }
    let (name, gloss) = word::mechanism(cause.mechanism);
    let (number, gloss) = (format!("  {number}. "), format!(" ({gloss})"));
    let leaf = if cause.leaf == cause.mechanism {
        String::new()
    } else {
        let (name, gloss) = word::mechanism(cause.leaf);
        format!(", ending in {name} ({gloss})")
    };
    let ink = Ink::Stage(cause.stage);
    page.line(&[(Ink::Plain, &number), (ink, name), (Ink::Faint, &gloss), (Ink::Plain, &leaf)]);
    let figures = format!(
        "{}, {} of the window, in {}; gain {}",
        time(cause.ns),
        share(cause.ns, gpu.window_ns),
        count(cause.count, "gap"),
        time(cause.gain_ns)
    );
    page.paragraph("     ", Ink::Plain, &figures);
    if let Some(culprit) = &cause.culprit {
        let (kind, _) = word::culprit(culprit);
        let name = page.name(&culprit.name, page.columns - 20);
        page.paragraph("     ", Ink::Plain, &format!("{kind}: {name}"));
    }
    page.line(&[(Ink::Strong, &format!("     GPU {} idle", gpu.index))]);
    let links = cause.chain.len();
    let outer = if links > LINKS { LINKS - 1 } else { links.saturating_sub(1) };
    for (depth, link) in cause.chain.iter().take(outer).enumerate() {
        draw(page, depth, link, FRAMES.1);
    }
    if links > LINKS {
        let left_out = count((links - LINKS) as u64, "link");
        page.line(&[(Ink::Faint, &format!("{}... {left_out} left out ...", indent(outer)))]);
    }
    if let Some(leaf) = cause.chain.last() {
        draw(page, outer, leaf, FRAMES.0);
    }
    if let Some(note) = &cause.note {
        let note = page.safe(note).into_owned();
        page.paragraph("     Note: ", Ink::Faint, &note);
    }
}

fn indent(depth: usize) -> String {
    " ".repeat(5 + 3 * depth)
}

fn draw(page: &mut Page, depth: usize, link: &Link, frames: usize) {
    let branch = if page.style.unicode { "└─ " } else { "`- " };
    let who = if link.comm.is_empty() { "unnamed".to_owned() } else { page.name(&link.comm, 24) };
    let thread = match (link.tid, link.pid) {
        (0, 0) => "no thread".to_owned(),
        (tid, pid) if tid == pid || tid == 0 => format!("pid {pid}"),
        (tid, 0) => format!("thread {tid}"),
        (tid, pid) => format!("thread {tid} of pid {pid}"),
    };
    let (state, what) = (page.name(&link.state, 24), page.safe(&link.what).into_owned());
    let lead = format!("{}{branch}", indent(depth));
    let text = format!("{who} ({thread}) {state}: {what}");
    page.paragraph(&lead, Ink::Plain, &text);
    let below = indent(depth + 1);
    if let Some(detail) = &link.detail {
        let detail = page.safe(detail).into_owned();
        page.paragraph(&below, Ink::Plain, &detail);
    }
    if !link.stack.is_empty() {
        let arrow = if page.style.unicode { " ← " } else { " < " };
        let shown: Vec<String> = link.stack.iter().take(frames).map(|f| page.name(f, 60)).collect();
        let more = link.stack.len().saturating_sub(frames);
        let more = if more > 0 { format!(" (+{})", grouped(more as u64)) } else { String::new() };
        page.paragraph(&format!("{below}in "), Ink::Faint, &format!("{}{more}", shown.join(arrow)));
    }
}
