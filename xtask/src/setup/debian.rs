//! Debian's matched compiler, cargo and source of `core`, unpacked beside the system.

use std::env;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::apt::{Apt, unpack};
use super::linker;
use super::llvm::{Llvm, library_folders};
use super::rustup::describe;
use super::toolchain::Toolchain;
use crate::shell::say;

const ROOTS: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Packages whose files must lie in one tree with the compiler's, installed on this system or not.
const TOGETHER: [&str; 3] = ["libstd-rust-web", "libllvm", "libgit2"];

pub fn unpacked(cache: &Path) -> Result<Toolchain> {
    let root = cache.join("root");
    if !root.join("usr/bin/rustc").exists() || !root.join("usr/bin/cargo").exists() {
        let debs = cache.join("debs");
        let system = Apt::system()?;
        if let Err(e) = fetch(&system, &debs) {
            say(format!("the system's package lists do not do ({e:#})"));
            fetch(&Apt::own(cache)?, &debs)?;
        }
        unpack(&debs, &root)?;
    }
    let folders = library_folders(&root);
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
        format!("the unpacked packages hold no LLVM {} that bpf-linker can use", about.llvm)
    })?;
    toolchain.linker = linker::install(cache, &llvm, toolchain.ld_library_path.as_deref())?;
    Ok(toolchain)
}

fn fetch(apt: &Apt, debs: &Path) -> Result<()> {
    let mut packages: Vec<String> = ROOTS.map(String::from).to_vec();
    for root in ROOTS {
        let depends = apt.depends(root)?;
        packages.extend(depends.into_iter().filter(|d| TOGETHER.iter().any(|t| d.starts_with(t))));
    }
    packages.sort();
    packages.dedup();
    apt.download(&packages, debs)
}
