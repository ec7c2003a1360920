//! Builds a small kernel object, so that a tool chain that cannot is found out before it is written down.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::toolchain::{TARGET, Toolchain};
use crate::shell::output;

const MANIFEST: &str = "[package]\nname = \"proof\"\nedition = \"2021\"\n[workspace]\n";

const PROGRAM: &str = r#"#![no_std]
#![no_main]
#[no_mangle]
#[link_section = "classifier"]
pub extern "C" fn proof(context: *const u32) -> u32 {
    if context.is_null() { 0 } else { 1 }
}
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
"#;

/// `EM_BPF` of elf.h.
const MACHINE: u16 = 247;

pub fn build(toolchain: &Toolchain, cache: &Path) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("proof").tempdir_in(cache)?;
    let at = folder.path();
    fs::create_dir(at.join("src"))?;
    fs::write(at.join("Cargo.toml"), MANIFEST)?;
    fs::write(at.join("src/main.rs"), PROGRAM)?;
    let flags = format!("-Clinker={}\x1f-Clink-arg=--btf\x1f-Cdebuginfo=2", toolchain.linker.display());
    let mut cargo = toolchain.command(&toolchain.cargo);
    cargo
        .current_dir(at)
        .args(["build", "--release", "-Z", "build-std=core", "--target", TARGET, "--target-dir"])
        .arg(at.join("target"))
        .env("RUSTC", &toolchain.rustc)
        .env("CARGO_ENCODED_RUSTFLAGS", flags);
    if toolchain.bootstrap {
        cargo.env("RUSTC_BOOTSTRAP", "1");
    }
    output(&mut cargo).context("the tools cannot build a kernel object")?;
    let object = at.join("target").join(TARGET).join("release/proof");
    let bytes = fs::read(&object).with_context(|| format!("no {}", object.display()))?;
    ensure!(machine(&bytes) == Some(MACHINE), "{} is no BPF object", object.display());
    Ok(())
}

/// `e_machine` of a little-endian ELF file.
fn machine(bytes: &[u8]) -> Option<u16> {
    bytes.strip_prefix(b"\x7fELF")?;
    Some(u16::from_le_bytes([*bytes.get(18)?, *bytes.get(19)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_bpf_object_from_others() {
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(18, 0);
        assert_eq!(machine(&elf), None);
        elf.extend(247u16.to_le_bytes());
        assert_eq!(machine(&elf), Some(MACHINE));
        assert_eq!(machine(b"#!/bin/sh and some more text"), None);
    }
}
