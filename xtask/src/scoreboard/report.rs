//! What `whyidle report` says of a trace, as far as it is judged.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::run::whyidle;
use crate::shell::output;

#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    pub window: Window,
    pub gpus: Vec<Gpu>,
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Window {
    pub start_ns: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Gpu {
    pub index: u32,
    pub window_ns: u64,
    pub idle_ns: u64,
    pub unknown_ns: u64,
    pub causes: Vec<Cause>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Cause {
    pub mechanism: String,
    pub ns: u64,
    pub gain_ns: u64,
    pub culprit: Value,
    pub chain: Value,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Finding {
    pub mechanism: String,
}

impl Report {
    /// Of a part of a trace, in nanoseconds on `CLOCK_MONOTONIC`; of one device where one is named.
    pub fn of(trace: &Path, (from, to): (u64, u64), gpu: Option<u32>) -> Result<Self> {
        let start = Self::read(trace, &[])?.window.start_ns;
        let offset = |at: u64| format!("{}ns", at.saturating_sub(start));
        let mut report = Self::read(trace, &["--from", &offset(from), "--to", &offset(to)])?;
        report.gpus.retain(|g| gpu.is_none_or(|index| g.index == index));
        Ok(report)
    }

    fn read(trace: &Path, part: &[&str]) -> Result<Self> {
        let mut command = Command::new(whyidle());
        command.arg("report").arg(trace).args(["--format", "json"]).args(part);
        serde_json::from_str(&output(&mut command)?).context("the report's JSON")
    }

    fn causes(&self) -> impl Iterator<Item = &Cause> {
        self.gpus.iter().flat_map(|g| &g.causes)
    }

    /// Sums over all devices by mechanism: part of the ledger and gain.
    pub fn mechanisms(&self) -> BTreeMap<&str, Sum> {
        let mut sums = BTreeMap::<&str, Sum>::new();
        for cause in self.causes() {
            let sum = sums.entry(&cause.mechanism).or_default();
            sum.ns += cause.ns;
            sum.gain_ns += cause.gain_ns;
        }
        sums
    }

    /// The mechanism with the largest gain.
    pub fn first(&self) -> Option<&str> {
        let sums = self.mechanisms();
        sums.into_iter().max_by_key(|(_, sum)| (sum.gain_ns, sum.ns)).map(|(name, _)| name)
    }

    /// Whether causes that are at least half of what goes to these mechanisms have one of `names` in their culprit or
    /// chain.
    pub fn names(&self, mechanisms: &[String], names: &[String]) -> bool {
        let (mut named, mut whole) = (0, 0);
        for cause in self.causes().filter(|c| mechanisms.contains(&c.mechanism)) {
            let text = format!("{} {}", cause.culprit, cause.chain);
            whole += cause.ns;
            named += if names.iter().any(|name| text.contains(name)) { cause.ns } else { 0 };
        }
        whole > 0 && named >= whole - named
    }

    pub fn ledger_ns(&self) -> u64 {
        self.gpus.iter().map(|g| g.window_ns - g.unknown_ns).sum()
    }

    pub fn idle_ns(&self) -> u64 {
        self.gpus.iter().map(|g| g.idle_ns).sum()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    pub ns: u64,
    pub gain_ns: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn half_of_what_goes_to_a_mechanism_names_its_culprit() {
        let named = |large: u64, of_another: u64| {
            let cause = |mechanism: &str, ns: u64, file: &str| {
                json!({"mechanism": mechanism, "ns": ns, "gain_ns": ns,
                       "culprit": {"kind": "file", "name": file}, "chain": []})
            };
            let causes = [
                cause("storage.read", large, "/data/a"),
                cause("storage.read", 10, "/data/b"),
                cause("lock.gil", of_another, "/data/b"),
            ];
            let report: Report = serde_json::from_value(json!({
                "window": {"start_ns": 0}, "findings": [],
                "gpus": [{"index": 0, "window_ns": 100, "idle_ns": 100, "unknown_ns": 0, "causes": causes}],
            }))
            .unwrap();
            report.names(&["storage.read".into()], &["/data/b".into()])
        };
        assert!(named(10, 0) && !named(11, 0));
        assert!(!named(11, 50), "another mechanism's cause counts for nothing");
    }
}
