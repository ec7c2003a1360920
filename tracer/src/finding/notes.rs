//! What limits the report: losses, a cut trace, steps of the governor, threads without names.

use std::collections::BTreeMap;

use super::{LossLine, managed, signal};
use crate::cause::{Ledger, seconds};
use crate::idle::{DeviceIdle, DeviceMap};
use crate::timeline::{Timeline, apportion};
use crate::trace::{LossCause, LossClass, TargetKind, Watched};

/// Lost records by class, processor and cause, added up.
pub(super) fn losses(timeline: &Timeline) -> Vec<LossLine> {
    let mut lost: BTreeMap<(LossClass, Option<u32>, LossCause), (u64, u64)> = BTreeMap::new();
    for loss in &timeline.losses {
        let slot = lost.entry((loss.class, loss.cpu, loss.cause)).or_default();
        slot.0 = slot.0.saturating_add(loss.count);
        slot.1 = slot.1.saturating_add(loss.ns_at_risk);
    }
    lost.into_iter()
        .filter(|(_, (count, _))| *count > 0)
        .map(|((class, cpu, cause), (count, ns_at_risk))| LossLine {
            class: class_name(class).to_owned(),
            cpu,
            cause: cause_name(cause).to_owned(),
            count,
            ns_at_risk,
        })
        .collect()
}

fn class_name(class: LossClass) -> &'static str {
    match class {
        LossClass::OffCpu => "off-cpu",
        LossClass::WaitTotal => "wait-total",
        LossClass::Lifecycle => "lifecycle",
        LossClass::Sample => "sample",
        LossClass::Stack => "stack",
        LossClass::File => "file",
        LossClass::Cuda => "cuda",
        LossClass::Block => "block",
        LossClass::Fault => "fault",
        LossClass::Stored => "stored",
        LossClass::Ioctl => "ioctl",
    }
}

fn cause_name(cause: LossCause) -> &'static str {
    match cause {
        LossCause::RingFull => "ring-full",
        LossCause::MapFull => "map-full",
        LossCause::Recursion => "recursion",
        LossCause::TimeTravel => "time-travel",
        LossCause::ReadFault => "read-fault",
        LossCause::Userspace => "userspace",
        LossCause::Damaged => "damaged",
        LossCause::Undecodable => "undecodable",
        LossCause::Unannounced => "unannounced",
    }
}

pub(super) fn notes(timeline: &Timeline, map: &DeviceMap, devices: &[(DeviceIdle, Ledger)]) -> Vec<String> {
    let mut notes = Vec::new();
    if timeline.ended.is_none() {
        notes.push(
            "The recording is cut: it did not end in order, and what came after its last frame is missing."
                .into(),
        );
    }
    if !timeline.host_known {
        notes.push(
            "The trace has lost the record of its start and of the host: nothing from before the first record of \
             something seen while it was recorded is used, and thresholds, the processor's sampling and the \
             command are not known."
                .into(),
        );
    }
    if devices.is_empty() {
        notes.push(
            "No device was read: there is no GPU idle time in this report, only what threads waited for."
                .into(),
        );
    }
    notes.extend(signal::notes(timeline, map));
    for (idle, _) in devices {
        let inferred: u64 = idle.placed.iter().filter(|p| p.device_inferred).map(|p| p.span.len()).sum();
        if inferred > 0 {
            notes.push(format!(
                "GPU {}: device inferred for {} of its gaps, as the processes use several devices.",
                idle.device,
                seconds(inferred)
            ));
        }
        let unplaced: u64 = idle.unplaced.iter().map(|u| u.ns).sum();
        if unplaced > 0 {
            notes.push(format!(
                "GPU {}: {} of {} idle could not be placed between host events.",
                idle.device,
                seconds(unplaced),
                seconds(idle.idle_ns)
            ));
        }
    }
    notes.extend(steps(timeline));
    notes.extend(watches(timeline));
    let windows = devices.first().map_or(timeline.span, |(idle, _)| idle.window);
    notes.extend(managed::memory(timeline, windows));
    notes.extend(unnamed(timeline));
    notes.extend(adopted(timeline));
    notes
}

/// What the tracer gave up to stay within its budget, each kind once: how often, from when on.
fn steps(timeline: &Timeline) -> Vec<String> {
    let mut told: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for step in &timeline.steps {
        told.entry(&step.what).or_insert((step.at, 0)).1 += 1;
    }
    let mut told: Vec<_> = told.into_iter().collect();
    told.sort_by_key(|(what, (at, _))| (*at, *what));
    let sentence = |(what, (at, count)): (&str, (u64, u64))| {
        let after = seconds(at.saturating_sub(timeline.span.start));
        let again = match count {
            1 => String::new(),
            2 => ", and once more".to_owned(),
            n => format!(", and {} times more", n - 1),
        };
        format!("To stay within its budget the tracer took a step after {after}{again}: {what}.")
    };
    told.into_iter().map(sentence).collect()
}

/// What was not watched of driver calls, each reason once: how long in all, from when on.
fn watches(timeline: &Timeline) -> Vec<String> {
    let mut told: BTreeMap<(Watched, &str), (u64, u64)> = BTreeMap::new();
    for (span, watch) in timeline.watches() {
        let ns = span.end.min(timeline.span.end).saturating_sub(span.start);
        told.entry((watch.watched, &watch.reason)).or_insert((watch.at, 0)).1 += ns;
    }
    let mut told: Vec<_> = told.into_iter().filter(|((watched, _), _)| *watched != Watched::All).collect();
    told.sort_by_key(|((watched, reason), (at, _))| (*at, *watched, *reason));
    let sentence = |((watched, reason), (at, ns)): ((Watched, &str), (u64, u64))| {
        let what = match watched {
            Watched::Nothing => "no driver call was watched",
            Watched::Rare => "driver calls were watched without launches",
            Watched::Burst | Watched::All => "all driver calls were watched in bursts",
        };
        let after = at.saturating_sub(timeline.span.start);
        let why = if reason.is_empty() { "no reason recorded" } else { reason };
        format!(
            "For {} in all, from {} on, {what}: {}.",
            seconds(ns),
            seconds(after),
            why.trim_end_matches('.')
        )
    };
    told.into_iter().map(sentence).collect()
}

/// Share of sampled user stacks whose innermost frame has no name.
fn unnamed(timeline: &Timeline) -> Option<String> {
    let mut stacks: BTreeMap<u64, u64> = BTreeMap::new();
    for sample in timeline.threads.values().flat_map(|t| &t.samples) {
        *stacks.entry(sample.user_stack).or_default() += 1;
    }
    let all: u64 = stacks.values().sum();
    let mut without = stacks.get(&0).copied().unwrap_or(0);
    for (&id, &count) in stacks.iter().filter(|(id, _)| **id != 0) {
        if !timeline.frames(id).iter().any(|f| f.resolved) {
            without += count;
        }
    }
    let share = apportion(1000, &[without, all.saturating_sub(without)]).first().copied().unwrap_or(0);
    (all > 0 && share > 0).then(|| {
        format!(
            "{}.{} % of {all} CPU samples have no named function in their user stack.",
            share / 10,
            share % 10
        )
    })
}

fn adopted(timeline: &Timeline) -> Option<String> {
    let mut names: Vec<&str> = timeline
        .threads
        .values()
        .filter(|t| t.kind == TargetKind::Adopted)
        .map(|t| t.comm.as_str())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    names.truncate(8);
    (count > 0).then(|| {
        format!("{count} threads outside the job were followed because they wake it: {}.", names.join(", "))
    })
}
