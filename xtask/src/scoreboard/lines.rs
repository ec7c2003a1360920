//! The board: one line of JSON a run, in `docs/scoreboard.jsonl`. The last of a case and seed counts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::score::Line;
use crate::place;

fn path() -> PathBuf {
    place::root().join("docs/scoreboard.jsonl")
}

pub fn read() -> Result<Vec<Line>> {
    let Ok(text) = fs::read_to_string(path()) else { return Ok(Vec::new()) };
    text.lines()
        .map(|l| serde_json::from_str(l).with_context(|| format!("{}: {l}", path().display())))
        .collect()
}

/// Replaces the file at once, so that a run that is killed leaves the board whole.
pub fn write(lines: &[Line]) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(line)?);
        text.push('\n');
    }
    let part = path().with_extension("jsonl.part");
    fs::write(&part, text)?;
    fs::rename(part, path()).context("docs/scoreboard.jsonl")
}
