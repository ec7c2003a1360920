//! A kernel of Debian's, fetched and unpacked into the cache once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Kernel;
use crate::setup::{Apt, exclusive, unpack};

/// Always the newest build of its kernel; made small for virtual machines, with BTF.
const PACKAGE: &str = "linux-image-cloud-amd64";

#[derive(Debug)]
pub struct Image {
    pub vmlinuz: PathBuf,
    /// `lib/modules/RELEASE`.
    pub modules: PathBuf,
    pub release: String,
}

pub fn fetched(cache: &Path, kernel: Kernel) -> Result<Image> {
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let _lock = exclusive(cache)?;
    let root = cache.join(kernel.version());
    if let Ok(image) = find(&root) {
        return Ok(image);
    }
    let apt = Apt::suite(cache, kernel.suite())?;
    let depends = apt.depends(PACKAGE)?;
    let wanted = format!("linux-image-{}.", kernel.version());
    let package = depends
        .into_iter()
        .find(|d| d.starts_with(&wanted) && d.ends_with("-cloud-amd64"))
        .with_context(|| format!("{PACKAGE} of {} is no {}", kernel.suite(), kernel.version()))?;
    let debs = cache.join(format!("{}-debs", kernel.version()));
    apt.download_alone(&[package], &debs)?;
    unpack(&debs, &root)?;
    find(&root)
}

fn find(root: &Path) -> Result<Image> {
    for entry in fs::read_dir(root.join("boot"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(release) = name.strip_prefix("vmlinuz-") else { continue };
        // `/lib` moved below `/usr` in trixie.
        let places = ["usr/lib/modules", "lib/modules"].map(|p| root.join(p).join(release));
        let modules = places.into_iter().find(|p| p.is_dir()).context("a kernel without modules")?;
        return Ok(Image { vmlinuz: root.join("boot").join(&name), modules, release: release.into() });
    }
    anyhow::bail!("no kernel in {}", root.display())
}
