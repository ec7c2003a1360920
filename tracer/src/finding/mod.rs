//! Rules that turn the ledger into root causes with evidence, gain and remedy, and the report's model. Pure.

mod accounts;
pub(crate) mod blame;
mod driving;
mod environment;
mod evidence;
mod managed;
mod model;
mod notes;
mod off_cpu;
mod processors;
mod questions;
mod ranks;
mod remedies;
mod rhythm;
mod rules;
mod signal;

#[cfg(test)]
mod tests;

pub use model::*;

use crate::cause::Ledger;
use crate::idle::{DeviceCollectives, DeviceIdle, DeviceMap, Known, UnknownReason, collectives};
use crate::timeline::Timeline;

/// Everything a report says, from the timeline and each device's idle time with its ledger. `devices` may be
/// empty: then the report holds what the host alone shows.
#[must_use]
pub fn report(timeline: &Timeline, devices: &[(DeviceIdle, Ledger)]) -> Report {
    let map = DeviceMap::new(timeline);
    let waits = collectives(timeline, &map);
    let gpus: Vec<Gpu> = devices
        .iter()
        .map(|(idle, ledger)| gpu(timeline, &map, waits.get(&idle.device), idle, ledger))
        .collect();
    Report {
        schema: SCHEMA,
        window: window(timeline, devices),
        host: HostSummary {
            hostname: timeline.host.hostname.clone(),
            kernel: timeline.host.kernel.clone(),
            cpus: u32::try_from(timeline.host.online_cpus.len()).unwrap_or(u32::MAX),
            command: timeline.host.command.clone(),
            tool_version: timeline.host.tool_version.clone(),
        },
        findings: rules::findings(timeline, &map, devices, &gpus),
        losses: notes::losses(timeline),
        probes: timeline
            .probes
            .iter()
            .map(|p| ProbeLine { name: p.name.clone(), attached: p.attached, reason: p.reason.clone() })
            .collect(),
        questions: questions::answers(timeline, devices, &gpus),
        waits: if devices.is_empty() { off_cpu::summary(timeline) } else { Vec::new() },
        notes: notes::notes(timeline, &map, devices),
        gpus,
    }
}

fn window(timeline: &Timeline, devices: &[(DeviceIdle, Ledger)]) -> Window {
    let start = devices.iter().map(|(idle, _)| idle.window.start).min();
    let end = devices.iter().map(|(idle, _)| idle.window.end).max();
    Window { start_ns: start.unwrap_or(timeline.span.start), end_ns: end.unwrap_or(timeline.span.end) }
}

fn gpu(
    timeline: &Timeline,
    map: &DeviceMap,
    waits: Option<&DeviceCollectives>,
    idle: &DeviceIdle,
    ledger: &Ledger,
) -> Gpu {
    let driving = driving::Driving::new(timeline, map, idle);
    let device = timeline.devices.get(&idle.device).map(|d| &d.device);
    let mut placed = Placed::default();
    for piece in &idle.placed {
        let slot = match piece.known {
            Known::Drained => &mut placed.drained_ns,
            Known::Bounded => &mut placed.bounded_ns,
            Known::Inferred => &mut placed.inferred_ns,
        };
        *slot += piece.span.len();
    }
    Gpu {
        index: idle.device,
        uuid: device.map(|d| d.uuid.clone()).unwrap_or_default(),
        name: device.map(|d| d.name.clone()).unwrap_or_default(),
        start_ns: idle.window.start,
        window_ns: idle.window.len(),
        busy_ns: idle.busy_ns,
        idle_ns: idle.idle_ns,
        unknown_ns: idle.unknown_ns,
        collective_ns: waits.and_then(|of| ranks::waited(of, idle)),
        placed,
        causes: ledger.causes.clone(),
        unknown_reasons: unknown_reasons(idle),
        launches_per_second: idle.launches_per_second,
        unwatched: driving::unwatched(timeline, idle),
        collectives: waits.map(ranks::told),
        launches: driving.launches(),
        copies: driving.copies(),
    }
}

/// One sentence a reason, in the order of the reasons.
fn unknown_reasons(idle: &DeviceIdle) -> Vec<String> {
    let words = |reason: UnknownReason| match reason {
        UnknownReason::NoReading => "no reading of the device covers it",
        UnknownReason::NoValue => "the device gave no value, or one out of range",
        UnknownReason::PowerContradicts => "the device reads 0 % while its power says that it works",
        UnknownReason::MemoryContradicts => "the device reads 0 % while its memory controller is active",
        UnknownReason::Mig => "a MIG device reports no utilisation",
    };
    let order = [
        UnknownReason::NoReading,
        UnknownReason::NoValue,
        UnknownReason::PowerContradicts,
        UnknownReason::MemoryContradicts,
        UnknownReason::Mig,
    ];
    order
        .into_iter()
        .filter_map(|reason| {
            let ns: u64 = idle.unknown.iter().filter(|(_, r)| *r == reason).map(|(span, _)| span.len()).sum();
            (ns > 0).then(|| format!("{}: {}", crate::cause::seconds(ns), words(reason)))
        })
        .collect()
}
