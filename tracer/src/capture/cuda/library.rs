//! One driver library: where to attach, and at which offsets.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{EntryPoint, collectives, names};
use crate::symbol::elf::{self, ElfError};

/// A mapped driver library, opened, so that it can be attached to whatever becomes of its name, its mount
/// namespace and the process it was found in.
#[derive(Debug)]
pub struct Library {
    file: File,
    /// As the process sees it, for people to read.
    pub path: PathBuf,
    /// The process it was found in first.
    pub pid: u32,
    pub entry_points: Vec<EntryPoint>,
    /// Names of the table that this library does not export.
    pub missing: Vec<&'static str>,
}

/// A driver library that is mapped but cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("{} (mapped by process {pid}): cannot be opened: {source}", path.display())]
    Open { path: PathBuf, pid: u32, source: io::Error },
    #[error("{} (mapped by process {pid}): {reason}", path.display())]
    Elf { path: PathBuf, pid: u32, reason: String },
    #[error("{} (mapped by process {pid}): exports none of the functions that are probed", path.display())]
    NoEntryPoint { path: PathBuf, pid: u32 },
}

/// Names a file for good. The same file seen through two overlays of one image is one: a probe is put on the
/// file below, so a second one would count every call twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    dev: u64,
    inode: u64,
    size: u64,
}

pub(super) fn file_key(file: &File) -> io::Result<FileKey> {
    /// `OVERLAYFS_SUPER_MAGIC`.
    const OVERLAY: i64 = 0x794c_7630;
    let stat = file.metadata()?;
    let overlay = rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type == OVERLAY);
    Ok(FileKey { dev: if overlay { 0 } else { stat.dev() }, inode: stat.ino(), size: stat.size() })
}

impl Library {
    pub(super) fn read(file: File, path: PathBuf, pid: u32) -> Result<Self, LibraryError> {
        let damaged = |e: ElfError, path: &Path| LibraryError::Elf {
            path: path.to_owned(),
            pid,
            reason: e.to_string(),
        };
        let wanted: HashMap<_, _> = names_in(&path).map(|n| (n.name.as_bytes(), n)).collect();
        let mut offsets = HashMap::new();
        let copy =
            file.try_clone().map_err(|source| LibraryError::Open { path: path.clone(), pid, source })?;
        elf::exports(copy, &mut |export| {
            if let Some(name) = wanted.get(export.name) {
                offsets.entry(name.id).or_insert(export.file_offset);
            }
        })
        .map_err(|e| damaged(e, &path))?;
        let (mut entry_points, mut missing, mut taken) = (Vec::new(), Vec::new(), HashSet::new());
        for n in names_in(&path) {
            match offsets.get(&n.id) {
                // Two names of one function: a second probe there would see each call twice.
                Some(&file_offset) if taken.insert(file_offset) => entry_points.push(EntryPoint {
                    name: n.name,
                    id: n.id,
                    family: n.family,
                    file_offset,
                    wants_return: n.wants_return,
                }),
                Some(_) => {}
                None => missing.push(n.name),
            }
        }
        if entry_points.is_empty() {
            return Err(LibraryError::NoEntryPoint { path, pid });
        }
        Ok(Self { file, path, pid, entry_points, missing })
    }

    /// What was read of another kind of library.
    pub(super) fn of(file: File, path: PathBuf, pid: u32, entry_points: Vec<EntryPoint>) -> Self {
        Self { file, path, pid, entry_points, missing: Vec::new() }
    }

    /// A path to attach to: valid in this process for as long as this value lives.
    #[must_use]
    pub fn attach_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// What is looked for in a library of this name.
fn names_in(path: &Path) -> impl Iterator<Item = super::Name> {
    let wanted = collectives::is_library(path);
    names().filter(move |n| collectives::is_function(n.name) == wanted)
}

/// Names of the functions that a library exports.
///
/// # Errors
/// It is no library, in one sentence.
pub fn exported(library: File) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    elf::exports(library, &mut |export| {
        names.insert(String::from_utf8_lossy(export.name).into_owned());
    })
    .map_err(|e| e.to_string())?;
    Ok(names)
}
