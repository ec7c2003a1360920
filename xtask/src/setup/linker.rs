//! bpf-linker, built from the registry against the LLVM at hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::llvm::Llvm;
use crate::place;
use crate::shell::{captured, run, say};

/// The version this project builds with.
pub const VERSION: &str = "0.13.0";

/// Builds it, unless the one in `cache` is it.
pub fn install(cache: &Path, llvm: &Llvm, ld_library_path: Option<&str>) -> Result<PathBuf> {
    let linker = cache.join("bin/bpf-linker");
    let built_for = cache.join("bin/bpf-linker.llvm");
    let wanted = format!("{VERSION} {}", llvm.library.display());
    if works(&linker, ld_library_path) && fs::read_to_string(&built_for).is_ok_and(|b| b == wanted) {
        return Ok(linker);
    }
    let prefix = llvm.prefix(cache)?;
    say(format!("building bpf-linker {VERSION} against LLVM {} (about a minute)", llvm.major));
    let mut cargo = Command::new(place::cargo());
    cargo
        // Not the workspace's folder: its cargo settings are not meant for this.
        .current_dir(cache)
        .args(["install", "bpf-linker", "--quiet", "--locked", "--force", "--no-default-features"])
        .args(["--version", &format!("={VERSION}"), "--features", &format!("llvm-{}", llvm.major)])
        .arg("--root")
        .arg(cache)
        .env("LLVM_PREFIX", &prefix)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    if let Some(path) = ld_library_path {
        cargo.env("LD_LIBRARY_PATH", path);
    }
    run(&mut cargo).context("bpf-linker cannot be built (it needs the crate registry and a C compiler)")?;
    fs::write(&built_for, wanted)?;
    Ok(linker)
}

fn works(linker: &Path, ld_library_path: Option<&str>) -> bool {
    let mut command = Command::new(linker);
    if let Some(path) = ld_library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    captured(command.arg("--version"))
        .is_ok_and(|o| o.status.success() && String::from_utf8_lossy(&o.stdout).contains(VERSION))
}
