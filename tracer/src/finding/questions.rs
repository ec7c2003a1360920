//! The five questions, in their order; what this version cannot tell it says.

use std::collections::BTreeMap;

use super::{Answer, Copies, CopyWay, Gpu, Launches, environment};
use crate::cause::{Ledger, Mechanism, Stage, seconds};
use crate::idle::DeviceIdle;
use crate::timeline::Timeline;

type Devices<'a> = &'a [(DeviceIdle, Ledger)];

pub(super) fn answers(timeline: &Timeline, devices: Devices<'_>, gpus: &[Gpu]) -> Vec<Answer> {
    vec![
        answer("How long did the GPU wait, and for data or for something else?", waited(devices)),
        answer(
            "Is there too much work per kernel, or too little work between kernels (too many, too small launches)?",
            launches(devices, gpus),
        ),
        answer(
            "Where in the pipeline is the batch stuck: storage, decode, memory, copy, launch?",
            stuck(devices),
        ),
        answer("Do host-to-device copies run without gaps, from pinned memory?", copies(devices, gpus)),
        answer(
            "Is the environment on its fast path (versions, OpenMP, thread counts, JIT, tensor cores, PCIe, \
             throttling)?",
            environment::words(timeline, oversubscribed(devices)),
        ),
    ]
}

