//! What the runs of a case came to, kept with their trace: what reads a trace can change without another recording.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::run::{Told, Way, folder, run};
use super::score::Spent;

/// A run without the fault and one with it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    /// What they were recorded with.
    pub commit: String,
    /// [`Case::conditions`].
    pub conditions: String,
    pub base: Spent,
    pub fault: Spent,
    /// By the job with the fault.
    pub told: Told,
    /// Of the run with the fault.
    pub trace: PathBuf,
}

impl Kept {
    /// Those of an earlier sitting, if any.
    pub fn read(name: &str, seed: u64) -> Option<Self> {
        let bytes = fs::read(place(name, seed).ok()?.join("runs.json")).ok()?;
        let kept: Self = serde_json::from_slice(&bytes).ok()?;
        kept.trace.exists().then_some(kept)
    }

    /// Runs them, and keeps them for another sitting if a commit is given.
    pub fn make(name: &str, case: &Case, seed: u64, commit: Option<&str>) -> Result<Self> {
        let traced = !case.untraced_truth;
        let base = run(name, case, Way { seed, fault: false, traced })?;
        let fault = run(name, case, Way { seed, fault: true, traced: true })?;
        let recorded = fault.trace.as_deref().context("a run with the fault is traced")?;
        let place = match commit {
            Some(_) => place(name, seed)?,
            None => folder(name)?,
        };
        let (trace, told) = (place.join("kept.whyidle"), place.join("runs.json"));
        // Never an earlier account beside a later trace.
        drop(fs::remove_file(&told));
        fs::rename(recorded, &trace).with_context(|| trace.display().to_string())?;
        let spent = if traced {
            Spent::from(&fault)
        } else {
            Spent::from(&run(name, case, Way { seed, fault: true, traced })?)
        };
        let kept = Self {
            commit: commit.unwrap_or_default().to_owned(),
            conditions: case.conditions(),
            base: Spent::from(&base),
            fault: spent,
            told: fault.told,
            trace,
        };
        if commit.is_some() {
            fs::write(&told, serde_json::to_vec(&kept)?).with_context(|| told.display().to_string())?;
        }
        Ok(kept)
    }
}

fn place(name: &str, seed: u64) -> Result<PathBuf> {
    let place = folder(name)?.join(format!("seed-{seed}"));
    fs::create_dir_all(&place)?;
    Ok(place)
}
