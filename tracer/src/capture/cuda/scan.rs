//! Looks for driver libraries in the mappings of the watched processes, again and again.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::collectives;
use super::library::{FileKey, Library, LibraryError, file_key};
use super::runtime;
use crate::symbol::maps::{self, MapsLine};

/// All driver libraries found so far.
#[derive(Debug, Default)]
pub struct Libraries {
    /// Found, or tried in vain: neither is tried again.
    known: HashSet<FileKey>,
    processes: HashMap<u32, Process>,
}

/// Calls of [`Libraries::scan`] for which a process whose mappings keep changing is left alone at most: a
/// heap that grows looks like a library that is loaded.
const LONGEST_REST: u32 = 8;
/// The same once it maps a driver: only a second one would be news.
const LONGEST_REST_FOUND: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Process {
    fingerprint: Fingerprint,
    /// It mapped a driver when last looked at.
    found: bool,
    /// Calls to leave out next time, and how many of them are left.
    rest: u32,
    left: u32,
}

/// Changes whenever a library is mapped, and is cheap to read: a line of numbers, where `maps` of a training
/// process is hundreds of kilobytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    /// Distinguishes processes that were given the same id.
    started: u64,
    /// Bytes of address space.
    size: u64,
}

impl Libraries {
    /// Looks through those of the processes whose mappings changed since the last call; cheap enough for
    /// every tick. Gives each library once, however many processes map it. A process that is gone, or goes
    /// meanwhile, is passed over.
    pub fn scan(&mut self, pids: impl IntoIterator<Item = u32>) -> Vec<Result<Library, LibraryError>> {
        let mut found = Vec::new();
        let before = std::mem::take(&mut self.processes);
        for pid in pids {
            let Some(now) = fingerprint(pid) else { continue };
            let process = match before.get(&pid).filter(|p| p.fingerprint.started == now.started) {
                Some(old) if old.fingerprint == now => *old,
                Some(old) if old.left > 0 => Process { left: old.left - 1, ..*old },
                old => {
                    let maps_driver = self.scan_process(pid, &mut found);
                    let longest = if maps_driver { LONGEST_REST_FOUND } else { LONGEST_REST };
                    let rest = old.map_or(0, |old| (old.rest * 2 + 1).min(longest));
                    Process { fingerprint: now, found: maps_driver, rest, left: rest }
                }
            };
            self.processes.insert(pid, process);
        }
        found
    }

    /// Processes that map a driver, of those in the last scan.
    pub fn users(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.iter().filter(|(_, p)| p.found).map(|(pid, _)| *pid)
    }

    /// Whether this process maps a driver, of those in the last scan.
    #[must_use]
    pub fn maps_driver(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.found)
    }

    /// Whether it maps a driver at all.
    fn scan_process(&mut self, pid: u32, found: &mut Vec<Result<Library, LibraryError>>) -> bool {
        let mut seen = HashSet::new();
        let mut candidates = Vec::new();
        let read = maps::read(pid, |line| {
            if (is_driver(&line) || is_collective(&line)) && seen.insert(line.file) {
                candidates.push(line);
            }
        });
        if read.is_err() {
            return false;
        }
        for line in &candidates {
            match self.open(pid, line) {
                Ok(None) => {}
                Ok(Some(file)) => found.push(Library::read(file, line.path().to_owned(), pid)),
                // Gone meanwhile: whoever else maps it will show it.
                Err(_) if fingerprint(pid).is_none() => {}
                Err(source) => {
                    found.push(Err(LibraryError::Open { path: line.path().to_owned(), pid, source }));
                }
            }
        }
        candidates.iter().any(is_driver)
    }

    /// `None` if it is known already.
    fn open(&mut self, pid: u32, line: &MapsLine) -> io::Result<Option<File>> {
        let file = open_mapped(pid, line)?;
        let key = file_key(&file)?;
        Ok(self.known.insert(key).then_some(file))
    }
}

/// The mapped file itself, else what its path leads to in the process's mount namespace.
fn open_mapped(pid: u32, line: &MapsLine) -> io::Result<File> {
    let first = match File::open(line.map_files(pid)) {
        Ok(file) => return Ok(file),
        Err(e) => e,
    };
    if line.deleted {
        return Err(first);
    }
    let path = line.path();
    let path = path.strip_prefix("/").unwrap_or(path);
    File::open(Path::new(&format!("/proc/{pid}/root")).join(path))
}

/// `libcuda.so`, `libcuda.so.1`, `libcuda.so.580.65.06`; not `libcudart.so`.
pub(super) fn is_driver(line: &MapsLine) -> bool {
    let name = line.path().file_name().unwrap_or_default().as_bytes();
    line.is_file() && name.strip_prefix(b"libcuda.so").is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

fn is_collective(line: &MapsLine) -> bool {
    line.is_file() && collectives::is_library(line.path())
}

/// `libcudart.so`, `libcudart.so.12`.
fn is_runtime(line: &MapsLine) -> bool {
    let name = line.path().file_name().unwrap_or_default().as_bytes();
    line.is_file() && name.strip_prefix(b"libcudart.so").is_some_and(|r| r.is_empty() || r[0] == b'.')
}

/// Every runtime library that these processes map, once each.
#[must_use]
pub fn runtimes(pids: impl IntoIterator<Item = u32>) -> Vec<Result<Library, LibraryError>> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for pid in pids {
        let mut lines = Vec::new();
        let read = maps::read(pid, |line| {
            if is_runtime(&line) && line.executable {
                lines.push(line);
            }
        });
        if read.is_err() {
            continue;
        }
        for line in &lines {
            let path = line.path().to_owned();
            match open_mapped(pid, line).and_then(|file| Ok((file_key(&file)?, file))) {
                Ok((key, file)) if known.insert(key) => found.push(runtime::read(file, path, pid)),
                Ok(_) => {}
                Err(source) => found.push(Err(LibraryError::Open { path, pid, source })),
            }
        }
    }
    found
}

/// Where a process has the driver's code.
#[must_use]
pub fn driver_code(pid: u32) -> Vec<Range<u64>> {
    let mut code = Vec::new();
    let read = maps::read(pid, |line| {
        if line.executable && is_driver(&line) {
            code.push(line.start..line.end);
        }
    });
    // A process that is gone has none.
    if read.is_err() { Vec::new() } else { code }
}

/// `None`: no such process.
fn fingerprint(pid: u32) -> Option<Fingerprint> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from behind it: state is field 3.
    let after_name = stat.iter().rposition(|b| *b == b')')?;
    let fields = std::str::from_utf8(&stat[after_name + 1..]).ok()?;
    let field = |n: usize| fields.split_ascii_whitespace().nth(n - 3)?.parse().ok();
    Some(Fingerprint { started: field(22)?, size: field(23)? })
}
