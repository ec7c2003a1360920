//! Which interpreter a process runs: whatever program or library is mapped that exports CPython's `_PyRuntime`,
//! under any name.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};

use super::code::Types;
use super::interpreter::Interpreter;
use super::layout::{self, DEBUG_OFFSETS};
use super::memory::{Memory, ProcessMemory};
use crate::symbol::elf::{self, Addresses, ElfError};
use crate::symbol::maps::{self, MapsLine};

const PAGE: u64 = 4096;
/// Files remembered; beyond, all are looked at anew.
const FILES: usize = 1 << 14;

/// `Py_Version` came with 3.11; before, a version is told by what it was the first to export.
const NAMES: [&[u8]; 8] = [
    b"_PyRuntime",
    b"PyCode_Type",
    b"PyUnicode_Type",
    b"PyBytes_Type",
    b"Py_Version",
    b"PyModule_AddObjectRef",
    b"PyFrame_GetCode",
    b"PyCode_NewWithPosOnlyArgs",
];
type Exported = Addresses<{ NAMES.len() }>;
/// Of each, where the file exports it.
type Places = [Option<u64>; NAMES.len()];

/// What a process turned out to run.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Unknown(Unknown),
    Known(Box<Interpreter>),
}

/// A CPython whose memory is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unknown {
    version: (u8, u8),
    free_threaded: bool,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        let kind = if self.free_threaded { "free-threaded " } else { "" };
        write!(f, "{kind}CPython {major}.{minor}")
    }
}

/// Programs and libraries that were looked at, by device and inode: what those that hold an interpreter export.
#[derive(Debug, Default)]
pub(super) struct Files(HashMap<(u64, u64), Option<Exported>>);

impl Files {
    pub(super) fn look(&mut self, pid: u32) -> Found {
        self.try_look(pid).unwrap_or(Found::Nothing)
    }

    fn try_look(&mut self, pid: u32) -> Option<Found> {
        let mut code = HashSet::new();
        let mut lines: Vec<MapsLine> = Vec::new();
        maps::read(pid, |line| {
            if line.is_file() {
                line.executable.then(|| code.insert(line.file));
                if line.offset == 0 {
                    lines.push(line);
                }
            }
        })
        .ok()?;
        lines.retain(|line| code.contains(&line.file));
        // The likely ones first: where one of them is it, no other is read.
        lines.sort_by_key(|line| !is_named_for_it(line));
        let memory = ProcessMemory::open(pid)?;
        lines.iter().find_map(|first| {
            let exported = self.exported(pid, first)?;
            // Loaded as a whole: what holds for its first bytes holds for all.
            let base = first.start.wrapping_sub(exported.first & !(PAGE - 1));
            interpreter(&memory, exported.of.map(|address| Some(base.wrapping_add(address?))))
        })
    }

    /// `None` for a file without an interpreter.
    fn exported(&mut self, pid: u32, line: &MapsLine) -> Option<Exported> {
        if let Some(known) = self.0.get(&line.file) {
            return *known;
        }
        let path = line.map_files(pid);
        // To open a device may set it going.
        fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let exported = match elf::addresses(File::open(path).ok()?, NAMES) {
            Ok(exported) => exported.filter(|e| e.of[0].is_some()),
            Err(ElfError::NotElf | ElfError::NoDynamicSymbols | ElfError::Damaged(_)) => None,
        };
        if self.0.len() >= FILES {
            self.0.clear();
        }
        self.0.insert(line.file, exported);
        exported
    }
}

fn is_named_for_it(line: &MapsLine) -> bool {
    line.path().file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains("python"))
}

