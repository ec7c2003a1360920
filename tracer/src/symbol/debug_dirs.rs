//! Names from debuginfo files that the user keeps, found by build id. Nothing is fetched.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::native::{name_offsets, name_virtual};
use super::ranges::Ranges;
use super::{Named, elf, looked_up, module};
use crate::trace::{Mapping, Stack, StackKind, Symbol};

/// Files of one folder that are asked for their build id.
const FILES: usize = 1 << 14;
/// Longer build ids are no build ids.
const LONGEST_ID: usize = 64;

/// Folders of debuginfo files: `.build-id/ab/cdef.debug` as distributions lay them out, and any ELF file that lies
/// in the folder itself.
#[derive(Debug)]
pub struct DebugDirs {
    folders: Vec<PathBuf>,
    /// Files that lie in the folders themselves, by build id.
    loose: BTreeMap<Vec<u8>, Vec<PathBuf>>,
}

impl DebugDirs {
    /// # Errors
    /// A folder that cannot be read, and why.
    pub fn open(folders: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        let mut loose: BTreeMap<Vec<u8>, Vec<PathBuf>> = BTreeMap::new();
        for folder in folders {
            let entries = fs::read_dir(folder).map_err(|e| (folder.clone(), e))?;
            let mut paths: Vec<_> = entries.flatten().take(FILES).map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths.into_iter().filter(|path| path.is_file()) {
                let id = File::open(&path).ok().and_then(|file| elf::build_id(file).ok());
                if let Some(id) = id.filter(|id| !id.is_empty()) {
                    loose.entry(id).or_default().push(path);
                }
            }
        }
        Ok(Self { folders: folders.to_vec(), loose })
    }

    /// Those of the symbols, all without a name, that the files have one for.
    #[must_use]
    pub fn name(&self, unnamed: &[Symbol]) -> Vec<Symbol> {
        let mut files: BTreeMap<&[u8], BTreeMap<u64, Vec<&Symbol>>> = BTreeMap::new();
        for symbol in unnamed.iter().filter(|s| !s.build_id.is_empty()) {
            files.entry(&symbol.build_id).or_default().entry(symbol.file_offset).or_default().push(symbol);
        }
        let mut named = Vec::new();
        for (id, mut wanted) in files {
            for path in self.candidates(id) {
                let offsets: Vec<_> = wanted.keys().copied().collect();
                for (offset, answer) in offsets.iter().zip(ask(&path, &offsets)) {
                    if let Named::Frames(frames) = answer
                        && let Some(symbols) = wanted.remove(offset)
                    {
                        let named_one = |s: &Symbol| Symbol {
                            frames: frames.clone(),
                            reason: String::new(),
                            ..s.clone()
                        };
                        named.extend(symbols.into_iter().map(named_one));
                    }
                }
            }
        }
        named
    }

    /// Files of this build id, debuginfo ahead of programs: it has names that those have not.
    fn candidates(&self, id: &[u8]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        if (2..=LONGEST_ID).contains(&id.len()) {
            let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            let (first, rest) = hex.split_at(2);
            for suffix in [".debug", ""] {
                for folder in &self.folders {
                    let name = format!("{rest}{suffix}");
                    paths.push(folder.join(".build-id").join(first).join(&name));
                    paths.push(folder.join(first).join(name));
                }
            }
        }
        paths
            .retain(|path| File::open(path).is_ok_and(|file| elf::build_id(file).is_ok_and(|own| own == id)));
        paths.extend(self.loose.get(id).into_iter().flatten().cloned());
        paths
    }
}

/// A debuginfo file keeps where the program's segments lie in memory, but not always where in the file.
fn ask(path: &Path, offsets: &[u64]) -> Vec<Named> {
    let segments = File::open(path).ok().and_then(|file| elf::segments(file).ok()).unwrap_or_default();
    if segments.iter().any(|s| s.executable && s.in_file) {
        return name_offsets(path, offsets);
    }
    let segments = laid_out(&segments);
    let address = |offset: u64| {
        let holds = |s: &&LaidOut| (s.offset..s.offset.saturating_add(s.size)).contains(&offset);
        segments.iter().find(holds).and_then(|s| s.address.checked_add(offset - s.offset))
    };
    let addresses: Vec<Option<u64>> = offsets.iter().map(|offset| address(*offset)).collect();
    let asked: Vec<u64> = addresses.iter().flatten().copied().collect();
    let mut answers = name_virtual(path, &asked).into_iter();
    let unknown = || Named::Unknown("the address lies in no code of this file".into());
    addresses.iter().map(|a| a.and_then(|_| answers.next()).unwrap_or_else(unknown)).collect()
}

/// An executable segment as it lay in the program's file.
struct LaidOut {
    offset: u64,
    address: u64,
    size: u64,
}

/// Linkers put segments one after the other into the file, each at the first place that agrees with its address
/// in the bits below its alignment.
fn laid_out(segments: &[elf::Segment]) -> Vec<LaidOut> {
    let mut end: u64 = 0;
    let mut executable = Vec::new();
    for segment in segments {
        let align = segment.align.max(1);
        let short = (segment.address % align + align - end % align) % align;
        let offset = end.saturating_add(short);
        end = offset.saturating_add(segment.size);
        if segment.executable {
            executable.push(LaidOut { offset, address: segment.address, size: segment.size });
        }
    }
    executable
}

/// User addresses of the stacks that have no name: those that could not be named when recording ended, and those
/// of a recording that was cut before it named any. `known` gives a trace's symbol by process, image and address.
#[must_use]
pub fn unnamed<'a, S: Borrow<Stack>>(
    stacks: &[S],
    mappings: &[Mapping],
    known: impl Fn((u32, u32, u64)) -> Option<&'a Symbol>,
) -> Vec<Symbol> {
    let mut ranges: HashMap<(u32, u32), Ranges> = HashMap::new();
    for mapping in mappings {
        ranges.entry((mapping.pid, mapping.image)).or_default().insert(mapping);
    }
    let mut seen = BTreeSet::new();
    let mut unnamed = Vec::new();
    for stack in stacks.iter().map(Borrow::borrow).filter(|stack| stack.kind == StackKind::User) {
        for (depth, &address) in stack.addresses.iter().enumerate() {
            let key = (stack.pid, stack.image, address);
            if !seen.insert(key) {
                continue;
            }
            match known(key) {
                Some(symbol) if symbol.frames.is_empty() => unnamed.push(symbol.clone()),
                Some(_) => {}
                None => {
                    let lookup = looked_up(address, depth > 0);
                    let mapping =
                        ranges.get(&(stack.pid, stack.image)).and_then(|ranges| ranges.find(lookup));
                    unnamed.extend(mapping.map(|mapping| Symbol {
                        kind: StackKind::User,
                        pid: stack.pid,
                        image: stack.image,
                        address,
                        frames: Vec::new(),
                        module: module(&mapping.path),
                        file_offset: (lookup - mapping.start).saturating_add(mapping.offset),
                        build_id: mapping.build_id.clone(),
                        reason: "the recording was cut before it named any address".to_owned(),
                    }));
                }
            }
        }
    }
    unnamed
}
