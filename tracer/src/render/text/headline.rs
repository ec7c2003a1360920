//! The first lines: what a stranger should know after ten seconds.

use super::tally::{self, Line};
use crate::cause::{Cause, CulpritKind, Mechanism};
use crate::finding::{Gpu, Report, blame};
use crate::render::figure::{points, share, time};
use crate::render::page::{Ink, Page};
use crate::render::word;

pub(super) fn write(page: &mut Page, report: &Report) {
    let sentence = sentence(page, report);
    page.paragraph("", Ink::Strong, &sentence);
    if let Some(first) = super::findings::ranked(report).first().filter(|f| !f.remedy.is_empty()) {
        let gain = time(first.gain_ns);
        let label = format!("Do first, to get back up to {gain}: ");
        let remedy = page.safe(&first.remedy).into_owned();
        page.paragraph(&label, Ink::Plain, &remedy);
    }
}

fn sentence(page: &Page, report: &Report) -> String {
    let recorded = time(report.window.end_ns.saturating_sub(report.window.start_ns));
    let Some(worst) = report.gpus.iter().rev().max_by_key(|g| (g.idle_ns, g.unknown_ns)) else {
        return format!(
            "How long a GPU stood idle is not known: no GPU could be read in these {recorded}. \
             What the watched threads waited for on the host is known."
        );
    };
    let mut text = device(page, worst);
    if report.gpus.len() > 1 {
        text.push_str(&others(report, worst));
    }
    text
}

fn device(page: &Page, gpu: &Gpu) -> String {
    let name = format!("GPU {}", gpu.index);
    let window = time(gpu.window_ns);
    if gpu.window_ns == 0 {
        return format!(
            "How long {name} stood idle is not known: no complete window of the device lies in the recording."
        );
    }
    if gpu.unknown_ns >= gpu.window_ns {
        return format!("Whether {name} stood idle is not known for any part of {window}.");
    }
    let mut text = match gpu.idle_ns {
        0 => format!("{name} was busy {} of {window} and never idle", share(gpu.busy_ns, gpu.window_ns)),
        idle if idle < gpu.window_ns / 20 => format!(
            "{name} was busy {} of {window} and idle {}",
            share(gpu.busy_ns, gpu.window_ns),
            share(idle, gpu.window_ns)
        ),
        idle => format!("{name} stood idle {} of {window}", share(idle, gpu.window_ns)),
    };
    let lines = tally::by_mechanism(gpu);
    if let Some(first) = tally::first_cause(&lines) {
        text.push_str("; ");
        text.push_str(&reason(page, gpu, first));
    }
    text.push('.');
    if gpu.unknown_ns > 0 {
        text.push_str(&format!(" For {} it is not known.", share(gpu.unknown_ns, gpu.window_ns)));
    }
    text
}

/// "54 points of it waited for storage.read (file reads) under /data/imagenet, worker processes of pid 4242".
fn reason(page: &Page, gpu: &Gpu, first: &Line<'_>) -> String {
    let points = points(first.ns, gpu.window_ns);
    match first.mechanism {
        Mechanism::Unexplained => return format!("{points} points of it are not explained"),
        Mechanism::NoDemand => return format!("for {points} points of it nobody asked for work (no-demand)"),
        _ => {}
    }
    let (name, gloss) = word::mechanism(first.mechanism);
    let mut text = format!("{points} points of it waited for {name} ({gloss})");
    let largest = first.causes.iter().max_by_key(|c| c.ns).copied();
    if let Some(culprit) = &blame::culprit(&first.causes) {
        let tie = match first.mechanism {
            Mechanism::PeerCollective => ":".to_owned(),
            _ if culprit.kind == CulpritKind::Lock && culprit.name.starts_with("held by ") => ",".to_owned(),
            _ => format!(" {}", word::culprit(culprit).1),
        };
        // Through which wrapper it called is for those who read on.
        let name = culprit.name.split_once(", by ").map_or(culprit.name.as_str(), |(who, _)| who);
        text.push_str(&format!("{tie} {}", page.name(name, page.columns / 2)));
    }
    if let Some(who) = largest.and_then(|c| who(page, c)) {
        text.push_str(", ");
        text.push_str(&who);
    }
    text
}

/// Whose wait it was, told from the process next to the device.
fn who(page: &Page, cause: &Cause) -> Option<String> {
    let feeder = cause.chain.first().filter(|l| l.pid != 0)?;
    // The last link may be an interrupt, which has no thread.
    let leaf = cause.chain.iter().rev().find(|l| l.pid != 0)?;
    let comm = page.name(&feeder.comm, 20);
    Some(if cause.mechanism == Mechanism::PeerCollective {
        format!("by pid {} ({comm})", feeder.pid)
    } else if leaf.pid != feeder.pid {
        // Of a pool several play the part.
        if leaf.processes > 1 {
            format!("worker processes of pid {} ({comm})", feeder.pid)
        } else {
            let end = page.name(&leaf.comm, 20);
            format!("process {} ({end}), for which pid {} ({comm}) waits", leaf.pid, feeder.pid)
        }
    } else if leaf.tid != feeder.tid {
        format!("threads of pid {} ({comm})", feeder.pid)
    } else {
        format!("pid {} ({comm})", feeder.pid)
    })
}

fn others(report: &Report, worst: &Gpu) -> String {
    let others = report.gpus.iter().filter(|g| !std::ptr::eq(*g, worst));
    let known: Vec<&Gpu> = others.clone().filter(|g| g.unknown_ns < g.window_ns).collect();
    let part = |g: &&Gpu| (u128::from(g.idle_ns) << 64) / u128::from(g.window_ns.max(1));
    let count = others.clone().count();
    let noun = if count == 1 { "The other GPU".to_owned() } else { format!("The other {count} GPUs") };
    match (known.iter().copied().min_by_key(part), known.iter().copied().max_by_key(part)) {
        (Some(least), Some(most)) => {
            let (least, most) = (share(least.idle_ns, least.window_ns), share(most.idle_ns, most.window_ns));
            let range = if least == most { least } else { format!("{least} to {most}") };
            format!(" {noun}: idle {range}.")
        }
        _ => format!(" {noun}: not known."),
    }
}
