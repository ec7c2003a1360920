//! Per GPU: the window as one bar, the idle part of it as a bar a mechanism, and how sure its place is.

use std::collections::BTreeMap;

use super::tally::{self, Line};
use crate::cause::{Mechanism, Stage};
use crate::finding::Gpu;
use crate::render::bar;
use crate::render::figure::{count, millis, share, time};
use crate::render::fit::{left, right, take, width};
use crate::render::page::{Ink, Page};
use crate::render::word;

/// Mechanisms that get a line of their own.
const LINES: usize = 10;
/// Reasons for `unexplained` that are told.
const REASONS: usize = 3;
const FIGURES: [usize; 3] = [9, 11, 11];
/// Cells of the bars that the words beside the names may not take.
const LEAST_BAR: usize = 8;

pub(super) fn write(page: &mut Page, gpu: &Gpu) {
    title(page, gpu);
    if gpu.window_ns == 0 {
        page.paragraph("  ", Ink::Unknown, "No complete window of this device lies in the recording.");
        return;
    }
    window(page, gpu);
    collective(page, gpu);
    if gpu.idle_ns > 0 {
        causes(page, gpu);
        unexplained(page, gpu);
        placed(page, gpu);
    }
    if gpu.unknown_ns > 0 {
        let reasons: Vec<_> = gpu.unknown_reasons.iter().map(|r| page.safe(r).into_owned()).collect();
        let text = if reasons.is_empty() { "no reason recorded".to_owned() } else { reasons.join("; ") };
        page.paragraph("  Unknown because: ", Ink::Plain, &text);
    }
}

fn title(page: &mut Page, gpu: &Gpu) {
    page.blank();
    let index = format!("GPU {}", gpu.index);
    let name = page.name(&gpu.name, 48);
    let uuid = page.name(&gpu.uuid, 42);
    page.line(&[
        (Ink::Strong, &index),
        (Ink::Strong, "  "),
        (Ink::Plain, &name),
        (Ink::Faint, "  "),
        (Ink::Faint, &uuid),
    ]);
}

fn window(page: &mut Page, gpu: &Gpu) {
    let parts = [gpu.busy_ns, gpu.idle_ns, gpu.unknown_ns];
    let cells = bar::split(parts, page.columns - 4);
    let marks = bar::marks(page.style);
    let drawn: Vec<String> = marks.iter().zip(cells).map(|(m, n)| m.repeat(n)).collect();
    page.line(&[
        (Ink::Plain, "  "),
        (Ink::Busy, &drawn[0]),
        (Ink::Strong, &drawn[1]),
        (Ink::Unknown, &drawn[2]),
    ]);
    let told = |mark: &str, what: &str, ns: u64| {
        format!("{mark} {what} {}, {}    ", share(ns, gpu.window_ns), time(ns))
    };
    let (busy, idle, unknown) = (
        told(marks[0], "busy", gpu.busy_ns),
        told(marks[1], "idle", gpu.idle_ns),
        told(marks[2], "unknown", gpu.unknown_ns),
    );
    let legend = [(Ink::Busy, &*busy), (Ink::Strong, &*idle), (Ink::Unknown, unknown.trim_end())];
    if 2 + legend.iter().map(|(_, text)| width(text)).sum::<usize>() <= page.columns {
        page.line(&[(Ink::Plain, "  "), legend[0], legend[1], legend[2]]);
    } else {
        legend.iter().for_each(|&part| page.line(&[(Ink::Plain, "  "), part]));
    }
}

/// Beside the ledger, never in it: a collective kernel keeps the device busy while it waits.
fn collective(page: &mut Page, gpu: &Gpu) {
    if let Some(ns) = gpu.collective_ns.filter(|ns| *ns > 0) {
        let mut text =
            format!("Of the busy time {} were spent waiting for other ranks in a collective", time(ns));
        if let Some(told) = &gpu.collectives
            && let Some(last) = told.last.first()
        {
            text.push_str(&format!(
                "; rank {} (pid {}) came last in {} of {}, {} late on average",
                last.rank,
                last.pid,
                last.operations,
                count(told.operations, "operation"),
                time(last.behind_ns / last.operations.max(1))
            ));
        }
        page.paragraph("  ", Ink::Plain, &format!("{text}."));
    }
}

