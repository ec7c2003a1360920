//! Interpreters with packages that the job needs, made with the registry where the interpreter lacks them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether an interpreter can import all of these.
#[must_use]
pub fn has(python: &Path, modules: &[&str]) -> bool {
    quietly(Command::new(python).args(["-c", &format!("import {}", modules.join(", "))]))
}

/// An environment in `folder` of an interpreter that has these packages: what the interpreter itself has, and the rest
/// from the registry. It is kept there for the next time.
///
/// # Errors
/// Why it could not be made.
pub fn environment(
    python: &Path,
    folder: &Path,
    packages: &[&str],
    modules: &[&str],
) -> Result<PathBuf, String> {
    let made = folder.join("bin/python");
    if has(&made, modules) {
        return Ok(made);
    }
    let venv = ["-m", "venv", "--clear", "--system-site-packages"];
    if !quietly(Command::new(python).args(venv).arg(folder)) {
        return Err(format!("{}: it makes no environment (python3-venv)", python.display()));
    }
    let install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"];
    if !quietly(Command::new(&made).args(install).args(packages)) || !has(&made, modules) {
        return Err(format!(
            "{} for {}: pip does not install them",
            packages.join(" and "),
            python.display()
        ));
    }
    Ok(made)
}

fn quietly(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
