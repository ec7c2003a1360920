//! The five questions, in their order; what this version cannot tell it says.

use std::collections::BTreeMap;

use super::{Answer, environment};
use crate::cause::{Ledger, Mechanism, Stage, seconds};
use crate::idle::DeviceIdle;
use crate::timeline::Timeline;

type Devices<'a> = &'a [(DeviceIdle, Ledger)];

pub(super) fn answers(timeline: &Timeline, devices: Devices<'_>) -> Vec<Answer> {
    vec![
        answer("How long did the GPU wait, and for data or for something else?", waited(devices)),
        answer(
            "Is there too much work per kernel, or too little work between kernels (too many, too small launches)?",
            launches(devices),
        ),
        answer(
            "Where in the pipeline is the batch stuck: storage, decode, memory, copy, launch?",
            stuck(devices),
        ),
        answer("Do host-to-device copies run without gaps, from pinned memory?", copies(devices)),
        answer(
            "Is the environment on its fast path (versions, OpenMP, thread counts, JIT, tensor cores, PCIe, \
             throttling)?",
            environment::words(timeline),
        ),
    ]
}

/// `Err` holds why it is not known.
fn answer(question: &str, text: Result<String, String>) -> Answer {
    let (known, text) = match text {
        Ok(text) => (true, text),
        Err(reason) => (false, format!("not known: {reason}")),
    };
    Answer { question: question.to_owned(), known, text }
}

const NO_DEVICE: &str = "no device was read in this recording";

fn measured<'a>(devices: Devices<'a>) -> impl Iterator<Item = &'a (DeviceIdle, Ledger)> {
    devices.iter().filter(|(idle, _)| idle.window.len() > idle.unknown_ns)
}

fn waited(devices: Devices<'_>) -> Result<String, String> {
    let lines: Vec<String> = measured(devices)
        .map(|(idle, ledger)| {
            let sum = |keep: &dyn Fn(Stage) -> bool| -> u64 {
                ledger.causes.iter().filter(|c| keep(c.stage)).map(|c| c.ns).sum()
            };
            let data = sum(&is_data);
            let unexplained = sum(&|s| s == Stage::Unexplained);
            let no_demand = sum(&|s| s == Stage::NoDemand);
            let other = idle.idle_ns.saturating_sub(data + unexplained + no_demand);
            let window = idle.window.len();
            format!(
                "GPU {} stood idle {} of {} ({:.1} %): {} for data, {} for something else, {} without demand, {} \
                 not explained",
                idle.device,
                seconds(idle.idle_ns),
                seconds(window),
                idle.idle_ns as f64 * 100.0 / window.max(1) as f64,
                seconds(data),
                seconds(other),
                seconds(no_demand),
                seconds(unexplained),
            )
        })
        .collect();
    sentence(
        &lines,
        if devices.is_empty() { NO_DEVICE } else { "the device said nothing that can be trusted" },
    )
}

fn is_data(stage: Stage) -> bool {
    matches!(stage, Stage::Storage | Stage::Network | Stage::Prepare | Stage::Memory)
}

fn launches(devices: Devices<'_>) -> Result<String, String> {
    let lines: Vec<String> = devices
        .iter()
        .filter_map(|(idle, ledger)| {
            let rate = idle.launches_per_second?;
            let bound: u64 =
                ledger.causes.iter().filter(|c| c.mechanism == Mechanism::LaunchBound).map(|c| c.ns).sum();
            let verdict = if bound.saturating_mul(20) >= idle.window.len() {
                "too little work per launch"
            } else {
                "launches are not what holds it up"
            };
            Some(format!(
                "GPU {}: {rate:.0} launches a second, {} idle between back-to-back launches, {verdict}",
                idle.device,
                seconds(bound)
            ))
        })
        .collect();
    sentence(
        &lines,
        "no launch was seen: no watched process submits work, or none maps a CUDA driver library",
    )
}

fn stuck(devices: Devices<'_>) -> Result<String, String> {
    let lines: Vec<String> = measured(devices)
        .map(|(idle, ledger)| {
            let mut by: BTreeMap<Stage, u64> = BTreeMap::new();
            for cause in &ledger.causes {
                if !matches!(cause.stage, Stage::NoDemand | Stage::Unexplained) {
                    *by.entry(cause.stage).or_default() += cause.ns;
                }
            }
            let mut stages: Vec<_> = by.into_iter().filter(|&(_, ns)| ns > 0).collect();
            stages.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            let words: Vec<String> =
                stages.iter().take(4).map(|(s, ns)| format!("{} {}", stage_name(*s), seconds(*ns))).collect();
            if words.is_empty() {
                format!("GPU {}: nowhere", idle.device)
            } else {
                format!("GPU {}: {}", idle.device, words.join(", "))
            }
        })
        .collect();
    sentence(
        &lines,
        if devices.is_empty() { NO_DEVICE } else { "the device said nothing that can be trusted" },
    )
}

fn copies(devices: Devices<'_>) -> Result<String, String> {
    let pageable: u64 = devices
        .iter()
        .flat_map(|(_, l)| &l.causes)
        .filter(|c| c.mechanism == Mechanism::CopyPageable)
        .map(|c| c.ns)
        .sum();
    if pageable > 0 {
        return Ok(format!("The GPU stood idle {} during blocking copies to it.", seconds(pageable)));
    }
    Err("copies are counted, not timed, and whether their memory is pinned is not recorded".to_owned())
}

fn sentence(lines: &[String], otherwise: &str) -> Result<String, String> {
    if lines.is_empty() { Err(otherwise.to_owned()) } else { Ok(format!("{}.", lines.join("; "))) }
}

/// The stage's name as it is serialised.
pub(super) fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Storage => "storage",
        Stage::Network => "network",
        Stage::Prepare => "prepare",
        Stage::Memory => "memory",
        Stage::Copy => "copy",
        Stage::Launch => "launch",
        Stage::Driver => "driver",
        Stage::Schedule => "schedule",
        Stage::Lock => "lock",
        Stage::Peer => "peer",
        Stage::Process => "process",
        Stage::NoDemand => "no-demand",
        Stage::Unexplained => "unexplained",
    }
}
