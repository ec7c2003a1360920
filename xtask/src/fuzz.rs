//! `cargo xtask fuzz`: the readers of what others wrote, fed with mutated files.
//!
//! Built by the stable compiler with LLVM's coverage counters, which is what libFuzzer steers by; no sanitizer is
//! needed to see panics, endless loops and too large allocations.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::shell::{output, run, say};
use crate::{place, setup};

const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Longest input, in bytes: a small program fits.
const LONGEST: usize = 65_536;

#[derive(Debug, Args)]
pub struct Fuzz {
    /// One target (`fuzz/fuzz_targets`) instead of all, one after the other.
    target: Option<String>,
    /// How long each is fed.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Any file to begin with, for the one target.
    #[arg(long, requires = "target")]
    seed: Vec<PathBuf>,
}

pub fn fuzz(arguments: &Fuzz) -> Result<()> {
    setup::build_tools()?;
    let fuzz = place::root().join("fuzz");
    let targets = targets(&fuzz)?;
    let chosen: Vec<&String> =
        targets.iter().filter(|t| arguments.target.as_ref().is_none_or(|wanted| wanted == *t)).collect();
    if chosen.is_empty() {
        bail!("no such target; there are: {}", targets.join(", "));
    }
    say("building the fuzz targets");
    let folder = place::target().join("fuzz");
    run(Command::new(place::cargo())
        .current_dir(&fuzz)
        // Given a target, cargo keeps the flags from build scripts and macros.
        .args(["build", "--release", "--target", &host()?])
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f")))?;
    let programs = folder.join(host()?).join("release");
    let mut failed = Vec::new();
    for target in chosen {
        let corpus = folder.join("corpus").join(target);
        fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
        seed(target, &corpus, &arguments.seed)?;
        say(format!("{target}, for {} s", arguments.seconds));
        let artifacts = format!("-artifact_prefix={}/{target}-", folder.display());
        let fed = run(Command::new(programs.join(target))
            .arg(format!("-max_total_time={}", arguments.seconds))
            .arg(format!("-max_len={LONGEST}"))
            .args(["-rss_limit_mb=4096", "-timeout=20", "-print_final_stats=1", "-verbosity=0"])
            .arg(artifacts)
            .arg(&corpus));
        if let Err(error) = fed {
            failed.push(format!("{target}: {error:#}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}

/// By the names of their files.
fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(fuzz.join("fuzz_targets"))?
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn host() -> Result<String> {
    let told = output(Command::new("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say for which machine it builds")
}

/// What a target begins with: files of the kind it reads.
fn seed(target: &str, corpus: &Path, given: &[PathBuf]) -> Result<()> {
    for file in given {
        let name = file.file_name().context("a seed is a file")?;
        fs::copy(file, corpus.join(name)).with_context(|| file.display().to_string())?;
    }
    match target {
        "elf" | "eh_frame" => {
            let program = which::which("true")?;
            fs::copy(&program, corpus.join("true")).with_context(|| program.display().to_string())?;
        }
        "kineto" => fs::write(corpus.join("events"), KINETO)?,
        "perf_map" => fs::write(corpus.join("map"), "1000 20 first\n1020 8 second one\nffff x\n")?,
        // Of memory only the length matters at first, which is slow to grow by itself.
        "python" => {
            for seed in 1..=PYTHON_SEEDS {
                fs::write(corpus.join(format!("memory-{seed}")), noise(seed))?;
            }
        }
        _ => {}
    }
    Ok(())
}

const PYTHON_SEEDS: u64 = 8;

/// A page of numbers, the same for the same seed.
fn noise(seed: u64) -> Vec<u8> {
    let step = |x: &u64| Some((x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd).wrapping_add(seed));
    std::iter::successors(Some(seed), step).take(512).flat_map(u64::to_le_bytes).collect()
}

const KINETO: &str = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": [
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
 "args": {"device": 0, "stream": 7, "correlation": 3, "grid": [1, 1, 1]}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1, "dur": 2,
 "args": {"correlation": 3}}]}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built() {
        let fuzz = place::root().join("fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the manifest");
        let targets = targets(&fuzz).expect("the folder");
        assert!(targets.len() >= 5);
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
        }
    }
}
