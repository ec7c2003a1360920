//! Running other programs, with errors that say which one failed and how.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// Says what is being done, on standard error, so that a report on standard output stays clean.
pub fn say(message: impl AsRef<str>) {
    eprintln!("xtask: {}", message.as_ref());
}

/// Whether this process may do what only root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether `program` is on the path.
pub fn has(program: &str) -> bool {
    which::which(program).is_ok()
}

/// Runs a command whose output the reader should see.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| not_started(command))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command for what it prints; what it complains about goes into the error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = captured(command).with_context(|| not_started(command))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint = complaint.trim();
        bail!("`{}` failed: {}\n{complaint}", line(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command and hands back everything, whatever its exit status.
pub fn captured(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()
}

/// A command that runs as root: itself where we are root, by `sudo -n` where that works.
pub fn as_root(program: impl AsRef<OsStr>) -> Option<Command> {
    if is_root() {
        return Some(Command::new(program));
    }
    let may = Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status().ok()?;
    may.success().then(|| {
        let mut command = Command::new("sudo");
        command.args(["-n", "env"]);
        // sudo resets the environment; where things lie is the user's to say.
        for name in ["CARGO_TARGET_DIR", "WHYIDLE_CACHE"] {
            if let Some(value) = env::var_os(name) {
                let mut pair = OsString::from(name);
                pair.push("=");
                pair.push(value);
                command.arg(pair);
            }
        }
        command.arg(program);
        command
    })
}

/// Runs what was asked for once more as root, with `flag` to say that all that needs no root is done.
pub fn again_as_root(why: &str, flag: &str) -> Result<()> {
    let Some(mut again) = as_root(env::current_exe()?) else {
        bail!("{why}, which needs root: run it as root, or where `sudo -n` works")
    };
    say("the rest needs root: going on with sudo");
    run(again.args(env::args_os().skip(1)).arg(flag))
}

/// The command as a person would type it.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

fn not_started(command: &Command) -> String {
    format!("`{}` could not be started; is it installed?", command.get_program().to_string_lossy())
}