fn causes(page: &mut Page, gpu: &Gpu) {
    let lines = tally::by_mechanism(gpu);
    let (shown, rest) =
        lines.split_at(lines.len().min(if lines.len() > LINES + 1 { LINES } else { LINES + 1 }));
    let names = column(shown.iter().map(|l| word::mechanism(l.mechanism).0));
    let glosses = column(shown.iter().map(|l| word::mechanism(l.mechanism).1)).max(9) + 2;
    let room = page.columns.saturating_sub(2 + names + 2 + FIGURES.iter().sum::<usize>());
    // A narrow page does without the words beside the names.
    let glosses = if room >= glosses + LEAST_BAR { glosses } else { 0 };
    let cells = room - glosses;
    page.blank();
    let head = format!(
        "  {}{}{}{}{}",
        left("idle, waiting for", names + 2 + glosses),
        " ".repeat(cells),
        right("of window", FIGURES[0]),
        right("ms", FIGURES[1]),
        right("gain ms", FIGURES[2])
    );
    page.line(&[(Ink::Faint, &head)]);
    let mut row = |name: &str, gloss: &str, ink: Ink, ns: u64, gain: Option<u64>| {
        let drawn = bar::one(ns, gpu.window_ns, cells, page.style);
        let figures = format!(
            "{}{}{}",
            right(&share(ns, gpu.window_ns), FIGURES[0]),
            right(&millis(ns), FIGURES[1]),
            right(&gain.map_or_else(String::new, millis), FIGURES[2])
        );
        page.line(&[
            (Ink::Plain, "  "),
            (ink, &left(name, names + 2)),
            (Ink::Faint, &left(take(gloss, glosses), glosses)),
            (ink, &left(&drawn, cells)),
            (Ink::Plain, &figures),
        ]);
    };
    for line in shown {
        let (name, gloss) = word::mechanism(line.mechanism);
        row(name, gloss, Ink::Stage(line.stage), line.ns, Some(line.gain_ns));
    }
    if !rest.is_empty() {
        let sum = |of: fn(&Line<'_>) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
        let name = format!("{} more", rest.len());
        row(&name, "", Ink::Stage(Stage::Unexplained), sum(|l| l.ns), None);
    }
    row("idle in all", "", Ink::Strong, gpu.idle_ns, None);
}

fn column<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(width).max().unwrap_or(0).max(width("idle in all"))
}

fn unexplained(page: &mut Page, gpu: &Gpu) {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for cause in gpu.causes.iter().filter(|c| c.mechanism == Mechanism::Unexplained) {
        let reason = reasons.entry(cause.note.as_deref().unwrap_or("no reason recorded")).or_default();
        *reason = reason.saturating_add(cause.ns);
    }
    let mut reasons: Vec<(&str, u64)> = reasons.into_iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    if reasons.is_empty() {
        return;
    }
    let told: Vec<String> = reasons
        .iter()
        .take(REASONS)
        .map(|(reason, ns)| format!("{} ({})", page.safe(reason), time(*ns)))
        .collect();
    let mut text = told.join("; ");
    if reasons.len() > REASONS {
        text.push_str(&format!("; {} more", count((reasons.len() - REASONS) as u64, "reason")));
    }
    page.paragraph("  Unexplained because: ", Ink::Plain, &text);
}

fn placed(page: &mut Page, gpu: &Gpu) {
    let p = gpu.placed;
    let part = |ns: u64| share(ns, gpu.idle_ns);
    let sum = p.drained_ns.saturating_add(p.bounded_ns).saturating_add(p.inferred_ns);
    let text = format!(
        "drained {}, bounded {}, inferred {}, not placed {}",
        part(p.drained_ns),
        part(p.bounded_ns),
        part(p.inferred_ns),
        part(gpu.idle_ns.saturating_sub(sum)),
    );
    page.paragraph("  Where in time: ", Ink::Faint, &text);
    let unwatched = gpu.unwatched;
    let told: Vec<String> = [
        (unwatched.no_calls_ns, "was placed while no driver call was watched"),
        (unwatched.no_launches_ns, "was placed while launches were not watched"),
        (unwatched.extrapolated_ns, "is extrapolated from bursts in which they were watched"),
    ]
    .iter()
    .filter(|(ns, _)| *ns > 0)
    .map(|(ns, words)| format!("{} {words}", part(*ns)))
    .collect();
    if !told.is_empty() {
        page.paragraph("  Without edges: ", Ink::Faint, &format!("of the idle time {}", told.join(", ")));
    }
}
