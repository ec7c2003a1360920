//! Compares a report with what the simulated device really did, and with what the case put in.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::case::{Case, Expect};
use crate::device::truth::{self, Busy};

/// How far the ledger's idle time may be from the truth, in percentage points of the window.
const TOLERANCE: f64 = 3.0;

/// Prints one line for each thing compared; fails if any does not hold.
pub fn all(case: Case, report: &Path, truth: &Path) -> Result<()> {
    let report: Value = serde_json::from_slice(&fs::read(report)?).context("the report's JSON")?;
    let truth = truth::read(truth)?;
    let gpu = report["gpus"].get(0).context("the report has no GPU")?;
    let checks = [idle(gpu, &truth)?, cause(case, &report, gpu)?, names(case, gpu)];
    println!("\nThe report beside what was put in ({}):", case.name());
    for (holds, text) in checks.iter().flatten() {
        println!("  {} {text}", if *holds { "ok    " } else { "FAILED" });
    }
    let failed = checks.iter().flatten().filter(|c| !c.0).count();
    let crowded = contention_ns(gpu);
    if failed > 0 && crowded > gpu["window_ns"].as_u64().unwrap_or(0) / 50 {
        println!(
            "  The report finds {:.1} s of waiting for processors that other programs used: run it again on a quiet machine.",
            crowded as f64 / 1e9
        );
    }
    if failed > 0 { bail!("{failed} of the demo's checks failed") } else { Ok(()) }
}

/// Idle time that the ledger puts down to other programs on the machine.
fn contention_ns(gpu: &Value) -> u64 {
    let causes = gpu["causes"].as_array().into_iter().flatten();
    causes.filter(|c| c["mechanism"] == "schedule.contention").filter_map(|c| c["ns"].as_u64()).sum()
}

type Check = (bool, String);

fn idle(gpu: &Value, truth: &[Busy]) -> Result<Vec<Check>> {
    let number = |name: &str| gpu[name].as_u64().with_context(|| format!("the report has no {name}"));
    let (start, window) = (number("start_ns")?, number("window_ns")?);
    let (busy, idle, unknown) = (number("busy_ns")?, number("idle_ns")?, number("unknown_ns")?);
    ensure!(window > 0, "the report's window is empty");
    let index = number("index")?;
    let truly_busy = truth::busy_ns(truth, index, start, start + window);
    let truly_idle = window.saturating_sub(truly_busy);
    let share = |ns: u64| ns as f64 / window as f64 * 100.0;
    let off = (share(idle) - share(truly_idle)).abs();
    Ok(vec![
        (
            busy + idle + unknown == window,
            format!("busy {busy} + idle {idle} + unknown {unknown} = window {window} ns"),
        ),
        (
            off <= TOLERANCE,
            format!(
                "idle {:.2} % of the window in the ledger, {:.2} % in truth: {off:.2} points apart (at most {TOLERANCE})",
                share(idle),
                share(truly_idle)
            ),
        ),
        (unknown == 0, format!("{:.2} % of the window unknown", share(unknown))),
    ])
}

fn cause(case: Case, report: &Value, gpu: &Value) -> Result<Vec<Check>> {
    let causes = gpu["causes"].as_array().context("the report has no causes")?;
    let idle = gpu["idle_ns"].as_u64().context("the report has no idle_ns")?;
    let sum: u64 = causes.iter().filter_map(|c| c["ns"].as_u64()).sum();
    let mut checks = vec![(sum == idle, format!("the causes sum to the idle time ({sum} of {idle} ns)"))];
    match case.expect() {
        Expect::Healthy => {
            let window = gpu["window_ns"].as_u64().unwrap_or(0).max(1);
            let share = idle as f64 / window as f64 * 100.0;
            checks.push((share < 5.0, format!("idle {share:.2} % of the window (under 5)")));
            let findings = report["findings"].as_array().map_or(0, Vec::len);
            checks.push((findings == 0, format!("{findings} findings (none)")));
        }
        Expect::Largest { mechanism, .. } => {
            let (first, ns) = largest(causes).context("the report names no cause")?;
            let share = ns as f64 / idle.max(1) as f64 * 100.0;
            checks.push((
                first.starts_with(mechanism),
                format!("largest share: {first}, {share:.0} % of the idle time (expected {mechanism}*)"),
            ));
        }
    }
    Ok(checks)
}

/// The stage or mechanism with most idle time, causes of one mechanism added up.
fn largest(causes: &[Value]) -> Option<(String, u64)> {
    let mut sums = std::collections::BTreeMap::<&str, u64>::new();
    for cause in causes {
        *sums.entry(cause["mechanism"].as_str()?).or_default() += cause["ns"].as_u64()?;
    }
    sums.into_iter().max_by_key(|&(_, ns)| ns).map(|(name, ns)| (name.to_owned(), ns))
}

/// The culprit must be named in the chain: the files' folder, the worker process, the decoder.
fn names(case: Case, gpu: &Value) -> Vec<Check> {
    let Expect::Largest { mechanism, named } = case.expect() else { return Vec::new() };
    let of_it: Vec<String> = gpu["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|c| c["mechanism"].as_str().is_some_and(|m| m.starts_with(mechanism)))
        .map(Value::to_string)
        .collect();
    named
        .iter()
        .map(|name| {
            let there = of_it.iter().any(|c| c.contains(name));
            (there, format!("`{name}` named in the chains of {mechanism}*"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gpu(idle: u64) -> Value {
        json!({"index": 0, "start_ns": 1000, "window_ns": 1000, "busy_ns": 1000 - idle, "idle_ns": idle,
               "unknown_ns": 0})
    }

    #[test]
    fn idle_is_compared_within_the_window() {
        let truth = truth::parse(
            "{\"device\":0,\"start_ns\":500,\"end_ns\":1500}\n{\"device\":1,\"start_ns\":0,\"end_ns\":9000}\n\
             {\"device\":0,\"start_ns\":1900,\"end_ns\":2500}\n",
        )
        .unwrap();
        assert!(idle(&gpu(400), &truth).unwrap().iter().all(|c| c.0));
        assert!(idle(&gpu(430), &truth).unwrap().iter().all(|c| c.0));
        assert!(!idle(&gpu(440), &truth).unwrap().iter().all(|c| c.0));
    }

    #[test]
    fn causes_of_one_mechanism_count_together() {
        let causes = json!([
            {"mechanism": "prepare.python", "ns": 50},
            {"mechanism": "storage.read", "ns": 30},
            {"mechanism": "storage.read", "ns": 40},
        ]);
        assert_eq!(largest(causes.as_array().unwrap()), Some(("storage.read".into(), 70)));
    }
}
