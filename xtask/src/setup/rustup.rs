//! rustup's nightly, where it has the source of `core`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::linker;
use super::llvm::Llvm;
use super::toolchain::Toolchain;
use crate::shell::{has, output, say};

/// What a compiler says of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    /// Major version of its LLVM.
    pub llvm: u32,
    pub nightly: bool,
}

/// A nightly that is there, `rust-src` included.
pub fn installed(cache: &Path) -> Result<Toolchain> {
    ensure!(has("rustup"), "no rustup");
    let list = output(Command::new("rustup").args(["toolchain", "list"]))?;
    ensure!(list.lines().any(|l| l.starts_with("nightly-")), "rustup has no nightly");
    let mut toolchain = Toolchain {
        cargo: tool("cargo")?,
        rustc: tool("rustc")?,
        linker: cache.join("bin/bpf-linker"),
        ld_library_path: None,
        bootstrap: false,
    };
    let sysroot = output(toolchain.command(&toolchain.rustc).args(["--print", "sysroot"]))?;
    ensure!(
        Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir(),
        "the nightly has no rust-src"
    );
    let about = describe(&toolchain)?;
    toolchain.bootstrap = !about.nightly;
    let llvm = Llvm::find_or_fetch(cache, about.llvm)?;
    toolchain.linker = linker::install(cache, &llvm, None)?;
    Ok(toolchain)
}

/// The last resort: asks rustup for what is missing.
pub fn fetched(cache: &Path) -> Result<Toolchain> {
    ensure!(has("rustup"), "no rustup");
    say("asking rustup for a nightly with rust-src");
    output(Command::new("rustup").env_remove("RUST_BACKTRACE").args([
        "toolchain",
        "install",
        "nightly",
        "--profile",
        "minimal",
        "--component",
        "rust-src",
    ]))
    .context("rustup cannot fetch it")?;
    installed(cache)
}

/// Asks a compiler for its version.
pub fn describe(toolchain: &Toolchain) -> Result<About> {
    let version = output(toolchain.command(&toolchain.rustc).arg("-vV"))?;
    parse(&version).with_context(|| format!("{} tells no LLVM version", toolchain.rustc.display()))
}

fn parse(version: &str) -> Option<About> {
    let field = |name: &str| version.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    Some(About {
        llvm: field("LLVM version:")?.split('.').next()?.parse().ok()?,
        nightly: field("release:")?.contains("-nightly"),
    })
}

fn tool(name: &str) -> Result<PathBuf> {
    let path = output(Command::new("rustup").args(["which", "--toolchain", "nightly", name]))?;
    Ok(path.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_compilers_say() {
        let stable =
            "rustc 1.96.0 (x) (built from a source tarball)\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(parse(stable), Some(About { llvm: 22, nightly: false }));
        let nightly = "release: 1.97.0-nightly\nLLVM version: 22.1.4\n";
        assert_eq!(parse(nightly), Some(About { llvm: 22, nightly: true }));
        assert_eq!(parse("release: 1.97.0-nightly\n"), None);
        assert_eq!(parse(""), None);
    }
}
