//! `cargo xtask test`: every test of the workspace; those that attach probes as root, the others as the user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::shell::{as_root, captured, output, run, say};
use crate::{libraries, place, setup};

/// The package whose tests need root: real probes, real processes, cgroups.
const PRIVILEGED: &str = "whyidle-tests";

#[derive(Debug, Args)]
pub struct Test {
    /// Exit with success although the privileged tests could not run.
    #[arg(long)]
    allow_skip: bool,
    /// Passed on to the test programs, as in `cargo test -- FILTER`.
    #[arg(last = true)]
    rest: Vec<String>,
}

pub fn test(arguments: &Test) -> Result<()> {
    setup::everything()?;
    say("building");
    let programs = privileged_programs(&["--lib", "--bins", "--tests"])?;
    // Without them one test is left out, and says so.
    if let Err(e) = libraries::fetch() {
        say(format!("no real CUDA libraries to test with: {e:#}"));
    }
    say("tests that need no root");
    let unit = run(cargo()
        .args(["test", "--workspace", "--no-fail-fast", "--exclude", PRIVILEGED, "--"])
        .args(&arguments.rest));
    let privileged = match cannot() {
        Some(reason) => skipped(&programs, &reason, arguments.allow_skip),
        None => as_root_all(&programs, &arguments.rest),
    };
    match (unit, privileged) {
        (Ok(()), Ok(())) => Ok(()),
        (Ok(()), Err(e)) | (Err(e), Ok(())) => Err(e),
        (Err(unit), Err(privileged)) => bail!("{unit:#}; {privileged:#}"),
    }
}

fn cargo() -> Command {
    let mut cargo = Command::new(place::cargo());
    cargo.current_dir(place::root());
    cargo
}

/// Why probes cannot be attached here.
fn cannot() -> Option<String> {
    if as_root("true").is_none() {
        return Some("needs root, and `sudo -n` does not give it".into());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("this kernel has no BTF (/sys/kernel/btf/vmlinux)".into());
    }
    None
}

fn as_root_all(programs: &[PathBuf], rest: &[String]) -> Result<()> {
    say("tests that need root, one at a time");
    let left_out = place::target().join("left-out");
    fs::write(&left_out, "").with_context(|| left_out.display().to_string())?;
    let mut failed = Vec::new();
    for program in programs {
        // By `env`: sudo hands nothing of the environment on.
        let mut command = as_root("env").context("root was there a moment ago")?;
        command.arg("WHYIDLE_TESTS_BUILT=1").arg(format!("WHYIDLE_LEFT_OUT={}", left_out.display()));
        command.arg(program).args(["--test-threads", "1"]).args(rest);
        if let Err(e) = run(command.current_dir(place::root().join("tests"))) {
            failed.push(format!("{e:#}"));
        }
    }
    let left_out = fs::read_to_string(&left_out)?;
    for line in left_out.lines() {
        say(line);
    }
    say(format!(
        "{} things were left out of the tests, for which this machine has not what they need",
        left_out.lines().count()
    ));
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}

fn skipped(programs: &[PathBuf], reason: &str, allowed: bool) -> Result<()> {
    let mut count = 0;
    for program in programs {
        let list = captured(Command::new(program).arg("--list"))?;
        count += String::from_utf8_lossy(&list.stdout).lines().filter(|l| l.ends_with(": test")).count();
    }
    let message = format!("SKIPPED: {count} privileged tests did NOT run: {reason}");
    eprintln!("\n{0}\n{message}\n{0}\n", "=".repeat(message.len().min(100)));
    if allowed { Ok(()) } else { bail!("{message} (pass --allow-skip to accept that)") }
}

/// Built by the user, so that nothing of root's is left in the target folder. `choice` is what cargo takes,
/// such as `--test GLOB`. All packages are asked for in one go: for fewer of them cargo turns on fewer features,
/// and builds what it has once more.
pub fn privileged_programs(choice: &[&str]) -> Result<Vec<PathBuf>> {
    let messages = output(
        cargo()
            .args(["build", "--workspace", "--message-format", "json-render-diagnostics"])
            .args(choice)
            .stderr(Stdio::inherit()),
    )?;
    Ok(executables(&messages, &place::root().join("tests/Cargo.toml")))
}

#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Test programs of one package among cargo's messages, one JSON object a line.
fn executables(messages: &str, manifest: &Path) -> Vec<PathBuf> {
    messages
        .lines()
        .filter_map(|l| serde_json::from_str::<Message>(l).ok())
        .filter(|m| m.manifest_path.as_deref() == Some(manifest))
        .filter(|m| m.profile.as_ref().is_some_and(|p| p.test))
        .filter_map(|m| m.executable)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_test_programs_only() {
        let messages = r#"
            {"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","profile":{"test":true},"executable":"/t/probes-1"}
            {"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","profile":{"test":false},"executable":"/t/whyidle"}
            {"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","profile":{"test":true},"executable":null}
            {"reason":"compiler-artifact","manifest_path":"/q/Cargo.toml","profile":{"test":true},"executable":"/t/other-1"}
            {"reason":"build-finished","success":true}
            not json"#;
        assert_eq!(executables(messages, Path::new("/p/Cargo.toml")), [PathBuf::from("/t/probes-1")]);
    }
}
