//! `cargo xtask scoreboard`: faults injected into real jobs on the simulated device, and whether `whyidle` finds them.
//!
//! Each case runs with its fault and without, the same steps on the same data. What the fault cost is the difference
//! in idle time, by the device's own account: nothing in it comes from the tracer.

mod case;
mod guest;
mod lines;
mod page;
mod report;
mod run;
mod score;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::shell::{again_as_root, is_root, output, say};
use crate::{demo, place, setup};
use case::{Case, Cases};
use run::{Way, run};
use score::{Line, Reports, Spent, score};

#[derive(Debug, Args)]
pub struct Scoreboard {
    /// Only this case; repeatable [default: all].
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// How often each case is run, with seeds from 1 on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Run again what the board has of this commit already, or of one in which nothing of what is measured differs.
    #[arg(long)]
    again: bool,
    /// Neither read nor write the board: only say what came of it.
    #[arg(long)]
    dry_run: bool,
    /// Write docs/scoreboard.md from the board as it is, and run nothing.
    #[arg(long)]
    page: bool,
    /// Everything is built: only root's part is left.
    #[arg(long, hide = true)]
    built: bool,
}

pub fn scoreboard(arguments: &Scoreboard) -> Result<()> {
    let all = case::read(&[])?;
    if arguments.page {
        return page::write(&all, &lines::read()?);
    }
    let cases = case::read(&arguments.case)?;
    if !arguments.built {
        demo::prepare()?;
        setup::fuse()?;
    }
    if !is_root() {
        return again_as_root("the scoreboard injects faults and attaches probes", "--built");
    }
    setup::tracefs()?;
    // Only the board's lines need it.
    let commit = if arguments.dry_run { String::new() } else { commit()? };
    let mut board = if arguments.dry_run { Vec::new() } else { lines::read()? };
    let mut same = Same::new(&commit);
    let mut fresh = Vec::new();
    let mut failed = Vec::new();
    for seed in 1..=arguments.seeds {
        for (name, case) in &cases {
            let of_it = |l: &&Line| l.case == *name && l.seed == seed;
            if !arguments.again && board.iter().filter(of_it).any(|l| same.measures(&l.commit)) {
                say(format!("{name}, seed {seed}: on the board already"));
                continue;
            }
            say(format!("{name}, seed {seed}"));
            match both(name, case, seed, &commit) {
                Ok(line) => {
                    println!("{}", page::told(case, &line));
                    if !arguments.dry_run {
                        board.retain(|l| !(of_it(&l) && l.commit == commit));
                        board.push(line.clone());
                        lines::write(&board)?;
                    }
                    fresh.push(line);
                }
                Err(e) => {
                    say(format!("{name}, seed {seed}: FAILED: {e:#}"));
                    failed.push(format!("{name} (seed {seed})"));
                }
            }
        }
    }
    if !arguments.dry_run {
        page::write(&all, &board)?;
    }
    ensure!(failed.is_empty(), "could not be run: {}", failed.join(", "));
    verdict(&cases, &fresh)
}

fn both(name: &str, case: &Case, seed: u64, commit: &str) -> Result<Line> {
    let traced = !case.untraced_truth;
    let base = run(name, case, Way { seed, fault: false, traced })?;
    let fault = run(name, case, Way { seed, fault: true, traced: true })?;
    let reports = Reports::of(case, &fault)?;
    let spent = if traced {
        Spent::from(&fault)
    } else {
        Spent::from(&run(name, case, Way { seed, fault: true, traced })?)
    };
    score((name, seed, commit), case, Spent::from(&base), spent, &reports)
}

fn verdict(cases: &Cases, lines: &[Line]) -> Result<()> {
    let expected = |l: &&Line| cases.get(&l.case).is_some_and(|c| c.miss.is_none());
    let wrong: Vec<&str> =
        lines.iter().filter(|l| !l.right).filter(expected).map(|l| l.case.as_str()).collect();
    if wrong.is_empty() { Ok(()) } else { bail!("the first cause is wrong: {}", wrong.join(", ")) }
}

/// What a run measures, and what it is measured with.
const MEASURED: [&str; 6] =
    ["Cargo.lock", "tests/gpu-sim", "tests/job", "tracer", "tracer-ebpf", "xtask/src/scoreboard/run.rs"];

/// Which commits measure the same as this one: a board of many runs is not made in one go.
struct Same<'c> {
    commit: &'c str,
    known: BTreeMap<String, bool>,
}

impl<'c> Same<'c> {
    fn new(commit: &'c str) -> Self {
        Self { commit, known: BTreeMap::new() }
    }

    fn measures(&mut self, other: &str) -> bool {
        if other == self.commit {
            return true;
        }
        *self.known.entry(other.to_owned()).or_insert_with(|| {
            let mut git = Command::new("git");
            git.current_dir(place::root()).args(["diff", "--quiet", other, "--"]).args(MEASURED);
            // With changes of its own it is no commit, nor is one that this history does not have.
            git.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        })
    }
}

/// What the lines are of: the commit, marked where the tree has changes.
fn commit() -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(place::root()).args(["describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=10"]);
    Ok(output(&mut git).context("the scoreboard's lines name the commit")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_not_there_measures_nothing_of_this_one() {
        let mut same = Same::new("this");
        assert!(same.measures("this"));
        assert!(!same.measures("no-such-commit") && !same.measures("0123456789+"));
    }
}
