//! What to change, by what it would give back.

use crate::cause::Mechanism;
use crate::finding::{Finding, Gpu, Report};
use crate::render::figure::{grouped, share, time};
use crate::render::page::{Ink, Page};
use crate::render::word;

/// More than this no one reads; the JSON has all.
const SHOWN: usize = 20;
const EVIDENCE: usize = 12;

/// By gain, the largest first; ties keep the report's order.
pub(super) fn ranked(report: &Report) -> Vec<&Finding> {
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    findings.sort_by_key(|f| std::cmp::Reverse(f.gain_ns));
    findings
}

pub(super) fn write(page: &mut Page, report: &Report) {
    page.heading("WHAT TO CHANGE, by what it would give back");
    let findings = ranked(report);
    if findings.is_empty() {
        let text = if report.gpus.is_empty() {
            "Not known: without a GPU's readings no gain can be told."
        } else {
            nothing(report)
        };
        page.paragraph("  ", Ink::Plain, text);
    }
    for (i, finding) in findings.iter().take(SHOWN).enumerate() {
        one(page, report, i + 1, finding);
    }
    rest(page, findings.len(), SHOWN, "finding");
    if findings.len() > 1 {
        let text = "Each gain is of that change alone. Causes hide each other: gains do not add up.";
        page.paragraph("  ", Ink::Faint, text);
    }
}

fn nothing(report: &Report) -> &'static str {
    let all = |holds: fn(&Gpu) -> bool| report.gpus.iter().all(holds);
    if all(|gpu| gpu.unknown_ns >= gpu.window_ns) {
        "Not known: what the GPU did is not."
    } else if all(|gpu| {
        let of_it = gpu.causes.iter().filter(|c| c.mechanism == Mechanism::NoDemand);
        of_it.map(|c| c.ns).fold(0, u64::saturating_add).saturating_mul(2) > gpu.idle_ns
    }) {
        "Nothing: the GPU was idle because it was asked for nothing."
    } else {
        "Nothing: no single cause would give back 5 % of the window and 200 ms."
    }
}

fn one(page: &mut Page, report: &Report, number: usize, finding: &Finding) {
    if number > 1 {
        page.blank();
    }
    let title = page.safe(&finding.title).into_owned();
    page.paragraph(&format!("  {number}. "), Ink::Strong, &title);
    let window = report.gpus.iter().find(|g| g.index == finding.gpu).map_or(0, |g| g.window_ns);
    let gain = format!(
        "{} on GPU {}: gives back up to {} ({} of the window); took {}.",
        word::mechanism(finding.mechanism).0,
        finding.gpu,
        time(finding.gain_ns),
        share(finding.gain_ns, window),
        time(finding.ns),
    );
    page.paragraph("     ", Ink::Plain, &gain);
    for evidence in finding.evidence.iter().take(EVIDENCE) {
        let evidence = page.safe(evidence).into_owned();
        page.paragraph("     - ", Ink::Plain, &evidence);
    }
    rest(page, finding.evidence.len(), EVIDENCE, "line of evidence");
    if !finding.remedy.is_empty() {
        let remedy = page.safe(&finding.remedy).into_owned();
        page.paragraph("     Do: ", Ink::Strong, &remedy);
    }
}

/// Says that there was more than is shown.
pub(super) fn rest(page: &mut Page, all: usize, shown: usize, noun: &str) {
    if all > shown {
        let text =
            format!("{} more in the JSON report, counting each {noun}.", grouped((all - shown) as u64));
        page.paragraph("     ", Ink::Faint, &text);
    }
}
