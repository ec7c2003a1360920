//! Finds or fetches what building, the demo and the tests need. Root is used only for what the system
//! itself must have (packages, tracefs), never for building.

mod apt;
mod debian;
mod linker;
mod llvm;
mod lock;
mod proof;
mod rustup;
mod system;
mod toolchain;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::place;
use crate::shell::say;
use toolchain::Toolchain;

pub use apt::{Apt, unpack};
pub use lock::exclusive;
pub use system::{Package, fuse, install, python, tracefs};

/// Compilers of the programs that tests watch.
const COMPILERS: [Package; 2] = [("gcc", "cc"), ("g++", "c++")];

/// The whole of `cargo xtask setup`.
pub fn everything() -> Result<()> {
    build_tools()?;
    let ready = [install(&COMPILERS), python().map(drop), fuse(), tracefs()];
    for missing in ready.into_iter().filter_map(Result::err) {
        say(format!("not ready: {missing:#}"));
    }
    Ok(())
}

/// What `tracer/build.rs` needs: a compiler that can build `core` for BPF, and bpf-linker.
pub fn build_tools() -> Result<()> {
    let cache = place::cache();
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let _lock = exclusive(&cache)?;
    if let Some(known) = Toolchain::read(&cache)? {
        match known.check() {
            Ok(()) => return Ok(()),
            Err(e) => {
                say(format!("the tools in {} no longer work ({e:#}); setting up again", cache.display()));
            }
        }
    }
    let mut refused = Vec::new();
    for (name, way) in WAYS {
        match way(&cache).and_then(|found| proven(found, &cache)) {
            Ok(found) => {
                found.write(&cache)?;
                say(format!(
                    "eBPF build tools ready: {name}; described in {}",
                    Toolchain::path(&cache).display()
                ));
                return Ok(());
            }
            Err(e) => refused.push(format!("  {name}: {e:#}")),
        }
    }
    bail!("no way to get the eBPF build tools works here:\n{}", refused.join("\n"))
}

type Way = fn(&Path) -> Result<Toolchain>;

/// What is installed already comes first, what changes a rustup installation last.
const WAYS: [(&str, Way); 3] = [
    ("rustup's nightly with rust-src", rustup::installed),
    ("Debian's rustc-web, cargo-web and rust-web-src", debian::unpacked),
    ("rustup's nightly, to be fetched", rustup::fetched),
];

fn proven(found: Toolchain, cache: &Path) -> Result<Toolchain> {
    found.check()?;
    say("trying the tools on a small program (compiles core once)");
    proof::build(&found, cache)?;
    Ok(found)
}
