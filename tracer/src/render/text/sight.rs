//! What the recording could not see, and where it comes from.

use std::collections::BTreeMap;

use super::findings::rest;
use crate::finding::Report;
use crate::render::figure::{count, grouped, time};
use crate::render::page::{Ink, Page};

const SHOWN: usize = 20;

pub(super) fn write(page: &mut Page, report: &Report) {
    page.heading("WHAT COULD NOT BE SEEN");
    losses(page, report);
    probes(page, report);
    collectives(page, report);
    for note in report.notes.iter().take(SHOWN) {
        let note = page.safe(note).into_owned();
        page.paragraph("  - ", Ink::Plain, &note);
    }
    rest(page, report.notes.len(), SHOWN, "note");
    origin(page, report);
}

#[derive(Default)]
struct Lost {
    count: u64,
    ns: u64,
    cpus: u64,
}

fn losses(page: &mut Page, report: &Report) {
    let mut lost: BTreeMap<(&str, &str), Lost> = BTreeMap::new();
    for line in report.losses.iter().filter(|l| l.count > 0) {
        let sum = lost.entry((&line.class, &line.cause)).or_default();
        sum.count = sum.count.saturating_add(line.count);
        sum.ns = sum.ns.saturating_add(line.ns_at_risk);
        sum.cpus += u64::from(line.cpu.is_some());
    }
    if lost.is_empty() {
        page.paragraph("  ", Ink::Plain, "No record was lost.");
        return;
    }
    let all = lost.values().fold(0, |n: u64, l| n.saturating_add(l.count));
    let ns = lost.values().fold(0, |n: u64, l| n.saturating_add(l.ns));
    let window = time(report.window.end_ns.saturating_sub(report.window.start_ns));
    let text =
        format!("{} lost in a recording of {window}: {} of thread time.", count(all, "record"), at_risk(ns));
    page.paragraph("  ", Ink::Warning, &text);
    let mut lost: Vec<_> = lost.into_iter().collect();
    lost.sort_by(|a, b| b.1.count.cmp(&a.1.count).then(a.0.cmp(&b.0)));
    for ((class, cause), sum) in lost.iter().take(SHOWN) {
        let cpus = if sum.cpus > 0 { format!(" on {}", count(sum.cpus, "processor")) } else { String::new() };
        let text = format!(
            "{}: {}{cpus}, {}; {}",
            page.name(class, 30),
            grouped(sum.count),
            page.name(cause, 40),
            at_risk(sum.ns)
        );
        page.paragraph("  - ", Ink::Plain, &text);
    }
    rest(page, lost.len(), SHOWN, "kind of loss");
}

/// The contract writes 0 where the time that lost records could cover is not known.
fn at_risk(ns: u64) -> String {
    if ns == 0 { "an unknown amount".to_owned() } else { format!("up to {}", time(ns)) }
}

/// Devices whose collectives could not be told from work.
fn collectives(page: &mut Page, report: &Report) {
    let blind: Vec<String> = report
        .gpus
        .iter()
        .filter(|g| g.collective_ns.is_none())
        .map(|g| match g.collectives.as_ref().and_then(|c| c.unknown_reason.as_deref()) {
            Some(reason) => format!("{}: {}", g.index, page.safe(reason)),
            None => g.index.to_string(),
        })
        .collect();
    if !blind.is_empty() {
        let text = format!(
            "How much of the busy time was waiting for other ranks in a collective is not known (GPU {}).",
            blind.join(", ")
        );
        page.paragraph("  ", Ink::Plain, &text);
    }
}

fn probes(page: &mut Page, report: &Report) {
    let missing: Vec<_> = report.probes.iter().filter(|p| !p.attached).collect();
    let all = report.probes.len();
    let text = match (all, missing.len()) {
        (0, _) => "Which probes were attached is not recorded.".to_owned(),
        (_, 0) => format!("All {} were attached.", count(all as u64, "probe")),
        (_, n) => format!("{} of {} not attached:", grouped(n as u64), count(all as u64, "probe")),
    };
    page.paragraph("  ", if missing.is_empty() { Ink::Plain } else { Ink::Warning }, &text);
    for probe in missing.iter().take(SHOWN) {
        let reason = if probe.reason.is_empty() { "no reason recorded" } else { &probe.reason };
        let text = format!("{}: {}", page.name(&probe.name, 40), page.safe(reason));
        page.paragraph("  - ", Ink::Plain, &text);
    }
    rest(page, missing.len(), SHOWN, "probe");
}

fn origin(page: &mut Page, report: &Report) {
    let host = &report.host;
    let text = format!(
        "Recorded on {} (kernel {}, {}) by whyidle {}: {}",
        page.name(&host.hostname, 40),
        page.name(&host.kernel, 40),
        count(host.cpus.into(), "processor"),
        page.name(&host.tool_version, 20),
        page.name(&host.command, 90),
    );
    page.blank();
    page.paragraph("", Ink::Faint, &text);
}
