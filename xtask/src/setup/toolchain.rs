//! The description of the eBPF build tools that `tracer/build.rs` reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::linker;
use crate::shell::output;

/// The target the kernel object is built for.
pub const TARGET: &str = "bpfel-unknown-none";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    pub cargo: PathBuf,
    pub rustc: PathBuf,
    /// bpf-linker
    pub linker: PathBuf,
    /// Where the tools' own shared libraries lie, if not in the system's folders.
    pub ld_library_path: Option<String>,
    /// A stable compiler, which needs `RUSTC_BOOTSTRAP=1` to build `core`.
    pub bootstrap: bool,
}

impl Toolchain {
    pub fn path(cache: &Path) -> PathBuf {
        cache.join("toolchain.json")
    }

    /// The description kept in `cache`; `None` where there is none, or one that cannot be read.
    pub fn read(cache: &Path) -> Result<Option<Self>> {
        let path = Self::path(cache);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(serde_json::from_slice(&bytes).ok())
    }

    /// Replaced whole, and only when something changed: its time stamp makes cargo build the object again.
    pub fn write(&self, cache: &Path) -> Result<()> {
        if Self::read(cache)?.as_ref() == Some(self) {
            return Ok(());
        }
        let path = Self::path(cache);
        let fresh = cache.join("toolchain.json.new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A command that finds the tools' libraries.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(path) = &self.ld_library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        // A compiler that was asked for by path must not be swapped for another by rustup.
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("RUSTFLAGS");
        command
    }

    /// Whether every part is there and runs.
    pub fn check(&self) -> Result<()> {
        output(self.command(&self.cargo).arg("--version"))?;
        let targets = output(self.command(&self.rustc).args(["--print", "target-list"]))?;
        ensure!(targets.lines().any(|t| t == TARGET), "{} knows no target {TARGET}", self.rustc.display());
        let sysroot = output(self.command(&self.rustc).args(["--print", "sysroot"]))?;
        let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core");
        ensure!(core.is_dir(), "the source of `core` is missing (rust-src): no {}", core.display());
        let version = output(self.command(&self.linker).arg("--version"))?;
        ensure!(
            version.contains(linker::VERSION),
            "{} is {}, not {}",
            self.linker.display(),
            version.trim(),
            linker::VERSION
        );
        Ok(())
    }
}
