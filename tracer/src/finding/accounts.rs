//! Evidence from running accounts: memory, driver commands, file reads.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::counted;
use crate::cause::{nvidia_command, seconds};
use crate::timeline::{Timeline, total, union};
use crate::trace::{FileId, NvidiaIoctl, ReclaimKind, Span};

/// Major, command, inner command.
type Number = (u32, u32, Option<u32>);

/// Driver commands that are told.
const COMMANDS: usize = 5;

/// What threads did themselves to get memory, and how often processes faulted. `concerns` tells whose.
pub(super) fn memory(timeline: &Timeline, window: Span, concerns: &dyn Fn(u32) -> bool) -> Vec<String> {
    #[derive(Default)]
    struct Work {
        count: u64,
        ns: u64,
        pages: u64,
    }
    let mut by: BTreeMap<ReclaimKind, Work> = BTreeMap::new();
    let threads = timeline.threads.values().filter(|t| concerns(t.pid));
    for reclaim in threads.flat_map(|t| &t.reclaims).filter(|r| r.span.intersect(window).is_some()) {
        let work = by.entry(reclaim.kind).or_default();
        work.count = work.count.saturating_add(reclaim.count.max(1));
        work.ns = work.ns.saturating_add(reclaim.ns);
        work.pages = work.pages.saturating_add(reclaim.pages);
    }
    let mut lines: Vec<String> = by
        .iter()
        .map(|(kind, work)| {
            let what = match kind {
                ReclaimKind::Direct => "freed memory themselves, as the host had none",
                ReclaimKind::Cgroup => "freed memory themselves, at their control group's limit",
                ReclaimKind::Compaction => "compacted memory",
                ReclaimKind::SwapIn => "read pages back from swap",
            };
            let pages = if work.pages > 0 { format!(", {} pages in all", work.pages) } else { String::new() };
            format!("Threads {what} {} times, {} in all{pages}.", work.count, seconds(work.ns))
        })
        .collect();
    lines.extend(faults(timeline, window, concerns));
    lines
}

/// How often processes faulted.
pub(super) fn faults(timeline: &Timeline, window: Span, concerns: &dyn Fn(u32) -> bool) -> Option<String> {
    let faults = timeline.fault_totals.iter().filter(|f| concerns(f.pid) && overlaps(f.span, window));
    let (mut minor, mut major, mut spans) = (0_u64, 0_u64, Vec::new());
    for fault in faults {
        minor = minor.saturating_add(fault.minor);
        major = major.saturating_add(fault.major);
        spans.push(fault.span);
    }
    let watched = total(&union(spans));
    (minor.max(major) > 0 && watched > 0).then(|| {
        format!(
            "Page faults: {:.0} minor and {:.1} major (that waited for a file or for swap) a second.",
            rate(minor, watched),
            rate(major, watched)
        )
    })
}

/// The driver commands that took longest.
pub(super) fn ioctls(timeline: &Timeline, window: Span, concerns: &dyn Fn(u32) -> bool) -> Vec<String> {
    #[derive(Default)]
    struct Sum {
        count: u64,
        ns: u64,
        longest_ns: u64,
    }
    let mut by: BTreeMap<Number, Sum> = BTreeMap::new();
    let mut spans = Vec::new();
    for total in timeline.ioctls.iter().filter(|i| concerns(i.pid) && overlaps(i.span, window)) {
        let sum = by.entry((total.major, total.ioctl.command, total.ioctl.inner)).or_default();
        sum.count = sum.count.saturating_add(total.count);
        sum.ns = sum.ns.saturating_add(total.ns);
        sum.longest_ns = sum.longest_ns.max(total.longest_ns);
        spans.push(total.span);
    }
    let mut told: Vec<_> = by.into_iter().collect();
    told.sort_by_key(|(key, sum)| (std::cmp::Reverse((sum.ns, sum.count)), *key));
    let watched = part_watched(spans, window);
    let commands = told.len();
    let mut lines: Vec<String> = told
        .into_iter()
        .take(COMMANDS)
        .map(|((major, command, inner), sum)| {
            format!(
                "Driver command {}: {} calls, {} in all, {} at most{watched}.",
                nvidia_command(Some(major), NvidiaIoctl { command, inner }),
                sum.count,
                seconds(sum.ns),
                seconds(sum.longest_ns)
            )
        })
        .collect();
    if commands > COMMANDS {
        lines.push(format!("And {} driver commands that took less.", commands - COMMANDS));
    }
    lines
}

/// Reads of files, their size and rate.
pub(super) fn reads(timeline: &Timeline, window: Span, concerns: &dyn Fn(u32) -> bool) -> Option<String> {
    let (mut reads, mut bytes, mut ns) = (0_u64, 0_u64, 0_u64);
    let mut files: BTreeSet<FileId> = BTreeSet::new();
    let mut spans = Vec::new();
    for of in timeline.file_reads.iter().filter(|r| concerns(r.pid) && overlaps(r.span, window)) {
        reads = reads.saturating_add(of.reads);
        bytes = bytes.saturating_add(of.bytes);
        ns = ns.saturating_add(of.ns);
        files.insert(of.file);
        spans.push(of.span);
    }
    let watched = total(&union(spans.clone()));
    (reads > 0 && watched > 0).then(|| {
        format!(
            "{} of {}, {:.1} KB and {} each on average; {:.0} reads and {:.1} MB a second{}.",
            counted(reads, "read"),
            counted(u64::try_from(files.len()).unwrap_or(u64::MAX), "file"),
            real(bytes) / 1e3 / real(reads),
            seconds(ns / reads),
            rate(reads, watched),
            rate(bytes, watched) / 1e6,
            part_watched(spans, window),
        )
    })
}

/// Says so where calls were watched for a part of the time only.
fn part_watched(spans: Vec<Span>, window: Span) -> String {
    let inside: Vec<Span> = spans.into_iter().filter_map(|s| s.intersect(window)).collect();
    let watched = total(&union(inside));
    if watched.saturating_mul(10) >= window.len().saturating_mul(9) {
        return String::new();
    }
    format!(" (watched for {} of {})", seconds(watched), seconds(window.len()))
}

fn overlaps(span: Span, window: Span) -> bool {
    span.intersect(window).is_some() || window.contains(span.start)
}

fn rate(count: u64, ns: u64) -> f64 {
    real(count) * 1e9 / real(ns.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "a figure to be shown")]
fn real(whole: u64) -> f64 {
    whole as f64
}
