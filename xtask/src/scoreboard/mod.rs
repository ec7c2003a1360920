//! `cargo xtask scoreboard`: faults injected into real jobs on the simulated device, and whether `whyidle` finds them.
//!
//! Each case runs with its fault and without, the same steps on the same data. What the fault cost is the difference
//! in idle time, by the device's own account: nothing in it comes from the tracer.

mod case;
mod guest;
mod kept;
mod lines;
mod page;
mod report;
mod run;
mod same;
mod score;

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::shell::{again_as_root, is_root, output, say};
use crate::{demo, place, setup};
use case::{Case, Cases};
use kept::Kept;
use same::Same;
use score::{Line, Reports, score};

#[derive(Debug, Args)]
pub struct Scoreboard {
    /// Only this case; repeatable [default: all].
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// How often each case is run, with seeds from 1 on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Run again what the board has of this commit already, or of one in which nothing of what is measured differs.
    /// Without it, traces that are still there are read anew where only what reads them has changed.
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
            let kept = Kept::read(name, seed).filter(|k| {
                !arguments.again
                    && !arguments.dry_run
                    && k.conditions == case.conditions()
                    && same.records(name, &k.commit)
            });
            match judge(name, case, seed, &commit, kept) {
                Ok(line) => {
                    println!("{}", page::told(case, &line));
                    if !arguments.dry_run {
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

/// Reads what was kept, or runs the case first.
fn judge(name: &str, case: &Case, seed: u64, commit: &str, kept: Option<Kept>) -> Result<Line> {
    let kept =
        kept.map_or_else(|| Kept::make(name, case, seed, (!commit.is_empty()).then_some(commit)), Ok)?;
    score((name, seed, commit), case, &kept, &Reports::of(case, &kept)?)
}

fn verdict(cases: &Cases, lines: &[Line]) -> Result<()> {
    let expected = |l: &&Line| cases.get(&l.case).is_some_and(|c| c.miss.is_none());
    let wrong: Vec<&str> =
        lines.iter().filter(|l| !l.right).filter(expected).map(|l| l.case.as_str()).collect();
    if wrong.is_empty() { Ok(()) } else { bail!("the first cause is wrong: {}", wrong.join(", ")) }
}

/// What the lines are of: the commit, marked where the tree has changes.
fn commit() -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(place::root()).args(["describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=10"]);
    Ok(output(&mut git).context("the scoreboard's lines name the commit")?.trim().to_owned())
}