/// Whether a device waited for threads that were in each other's way.
fn oversubscribed(devices: Devices<'_>) -> bool {
    devices.iter().any(|(idle, ledger)| {
        let of_it = ledger.causes.iter().filter(|c| c.mechanism == Mechanism::ScheduleOversubscribed);
        of_it.map(|c| c.ns).sum::<u64>().saturating_mul(20) >= idle.window.len().max(1)
    })
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

fn launches(devices: Devices<'_>, gpus: &[Gpu]) -> Result<String, String> {
    let lines: Vec<String> = devices
        .iter()
        .zip(gpus)
        .filter_map(|((idle, ledger), gpu)| {
            let bound: u64 =
                ledger.causes.iter().filter(|c| c.mechanism == Mechanism::LaunchBound).map(|c| c.ns).sum();
            let verdict = if bound.saturating_mul(20) >= idle.window.len() {
                "too little work per launch"
            } else {
                "kernels are not too small"
            };
            let told = match &gpu.launches {
                Some(launches) => launching(launches, gpu.window_ns),
                None => format!("{:.0} launches a second.", idle.launches_per_second?),
            };
            Some(format!(
                "GPU {}: {verdict}, {} idle between back-to-back launches. {told}",
                idle.device,
                seconds(bound)
            ))
        })
        .collect();
    if lines.is_empty() {
        return Err(
            "no launch was seen: no watched process submits work, or none maps a CUDA driver library"
                .to_owned(),
        );
    }
    Ok(lines.join(" "))
}

/// Launches of one device in sentences.
pub(super) fn launching(launches: &Launches, window_ns: u64) -> String {
    let mut text = match launches.per_second {
        Some(rate) => format!("{rate:.0} launches a second"),
        None => "Launches were not watched".to_owned(),
    };
    if launches.graphs > 0 {
        let all = launches.kernels.saturating_add(launches.graphs);
        text.push_str(&format!(", {} of {all} of whole graphs", launches.graphs));
    }
    // Below what the probe itself takes.
    if let Some(ns) = launches.call_ns.filter(|&ns| ns > 0) {
        text.push_str(&format!(", {} a call", seconds(ns)));
    }
    text.push('.');
    let silences: Vec<String> = launches
        .silences
        .iter()
        .filter(|s| s.count > 0)
        .map(|s| {
            let length = match s.to_ns {
                Some(to) => format!("{} to {}", length(s.from_ns), length(to)),
                None => format!("{} or more", length(s.from_ns)),
            };
            format!("{} of {length} ({} in all)", s.count, seconds(s.ns))
        })
        .collect();
    if !silences.is_empty() {
        text.push_str(&format!(" Silences without a launch: {}.", silences.join(", ")));
    }
    match launches.host_ahead_ns {
        Some(ns) => text.push_str(&format!(
            " A thread of the host waited in a call for the device to end its work {} of the time.",
            share(ns, window_ns)
        )),
        None => {
            text.push_str(
                " Whether the host waits for the device is not known: no call that waits was seen.",
            );
        }
    }
    text
}

/// A bound between lengths.
fn length(ns: u64) -> String {
    if ns < 1_000_000 { format!("{} us", ns / 1_000) } else { format!("{} ms", ns / 1_000_000) }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
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
                stages.iter().take(4).map(|(s, ns)| format!("{} {}", s.name(), seconds(*ns))).collect();
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

fn copies(devices: Devices<'_>, gpus: &[Gpu]) -> Result<String, String> {
    let lines: Vec<String> = devices
        .iter()
        .zip(gpus)
        .filter_map(|((idle, ledger), gpu)| {
            let of = |mechanism| {
                let causes = ledger.causes.iter().filter(move |c| c.mechanism == mechanism);
                causes.map(|c| c.ns).sum::<u64>()
            };
            let (pageable, transfer) = (of(Mechanism::CopyPageable), of(Mechanism::CopyTransfer));
            let mut told: Vec<String> = gpu.copies.as_ref().map(copying).into_iter().collect();
            if pageable + transfer > 0 {
                told.push(format!(
                    "The GPU stood idle {} during blocking copies from memory not seen to be pinned and {} during \
                     others.",
                    seconds(pageable),
                    seconds(transfer)
                ));
            }
            (!told.is_empty()).then(|| format!("GPU {}: {}", idle.device, told.join(" ")))
        })
        .collect();
    if lines.is_empty() { Err("no copy was seen".to_owned()) } else { Ok(lines.join(" ")) }
}

/// Copies of one device in sentences.
pub(super) fn copying(copies: &Copies) -> String {
    let way = |way: CopyWay, words: &str| {
        let bytes = if way.bytes > 0 { format!(" ({})", size(way.bytes)) } else { String::new() };
        (way.count > 0).then(|| format!("{} {words}{bytes}", way.count))
    };
    let ways = [
        way(copies.to_device, "to the device"),
        way(copies.to_host, "to the host"),
        way(copies.other, "elsewhere or unknown where to"),
    ];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    let mut text = match ways.is_empty() {
        true => format!("{} copies", copies.count),
        false => format!("Copies: {}", ways.join(", ")),
    };
    if let Some(rate) = copies.bytes_per_second {
        text.push_str(&format!("; {:.1} MB a second", rate / 1e6));
    }
    text.push('.');
    if let (Some(mean), Some(longest)) = (copies.mean_gap_ns, copies.longest_gap_ns) {
        text.push_str(&format!(
            " Between two to the device lie {} on average, {} at most.",
            seconds(mean),
            seconds(longest)
        ));
    }
    let own = copies.pinned + copies.pageable + copies.memory_unknown;
    if own > 0 {
        text.push_str(&format!(
            " Host memory of the {own} that blocked or were long: {} pinned, {} pageable, {} not seen.",
            copies.pinned, copies.pageable, copies.memory_unknown
        ));
        text.push_str(&format!(
            " The device ran kernels beside {} of the {} in such calls.",
            share(copies.with_compute_ns, copies.in_calls_ns),
            seconds(copies.in_calls_ns)
        ));
    } else {
        text.push_str(" None blocked, so whether their memory is pinned was not seen.");
    }
    text
}

fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB", b / 1e6),
        b => format!("{:.1} KB", b / 1e3),
    }
}

fn sentence(lines: &[String], otherwise: &str) -> Result<String, String> {
    if lines.is_empty() { Err(otherwise.to_owned()) } else { Ok(format!("{}.", lines.join("; "))) }
}
