//! Which commits measure the same as this one: a board of many runs is not made in one go.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::place;
use crate::shell::output;

/// The jobs of the cases.
const JOBS: &str = "tests/job";
/// What a run measures, and what it is measured with.
const MEASURED: [&str; 14] = [
    "Cargo.lock",
    "Cargo.toml",
    "tests/gpu-sim",
    JOBS,
    "tests/programs/team.c",
    "tracer",
    "tracer-ebpf",
    "xtask/src/device",
    "xtask/src/scoreboard",
    "xtask/src/vm",
    // How the page looks, and which runs are made.
    ":(exclude)xtask/src/scoreboard/page.rs",
    ":(exclude)xtask/src/scoreboard/mod.rs",
    ":(exclude,glob)tracer/src/**/tests.rs",
    ":(exclude,glob)tracer/src/**/tests/**",
];
/// What of it has no part in a recording: the rooms that read traces, and what is asked of a case
/// ([`Case::conditions`](super::case::Case::conditions) says what is asked of its runs). Of the jobs, each case's own
/// counts ([`fingerprint`]).
const READING: [&str; 14] = [
    ":(exclude)tests/job",
    ":(exclude)xtask/src/scoreboard/case.rs",
    ":(exclude)xtask/src/scoreboard/kept.rs",
    ":(exclude)xtask/src/scoreboard/lines.rs",
    ":(exclude)xtask/src/scoreboard/report.rs",
    ":(exclude)xtask/src/scoreboard/same.rs",
    ":(exclude)xtask/src/scoreboard/score.rs",
    ":(exclude)tracer/src/cause",
    ":(exclude)tracer/src/eval",
    ":(exclude)tracer/src/finding",
    ":(exclude)tracer/src/idle",
    ":(exclude)tracer/src/import",
    ":(exclude)tracer/src/render",
    ":(exclude)tracer/src/timeline",
];

/// Against one commit: the tree as it is.
#[derive(Debug)]
pub struct Same<'c> {
    commit: &'c str,
    measure: BTreeMap<String, bool>,
    record: BTreeMap<String, bool>,
    /// The jobs of other commits, where they can be had.
    jobs: BTreeMap<String, Option<TempDir>>,
}

impl<'c> Same<'c> {
    pub fn new(commit: &'c str) -> Self {
        Self { commit, measure: BTreeMap::new(), record: BTreeMap::new(), jobs: BTreeMap::new() }
    }

    /// Whether a line of another commit would be a line of this one.
    pub fn measures(&mut self, other: &str) -> bool {
        if other == self.commit {
            // One with changes may have had others since.
            return !other.ends_with('+');
        }
        *self.measure.entry(other.to_owned()).or_insert_with(|| no_difference(other, &[]))
    }

    /// Whether another commit's recordings of a case would be recordings of this one.
    pub fn records(&mut self, case: &str, other: &str) -> bool {
        let recorder = self
            .record
            .entry(other.to_owned())
            .or_insert_with(|| !other.ends_with('+') && no_difference(other, &READING));
        *recorder && self.has_job(case, other)
    }

    fn has_job(&mut self, case: &str, other: &str) -> bool {
        let Some(then) = self.jobs.entry(other.to_owned()).or_insert_with(|| jobs(other).ok()) else {
            return false;
        };
        let of = |root: &Path| fingerprint(&root.join(JOBS), case).ok();
        of(place::root()).is_some_and(|now| of(then.path()) == Some(now))
    }
}

/// Between another commit and the tree as it is. With changes of its own the other is no commit, nor is one that this
/// history does not have.
fn no_difference(other: &str, but: &[&str]) -> bool {
    let mut git = Command::new("git");
    git.current_dir(place::root()).args(["diff", "--quiet", other, "--"]).args(MEASURED).args(but);
    git.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Those of another commit, in a folder of their own.
fn jobs(other: &str) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("jobs.tar");
    let mut git = Command::new("git");
    git.current_dir(place::root()).args(["archive", "--output"]).arg(&archive).args([other, JOBS]);
    output(&mut git)?;
    output(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder.path()))?;
    Ok(folder)
}

/// Of all that a case's run depends on in a folder of jobs; by the tree's own script, whatever commit the folder is of.
fn fingerprint(jobs: &Path, case: &str) -> Result<String> {
    let script = place::root().join(JOBS).join("fingerprint.py");
    output(Command::new("python3").arg(script).arg(jobs).arg(case)).context("which job a recording is of")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_commit_that_is_not_there_measures_nothing_of_this_one() {
        let mut same = Same::new("this");
        assert!(same.measures("this"));
        assert!(!same.measures("no-such-commit") && !same.measures("0123456789+"));
        assert!(!same.records("slow-read", "no-such-commit") && !same.records("slow-read", "0123456789+"));
        assert!(!same.has_job("slow-read", "no-such-commit"));
    }

    const CASES: &str = "
from helper import help
import other

def ours(run):
    \"Does a step.\"
    step(run)

def theirs(run):
    other.step(run)

def step(run):
    help(run)

CASES = {'ours': ours, 'theirs': theirs}
";

    /// A folder of jobs with a case's module, and what it imports.
    fn folder(cases: &str, helper: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("cases")).unwrap();
        let files =
            [("case.py", "import cases"), ("helper.py", helper), ("other.py", ""), ("cases/__init__.py", "")];
        for (name, text) in files.into_iter().chain([("cases/some.py", cases)]) {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_case_depends_on_what_its_function_needs() {
        let of =
            |cases: &str, helper: &str, case: &str| fingerprint(folder(cases, helper).path(), case).unwrap();
        let (ours, theirs) = (of(CASES, "", "ours"), of(CASES, "", "theirs"));
        assert_ne!(ours, theirs);
        // Their own function, what is said of ours, and the list of cases.
        let changed = CASES
            .replace("other.step(run)", "other.leap(run)")
            .replace("Does a step.", "Steps.")
            .replace("    step(run)", "    # Now.\n    step(run)");
        let longer = changed.replace("{'ours'", "{'new': step, 'ours'");
        assert_eq!(of(&longer, "", "ours"), ours);
        assert_ne!(of(&longer, "", "theirs"), theirs);
        // Through a function of the module, and through a module.
        let through = CASES.replace("    help(run)", "    help(run, 1)");
        for (cases, helper) in [(through.as_str(), ""), (CASES, "x = 1")] {
            assert_ne!(of(cases, helper, "ours"), ours);
            assert_eq!(of(cases, helper, "theirs"), theirs);
        }
        assert!(fingerprint(folder(CASES, "").path(), "none").is_err());
    }

    #[test]
    fn the_tree_s_own_jobs_can_be_told_apart() {
        let of = |case: &str| fingerprint(&place::root().join(JOBS), case).unwrap();
        assert_ne!(of("slow-read"), of("cold-read"));
    }
}
