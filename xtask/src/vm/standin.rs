//! The stand-in for the NVIDIA driver, built for the guest's kernel.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::image::Image;
use crate::place;
use crate::shell::{output, say};

const NAME: &str = "nvidia_standin";

/// What differs from how Debian built the kernel: with the compiler that is here, and without type information of
/// the module's own, which would take the kernel's.
const OPTIONS: [&str; 5] = [
    "CC=gcc",
    "HOSTCC=gcc",
    "CROSS_COMPILE=",
    "CONFIG_DEBUG_INFO_BTF_MODULES=",
    // An option that compilers before gcc 13 do not know.
    "CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=",
];

/// Builds the module in `folder`; returns its path.
pub fn built(image: &Image, folder: &Path) -> Result<PathBuf> {
    say(format!("building {NAME} for {}", image.release));
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder)?;
    let source = place::root().join("tests/nvidia-standin");
    for file in ["Kbuild".to_owned(), format!("{NAME}.c")] {
        fs::copy(source.join(&file), folder.join(&file)).with_context(|| file)?;
    }
    let mut make = Command::new("make");
    // The headers' own Makefile names the other half where the packages would have installed it.
    make.arg("-C").arg(&image.headers).arg("-f").arg(image.common.join("Makefile"));
    make.arg(format!("M={}", folder.display())).args(OPTIONS).arg("modules");
    output(&mut make)?;
    let module = folder.join(format!("{NAME}.ko"));
    ensure!(module.exists(), "no {} was built", module.display());
    Ok(module)
}

/// Lets the kernel's build programs use the C library they came with: this system's may be older.
pub fn usable(root: &Path) -> Result<()> {
    let folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|f| root.join(f));
    let loader = folders
        .iter()
        .map(|f| f.join("ld-linux-x86-64.so.2"))
        .find(|l| l.exists())
        .with_context(|| format!("no loader in {}", root.display()))?;
    let libraries = folders.each_ref().map(|f| f.display().to_string()).join(":");
    for entry in fs::read_dir(root.join("usr/lib"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("linux-kbuild-") {
            for program in programs(&entry.path())? {
                let mut patch = Command::new("patchelf");
                patch.arg("--set-interpreter").arg(&loader).args(["--force-rpath", "--set-rpath"]);
                output(patch.arg(&libraries).arg(program))?;
            }
        }
    }
    Ok(())
}

/// ELF programs below a folder.
fn programs(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|e| (e.file_type(), e.path()))?;
        let kind = entry?;
        if kind.is_dir() {
            found.extend(programs(&path)?);
        } else if kind.is_file() && fs::metadata(&path)?.permissions().mode() & 0o100 != 0 {
            let mut magic = Vec::new();
            fs::File::open(&path)?.take(4).read_to_end(&mut magic)?;
            if magic == b"\x7fELF" {
                found.push(path);
            }
        }
    }
    Ok(found)
}
