//! Debian's matched compiler, cargo and source of `core`, unpacked beside the system.

use std::env;
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
        packages.extend(depends.into_iter().filter(|d| together(d)));
    }
    packages.sort();
    packages.dedup();
    apt.download(&packages, debs)
}
