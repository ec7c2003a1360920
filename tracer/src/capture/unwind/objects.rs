//! Objects that processes map, each once, and the making of their tables.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use tracer_ebpf::wire::unwind::{NO_OBJECT, TRAMPOLINE};

use crate::capture::kernel::pool::Pool;
use crate::symbol::elf;
use crate::symbol::maps::{self, MapsLine};
use crate::unwind::{Code, Image, UnwindError, rows};

/// Bytes that may be read of one file.
const BUDGET: u64 = 320 << 20;
/// Headers are at its beginning; sections' may be anywhere.
const HEADER_BUDGET: u64 = 1 << 20;
/// Files kept open until it is their turn; well under the usual limit of 1,024 descriptors.
const HELD: usize = 64;
/// A vDSO has two pages.
const VDSO_BYTES: u64 = 64 << 10;

/// A file as long as it stays the same: an inode may be given to another.
type FileKey = ((u64, u64), u64, i64, i64);

#[derive(Debug)]
enum Source {
    Held(File),
    Mapped(u32, MapsLine),
    Bytes(Vec<u8>),
}

#[derive(Debug, Default)]
pub(super) struct Objects {
    files: HashMap<FileKey, u32>,
    build_ids: HashMap<Vec<u8>, u32>,
    /// By number, from 1 on.
    codes: Vec<Code>,
    /// Those of targets first, and small ones: most code is called through them, and they are soon done.
    turns: BinaryHeap<Reverse<(bool, u64, u32)>>,
    sources: HashMap<u32, Source>,
    held: usize,
    vdso: Option<u32>,
}

impl Objects {
    /// Objects without their table yet.
    pub(super) fn pending(&self) -> usize {
        self.turns.len()
    }

    /// The kernel's code in user space, the same in all processes, is read from our own.
    pub(super) fn add_vdso(&mut self) {
        let Some(bytes) = own_vdso() else { return };
        if let Ok(code) = Code::read(bytes.as_slice()) {
            self.vdso = Some(self.add(code, (false, bytes.len() as u64), Source::Bytes(bytes)));
        }
    }

    /// The object a process has mapped there, `NO_OBJECT` for memory that is no object's.
    pub(super) fn of(&mut self, pid: u32, bystander: bool, line: &MapsLine) -> u32 {
        if !line.is_file() {
            return self.vdso.filter(|_| line.is_vdso()).unwrap_or(NO_OBJECT);
        }
        let Ok(about) = std::fs::metadata(line.map_files(pid)) else {
            return self.open(pid, bystander, line).0;
        };
        let key = (line.file, about.size(), about.mtime(), about.mtime_nsec());
        if let Some(object) = self.files.get(&key) {
            return *object;
        }
        let (object, opened) = self.open(pid, bystander, line);
        if opened {
            self.files.insert(key, object);
        }
        object
    }

    /// What to take from an address of the mapping to have a row's `pc`.
    pub(super) fn bias(&self, object: u32, line: &MapsLine) -> Option<u64> {
        let code = self.codes.get(object.checked_sub(1)? as usize)?;
        code.bias(line.start, line.offset)
    }

    /// The object of a file not seen before, and whether it could be read.
    fn open(&mut self, pid: u32, bystander: bool, line: &MapsLine) -> (u32, bool) {
        let Some(file) = line.open(pid) else { return (NO_OBJECT, false) };
        let again = || file.try_clone().ok();
        let size = file.metadata().map_or(u64::MAX, |m| m.len());
        let Some(Ok(code)) = again().map(|f| elf::bounded(f, HEADER_BUDGET, |data| Code::read(data))) else {
            return (NO_OBJECT, true);
        };
        let build_id = again().and_then(|f| elf::build_id(f).ok()).unwrap_or_default();
        if let Some(known) = self.build_ids.get(&build_id) {
            return (*known, true);
        }
        if self.codes.len() as u32 + 1 >= TRAMPOLINE {
            return (NO_OBJECT, true);
        }
        let source = if self.held < HELD {
            self.held += 1;
            Source::Held(file)
        } else {
            Source::Mapped(pid, line.clone())
        };
        let object = self.add(code, (bystander, size), source);
        if !build_id.is_empty() {
            self.build_ids.insert(build_id, object);
        }
        (object, true)
    }

    fn add(&mut self, code: Code, (bystander, size): (bool, u64), source: Source) -> u32 {
        self.codes.push(code);
        let object = self.codes.len() as u32;
        self.turns.push(Reverse((bystander, size, object)));
        self.sources.insert(object, source);
        object
    }

    /// Makes the next table; whether there is one now, `None` with nothing to do.
    pub(super) fn make_one(&mut self, pool: &mut Pool) -> Option<bool> {
        let Reverse((.., object)) = self.turns.pop()?;
        let source = self.sources.remove(&object)?;
        if matches!(source, Source::Held(_)) {
            self.held -= 1;
        }
        let made = match source.rows() {
            Ok(rows) => pool.set_table(object, &rows).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        match made {
            Ok(true) => return Some(true),
            Ok(false) => tracing::info!(object, "no room for one more unwind table"),
            Err(error) => tracing::debug!(object, error, "no unwind table"),
        }
        if let Err(error) = pool.set_none(object) {
            tracing::debug!(object, %error, "its table");
        }
        Some(false)
    }
}

impl Source {
    fn rows(self) -> Result<Vec<tracer_ebpf::wire::Row>, UnwindError> {
        let file = match self {
            Self::Bytes(bytes) => return rows(&Image::read(bytes.as_slice())?, bytes.as_slice()),
            Self::Held(file) => file,
            Self::Mapped(pid, line) => line.open(pid).ok_or(UnwindError::Gone)?,
        };
        elf::bounded(file, BUDGET, |data| rows(&Image::read(data)?, data))
    }
}

fn own_vdso() -> Option<Vec<u8>> {
    let line = maps::own_vdso()?;
    let mut bytes = vec![0; usize::try_from((line.end - line.start).min(VDSO_BYTES)).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, line.start).ok()?;
    Some(bytes)
}
