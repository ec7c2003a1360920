//! Debian's matched compiler, cargo and source of `core`, unpacked beside the system.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::apt::{Apt, unpack};
use super::linker;
use super::llvm::{Llvm, MAJORS, library_folders};
use super::rustup::describe;
use super::toolchain::Toolchain;
use crate::shell::say;

const ROOTS: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Whether a package's files must lie in one tree with the compiler's, installed on this system or not.
fn together(package: &str) -> bool {
    // Other LLVMs are alternatives of alternatives (a C compiler), and no use.
    package.starts_with("libstd-rust-web") || MAJORS.iter().any(|m| package == format!("libllvm{m}"))
}

/// From the system's package lists, else from fresh ones: the system's may be old, and then name a compiler
/// whose LLVM bpf-linker no longer knows, or packages that are gone.
pub fn unpacked(cache: &Path) -> Result<Toolchain> {
    let root = cache.join("root");
    if has_compiler(&root) {
        match described(cache, &root) {
            Ok(usable) => return linked(cache, usable),
            Err(e) => say(format!("what was unpacked before does not do ({e:#})")),
        }
    }
    let system = Apt::system()?;
    let usable = fetched(&system, cache, &root).or_else(|e| {
        say(format!("the system's package lists do not do ({e:#})"));
        fetched(&Apt::own(cache)?, cache, &root)
    })?;
    linked(cache, usable)
}

fn has_compiler(root: &Path) -> bool {
    ["usr/bin/rustc", "usr/bin/cargo"].iter().all(|tool| root.join(tool).exists())
}

fn fetched(apt: &Apt, cache: &Path, root: &Path) -> Result<(Toolchain, Llvm)> {
    let debs = cache.join("debs");
    // Left by an attempt that was interrupted, perhaps of another version.
    if debs.exists() {
        fs::remove_dir_all(&debs)?;
    }
    fetch(apt, &debs)?;
    unpack(&debs, root)?;
    described(cache, root)
}

/// The unpacked compiler and the LLVM to link with; an error if the two cannot serve.
fn described(cache: &Path, root: &Path) -> Result<(Toolchain, Llvm)> {
    let folders = library_folders(root);
    let ld_library_path =
        env::join_paths(&folders)?.into_string().ok().context("the cache's path is no UTF-8")?;
    let mut toolchain = Toolchain {
        cargo: root.join("usr/bin/cargo"),
        rustc: root.join("usr/bin/rustc"),
        linker: cache.join("bin/bpf-linker"),
        ld_library_path: Some(ld_library_path),
        bootstrap: true,
    };
    let about = describe(&toolchain)?;
    toolchain.bootstrap = !about.nightly;
    let llvm = Llvm::find(&folders, about.llvm).with_context(|| {
        format!("the packages hold LLVM {}, and no LLVM that bpf-linker can use", about.llvm)
    })?;
    Ok((toolchain, llvm))
}

fn linked(cache: &Path, (mut toolchain, llvm): (Toolchain, Llvm)) -> Result<Toolchain> {
    toolchain.linker = linker::install(cache, &llvm, toolchain.ld_library_path.as_deref())?;
    Ok(toolchain)
}

fn fetch(apt: &Apt, debs: &Path) -> Result<()> {
    let mut packages: Vec<String> = ROOTS.map(String::from).to_vec();
    for root in ROOTS {
        let depends = apt.depends(root)?;
        packages.extend(depends.into_iter().filter(|d| together(d)));
    }
    packages.sort();
    packages.dedup();
    apt.download(&packages, debs)
}
