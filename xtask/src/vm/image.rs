//! A kernel of Debian's with what its modules are built from, fetched and unpacked into the cache once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{Kernel, standin};
use crate::setup::{Apt, exclusive, unpack};

/// Always the newest build of its kernel; made small for virtual machines, with BTF.
const PACKAGE: &str = "linux-image-cloud-amd64";

#[derive(Debug)]
pub struct Image {
    pub vmlinuz: PathBuf,
    /// `lib/modules/RELEASE`.
    pub modules: PathBuf,
    pub release: String,
    /// Headers as configured for this kernel, and those all kernels of its version share.
    pub headers: PathBuf,
    pub common: PathBuf,
}

/// Of what the headers depend on: the headers all kernels of the version share, the build's own programs, and the
/// libraries these need.
const FOR_MODULES: [&str; 6] = ["linux-headers-", "linux-kbuild-", "libc6", "libelf1", "zlib1g", "libzstd1"];

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
    let headers = package.replacen("image", "headers", 1);
    let needs = apt.depends(&headers)?.into_iter().filter(|d| FOR_MODULES.iter().any(|p| d.starts_with(p)));
    let mut packages: Vec<String> = needs.chain([package, headers]).collect();
    packages.sort();
    packages.dedup();
    let debs = cache.join(format!("{}-debs", kernel.version()));
    if debs.exists() {
        fs::remove_dir_all(&debs)?;
    }
    apt.download_alone(&packages, &debs)?;
    unpack(&debs, &root)?;
    standin::usable(&root)?;
    find(&root)
}

fn find(root: &Path) -> Result<Image> {
    for entry in fs::read_dir(root.join("boot"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(release) = name.strip_prefix("vmlinuz-") else { continue };
        // `/lib` moved below `/usr` in trixie.
        let places = ["usr/lib/modules", "lib/modules"].map(|p| root.join(p).join(release));
        let modules = places.into_iter().find(|p| p.is_dir()).context("a kernel without modules")?;
        let headers = root.join("usr/src").join(format!("linux-headers-{release}"));
        let version = release.trim_end_matches("-cloud-amd64");
        let common = root.join("usr/src").join(format!("linux-headers-{version}-common"));
        ensure!(headers.is_dir() && common.is_dir(), "no headers for {release} in {}", root.display());
        let (vmlinuz, release) = (root.join("boot").join(&name), release.into());
        return Ok(Image { vmlinuz, modules, release, headers, common });
    }
    anyhow::bail!("no kernel in {}", root.display())
}
