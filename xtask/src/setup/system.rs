//! What the running system must have for the demo, the tests and the benchmarks; only root can change it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell::{as_root, captured, has, output, run, say};

/// A Debian package and the command that shows it is there.
pub type Package = (&'static str, &'static str);

/// Installs the packages whose command is missing.
pub fn install(packages: &[Package]) -> Result<()> {
    let missing: Vec<_> =
        packages.iter().filter(|(_, command)| !has(command)).map(|(name, _)| *name).collect();
    if missing.is_empty() { Ok(()) } else { apt_install(&missing) }
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let wish = format!("apt-get install {}", packages.join(" "));
    ensure!(has("apt-get"), "missing, and there is no apt-get to get it: {}", packages.join(" "));
    let attempt = || -> Result<()> {
        let Some(mut apt) = as_root("apt-get") else { bail!("needs root: run `{wish}`") };
        let options = ["-q", "-y", "--no-install-recommends", "install"];
        output(apt.env("DEBIAN_FRONTEND", "noninteractive").args(options).args(packages))?;
        Ok(())
    };
    say(format!("installing {}", packages.join(" ")));
    if attempt().is_ok() {
        return Ok(());
    }
    if let Some(mut apt) = as_root("apt-get") {
        output(apt.args(["-q", "update"])).context("Debian's package lists cannot be fetched")?;
    }
    attempt()
}

/// A Python that has Pillow, which the demo's job decodes its images with.
pub fn python() -> Result<PathBuf> {
    let candidates = || {
        let system = PathBuf::from("/usr/bin/python3");
        [Some(system), which::which("python3").ok()].into_iter().flatten()
    };
    let works = |python: &PathBuf| can_import(python, "PIL.Image");
    if let Some(python) = candidates().find(works) {
        return Ok(python);
    }
    apt_install(&["python3", "python3-pil"])?;
    candidates().find(works).context("no python3 can import PIL although python3-pil is installed")
}

/// What cases of the scoreboard serve a file system with.
pub fn fuse() -> Result<()> {
    install(&[("fuse", "fusermount")])?;
    if can_import(&python()?, "fusepy") { Ok(()) } else { apt_install(&["python3-fusepy"]) }
}

fn can_import(python: &Path, module: &str) -> bool {
    let import = format!("import {module}");
    captured(Command::new(python).args(["-c", &import])).is_ok_and(|o| o.status.success())
}

/// The classic tracepoints' numbers and formats.
pub fn tracefs() -> Result<()> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    if places.iter().any(|p| Path::new(p).join("events").is_dir()) {
        return Ok(());
    }
    let mount = "mount -t tracefs tracefs /sys/kernel/tracing";
    let Some(mut command) = as_root("mount") else { bail!("tracefs is not mounted: as root, run `{mount}`") };
    say("mounting tracefs on /sys/kernel/tracing");
    run(command.args(["-t", "tracefs", "tracefs", "/sys/kernel/tracing"]))
        .context("tracefs cannot be mounted")
}
