//! The shared LLVM that bpf-linker is built against. Its version may be newer than the compiler's, not older.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::apt::{Apt, unpack};
use crate::shell::say;

/// The majors that bpf-linker can be built for.
pub const MAJORS: [u32; 3] = [21, 22, 23];

#[derive(Debug)]
pub struct Llvm {
    pub major: u32,
    /// The shared library itself.
    pub library: PathBuf,
}

impl Llvm {
    /// The oldest LLVM in `folders` that reads what a compiler of major `at_least` writes.
    pub fn find(folders: &[PathBuf], at_least: u32) -> Option<Self> {
        let mut found: Vec<Self> = folders.iter().flat_map(|folder| libraries(folder)).collect();
        found.sort_by_key(|l| (l.major, l.library.clone()));
        found.into_iter().find(|l| l.major >= at_least && MAJORS.contains(&l.major))
    }

    /// As installed on this system, else Debian's, unpacked into the cache.
    pub fn find_or_fetch(cache: &Path, at_least: u32) -> Result<Self> {
        let unpacked = cache.join("llvm-root");
        let mut folders = system_folders();
        folders.extend(library_folders(&unpacked));
        if let Some(found) = Self::find(&folders, at_least) {
            return Ok(found);
        }
        say(format!("no LLVM {at_least} library here; looking for Debian's"));
        let fetch = |apt: Apt| -> Result<()> {
            let name = MAJORS
                .iter()
                .filter(|&&m| m >= at_least)
                .map(|m| format!("libllvm{m}"))
                .find(|name| apt.knows(name))
                .with_context(|| format!("no package libllvm{at_least} or later (to {})", MAJORS[2]))?;
            apt.download(&[name], &cache.join("llvm-debs"))
        };
        Apt::system().and_then(fetch).or_else(|_| Apt::own(cache).and_then(fetch))?;
        unpack(&cache.join("llvm-debs"), &unpacked)?;
        Self::find(&library_folders(&unpacked), at_least).context("the LLVM package holds no library")
    }

    /// Lays a prefix as bpf-linker's build wants one: `lib/libLLVM.so` and the name it is loaded by.
    pub fn prefix(&self, cache: &Path) -> Result<PathBuf> {
        let prefix = cache.join("llvm");
        let lib = prefix.join("lib");
        if lib.exists() {
            fs::remove_dir_all(&lib)?;
        }
        fs::create_dir_all(&lib)?;
        let Some(soname) = self.library.file_name() else { bail!("{} is no file", self.library.display()) };
        symlink(&self.library, lib.join("libLLVM.so"))?;
        symlink(&self.library, lib.join(soname))?;
        Ok(prefix)
    }
}

/// The folders of an unpacked tree that may hold shared libraries.
pub fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for lib in ["usr/lib", "lib"] {
        let lib = root.join(lib);
        folders.extend(entries(&lib).into_iter().filter(|p| {
            p.is_dir() && p.file_name().is_some_and(|n| n.to_string_lossy().contains("-linux-"))
        }));
        folders.push(lib);
    }
    folders.retain(|f| f.is_dir());
    folders
}

fn system_folders() -> Vec<PathBuf> {
    let mut folders = library_folders(Path::new("/"));
    folders.extend(MAJORS.map(|m| PathBuf::from(format!("/usr/lib/llvm-{m}/lib"))));
    folders.push("/usr/lib64".into());
    folders
}

/// `libLLVM.so.22.1` and, of older packagings, `libLLVM-22.so`.
fn libraries(folder: &Path) -> Vec<Llvm> {
    entries(folder)
        .into_iter()
        .filter_map(|library| {
            let name = library.file_name()?.to_str()?;
            let major = name.strip_prefix("libLLVM.so.")?.split('.').next()?.parse().ok()?;
            Some(Llvm { major, library })
        })
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_oldest_that_is_new_enough() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libLLVM.so.19.1", "libLLVM.so.22.1", "libLLVM.so.23.0", "libLLVM.so", "libLLVM.so.x"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let folders = [dir.path().to_path_buf()];
        assert_eq!(Llvm::find(&folders, 18).unwrap().major, 22);
        assert_eq!(Llvm::find(&folders, 23).unwrap().major, 23);
        assert!(Llvm::find(&folders, 24).is_none());
    }
}
