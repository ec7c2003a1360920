//! The kernel's own account of what each program cost (`kernel.bpf_stats_enabled`).

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::shell::output;

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// One loaded program, as bpftool shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Program {
    id: u32,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub run_time_ns: u64,
    #[serde(default)]
    pub run_cnt: u64,
}

impl Program {
    /// What it did since `before`.
    pub fn less(&self, before: &BTreeMap<u32, Self>) -> Self {
        let (ran, runs) = before.get(&self.id).map_or((0, 0), |b| (b.run_time_ns, b.run_cnt));
        Self {
            run_time_ns: self.run_time_ns.saturating_sub(ran),
            run_cnt: self.run_cnt.saturating_sub(runs),
            ..self.clone()
        }
    }
}

/// Every loaded program, by its id.
pub fn programs() -> Result<BTreeMap<u32, Program>> {
    let shown = output(Command::new("bpftool").args(["prog", "show", "-j"]))?;
    let programs: Vec<Program> = serde_json::from_str(&shown).context("bpftool's JSON")?;
    Ok(programs.into_iter().map(|p| (p.id, p)).collect())
}

/// Programs that were not there before.
pub fn since(before: &BTreeMap<u32, Program>, now: &BTreeMap<u32, Program>) -> Vec<Program> {
    now.values().filter(|p| !before.contains_key(&p.id)).cloned().collect()
}

/// Switched on while it lives, put back as it was afterwards: it costs every program a little.
#[derive(Debug)]
pub struct Enabled {
    was: String,
}

impl Enabled {
    pub fn new() -> Result<Self> {
        let was = fs::read_to_string(SWITCH).context(SWITCH)?;
        fs::write(SWITCH, "1").context(SWITCH)?;
        Ok(Self { was })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        drop(fs::write(SWITCH, &self.was));
    }
}
