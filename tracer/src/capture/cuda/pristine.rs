//! Whether the code of a library is, in every process that maps it, what its file says.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::library::{FileKey, file_key};
use crate::symbol::maps::{self, MapsLine};

/// More than any probe writes: a breakpoint is one byte, an optimised one five.
const BYTES: usize = 8;

/// Places in one file at which probes were.
#[derive(Debug)]
pub struct Site {
    file: File,
    key: FileKey,
    inode: u64,
    offsets: BTreeSet<u64>,
}

/// One place that differs from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    pub pid: u32,
    pub path: PathBuf,
    pub offset: u64,
    pub code: [u8; BYTES],
}

/// The outcome of one look at all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Places looked at, over all processes.
    pub places: usize,
    pub altered: Vec<Altered>,
}

impl fmt::Display for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, path, offset, code } = self;
        write!(f, "process {pid}, {} at {offset:#x}: {code:02x?} differs from the file", path.display())
    }
}

impl Site {
    /// # Errors
    /// The file cannot be opened.
    pub fn new(path: &Path, offsets: impl IntoIterator<Item = u64>) -> io::Result<Self> {
        let file = File::open(path)?;
        let (key, inode) = (file_key(&file)?, file.metadata()?.ino());
        Ok(Self { file, key, inode, offsets: offsets.into_iter().collect() })
    }

    pub fn add(&mut self, offsets: impl IntoIterator<Item = u64>) {
        self.offsets.extend(offsets);
    }

    fn is(&self, pid: u32, line: &MapsLine) -> bool {
        // What `maps` says of an overlay's file differs from what `stat` says, hence the name as well.
        let like = line.file.1 == self.inode || super::scan::is_driver(line);
        line.executable
            && like
            && File::open(line.map_files(pid)).is_ok_and(|f| file_key(&f).is_ok_and(|key| key == self.key))
    }

    /// Places inside one mapping.
    fn compare(&self, pid: u32, line: &MapsLine, memory: &File, into: &mut Compared) {
        let end = line.offset + (line.end - line.start);
        for &offset in self.offsets.range(line.offset..end) {
            let (mut code, mut original) = ([0; BYTES], [0; BYTES]);
            let wanted = BYTES.min(usize::try_from(end - offset).unwrap_or(BYTES));
            let at = line.start + (offset - line.offset);
            let read = memory
                .read_exact_at(&mut code[..wanted], at)
                .and_then(|()| self.file.read_exact_at(&mut original[..wanted], offset));
            // A process that ends meanwhile has no code any more.
            if read.is_err() {
                continue;
            }
            into.places += 1;
            if code != original {
                into.altered.push(Altered { pid, path: line.path().to_owned(), offset, code });
            }
        }
    }
}

/// Looks at every process there is.
#[must_use]
pub fn compare(sites: &[Site]) -> Compared {
    let mut compared = Compared::default();
    if sites.is_empty() {
        return compared;
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        compare_process(pid, sites, &mut compared);
    }
    compared
}

fn compare_process(pid: u32, sites: &[Site], compared: &mut Compared) {
    let mut lines = Vec::new();
    let read = maps::read(pid, |line| {
        if line.executable && line.is_file() {
            lines.push(line);
        }
    });
    if read.is_err() {
        return;
    }
    let mut memory = None;
    for line in &lines {
        for site in sites.iter().filter(|s| s.is(pid, line)) {
            if memory.is_none() {
                memory = File::open(format!("/proc/{pid}/mem")).ok();
            }
            if let Some(memory) = &memory {
                site.compare(pid, line, memory, compared);
            }
        }
    }
}