/// Of the addresses in a process of what a file exports.
pub(super) fn interpreter(memory: &impl Memory, addresses: Places) -> Option<Found> {
    let [runtime, code, text, bytes, version, added_3_10, added_3_9, added_3_8] = addresses;
    let runtime = runtime?;
    let mut offsets = [0; DEBUG_OFFSETS];
    memory.read(runtime, &mut offsets)?;
    let (version, free_threaded) = match layout::version(&offsets) {
        Some(told) => told,
        None => {
            let minor = match (version, added_3_10, added_3_9, added_3_8) {
                (Some(version), ..) => {
                    let version = memory.word(version)?;
                    (version >> 24 == 3).then_some((version >> 16) as u8)?
                }
                (None, Some(_), ..) => 10,
                (None, None, Some(_), _) => 9,
                (None, None, None, Some(_)) => 8,
                // The first that has a `_PyRuntime`.
                (None, None, None, None) => 7,
            };
            ((3, minor), false)
        }
    };
    let layout = layout::told(&offsets).or_else(|| layout::of(version.0, version.1));
    let types = Types { code, text, bytes };
    Some(match layout {
        Some(layout) => Found::Known(Box::new(Interpreter::new(runtime, types, layout))),
        None => Found::Unknown(Unknown { version, free_threaded }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::memory::Fake;
    use super::*;

    const BASE: u64 = 0x1000;

    fn process(words: &[(u64, u64)]) -> Fake {
        let mut memory = Fake { base: BASE, bytes: vec![0; 0x1000] };
        words.iter().for_each(|(at, word)| memory.put(*at, &word.to_le_bytes()));
        memory
    }

    /// The first three, and as many of the last as there are from the oldest on.
    fn exports(version: bool, added: usize) -> Places {
        let mut of = [Some(BASE); NAMES.len()];
        of[4] = version.then_some(BASE + 0x800);
        of[5..8 - added].fill(None);
        of
    }

    fn found(memory: &Fake, exports: Places) -> String {
        match interpreter(memory, exports) {
            None | Some(Found::Nothing) => "nothing".to_owned(),
            Some(Found::Unknown(unknown)) => format!("unknown: {unknown}"),
            Some(Found::Known(known)) => format!("{:?}", known.layout.version),
        }
    }

    #[test]
    fn versions_are_told_by_themselves_or_by_what_they_export() {
        let old = process(&[(BASE + 0x800, 0x030b_07f0)]);
        assert_eq!(found(&old, exports(true, 3)), "(3, 11)");
        assert_eq!(found(&old, exports(false, 3)), "(3, 10)");
        assert_eq!(found(&old, exports(false, 2)), "(3, 9)");
        assert_eq!(found(&old, exports(false, 1)), "(3, 8)");
        assert_eq!(found(&old, exports(false, 0)), "unknown: CPython 3.7");
        // 3.12 no longer has what came with 3.8.
        let mut of = exports(true, 3);
        of[7] = None;
        assert_eq!(found(&process(&[(BASE + 0x800, 0x030c_01f0)]), of), "(3, 12)");
    }

    #[test]
    fn what_is_not_known_is_not_guessed_at() {
        let cookie = (BASE, u64::from_le_bytes(*b"xdebugpy"));
        let of = |version: u64, free_threaded: u64| {
            let told = [cookie, (BASE + 8, version), (BASE + 16, free_threaded), (BASE + 0x800, 0x030b_07f0)];
            found(&process(&told), exports(true, 3))
        };
        assert_eq!(of(0x0363_0000, 0), "unknown: CPython 3.99");
        assert_eq!(of(0x030e_0000, 1), "unknown: free-threaded CPython 3.14");
        assert_eq!(of(0x030f_0000, 1), "unknown: free-threaded CPython 3.15");
        // A `Py_Version` of another interpreter, and none of what is looked for.
        assert_eq!(found(&process(&[(BASE + 0x800, 0x0402_0000)]), exports(true, 3)), "nothing");
        assert_eq!(found(&process(&[]), [None; NAMES.len()]), "nothing");
    }

    #[test]
    fn this_process_has_none() {
        let mut files = Files::default();
        for pid in [std::process::id(), std::process::id(), u32::MAX] {
            assert!(matches!(files.look(pid), Found::Nothing));
        }
        assert!(!files.0.is_empty() && files.0.values().all(Option::is_none));
    }
}
