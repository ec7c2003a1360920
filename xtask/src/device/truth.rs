//! When the simulated device was really busy, as its library wrote it down.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// A line of the truth file: half-open, nanoseconds on CLOCK_MONOTONIC. Lines of a device do not overlap.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Busy {
    device: u64,
    start_ns: u64,
    end_ns: u64,
}

pub fn read(path: &Path) -> Result<Vec<Busy>> {
    let text = fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
    parse(&text)
}

pub fn parse(text: &str) -> Result<Vec<Busy>> {
    text.lines().map(|l| serde_json::from_str(l).with_context(|| format!("the truth file: {l}"))).collect()
}

/// Nanoseconds of `[from, to)` in which a kernel ran on the device.
pub fn busy_ns(truth: &[Busy], device: u64, from: u64, to: u64) -> u64 {
    truth
        .iter()
        .filter(|b| b.device == device)
        .map(|b| b.end_ns.min(to).saturating_sub(b.start_ns.max(from)))
        .sum()
}
