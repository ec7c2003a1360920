//! Real CUDA libraries, to hold the table of entry points against. They are inputs of a test: fetched from
//! packages into the cache, never committed, never loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::place;
use crate::setup::Apt;
use crate::shell::{output, run, say};

/// Python wheels that hold the CUDA runtime, version 12 and the newest.
const WHEELS: [&str; 2] = ["nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"];
/// Debian's releases whose `libcuda1` holds the driver's library.
const SUITES: [&str; 2] = ["bookworm", "trixie"];
const DRIVER: &str = "libcuda1";

/// Where they lie, a folder a package.
pub fn folder() -> PathBuf {
    place::cache().join("cuda-libraries")
}

/// Fetches what is not there yet.
pub fn fetch() -> Result<()> {
    let folder = folder();
    for wheel in WHEELS {
        unless_there(&folder.join(wheel), |part| unpack_wheel(wheel, part))?;
    }
    for suite in SUITES {
        unless_there(&folder.join(format!("{DRIVER}-{suite}")), |part| unpack_driver(suite, part))?;
    }
    say(format!("real CUDA libraries lie in {}", folder.display()));
    Ok(())
}

/// A folder that is complete or absent, never half there.
fn unless_there(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let part = folder.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part)?;
    fill(&part).with_context(|| format!("{} cannot be had", folder.display()))?;
    fs::rename(&part, folder)?;
    Ok(())
}

fn unpack_wheel(name: &str, into: &Path) -> Result<()> {
    say(format!("fetching the wheel {name}"));
    let wheels = into.join("wheels");
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", name, "--dest"];
    output(Command::new("python3").args(pip).arg(&wheels))?;
    for wheel in fs::read_dir(&wheels)? {
        output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(into))?;
    }
    fs::remove_dir_all(&wheels)?;
    Ok(())
}

fn unpack_driver(suite: &str, into: &Path) -> Result<()> {
    let debs = into.join("debs");
    Apt::section(&place::cache(), suite, "non-free")?.download_alone(&[DRIVER.to_owned()], &debs)?;
    for deb in fs::read_dir(&debs)? {
        run(Command::new("dpkg-deb").arg("-x").arg(deb?.path()).arg(into))?;
    }
    fs::remove_dir_all(&debs)?;
    Ok(())
}
