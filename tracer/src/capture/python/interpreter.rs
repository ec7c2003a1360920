//! The Python interpreter in one process: found by its symbols, its threads read from the process's memory.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use tracer_ebpf::wire::{NO_STEP, PythonThread};

use super::layout::{self, DEBUG_OFFSETS, Layout, ThreadId};
use crate::symbol::elf;
use crate::symbol::maps::{self, MapsLine};

const PAGE: u64 = 4096;
/// Offset of the kernel's thread id in glibc's `struct pthread`, the same since 2.4 on x86-64.
const PTHREAD_TID: u64 = 720;
/// Lists of a process that writes on may have no end.
const INTERPRETERS: usize = 64;
const THREADS: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct Interpreter {
    /// Address of `_PyRuntime`.
    runtime: u64,
    layout: Layout,
}

impl Interpreter {
    /// `None`: the process has no interpreter, or none whose layout is known.
    pub(super) fn find(pid: u32) -> Option<Self> {
        let mut lines: Vec<MapsLine> = Vec::new();
        maps::read(pid, |line| {
            if line.is_file() && version(&line).is_some() {
                lines.push(line);
            }
        })
        .ok()?;
        let memory = memory(pid)?;
        lines.iter().filter(|l| l.offset == 0).find_map(|first| {
            let of_file = lines.iter().filter(|l| l.file == first.file);
            let file = of_file.clone().find_map(|l| File::open(l.map_files(pid)).ok())?;
            let runtime = elf::variable(file, b"_PyRuntime").ok()??;
            // Loaded as a whole: what holds for its first bytes holds for its variables.
            let runtime = first.start.wrapping_add(runtime.address).wrapping_sub(runtime.first & !(PAGE - 1));
            let (major, minor) = version(first)?;
            let told = || {
                let mut bytes = [0; DEBUG_OFFSETS];
                memory.read_exact_at(&mut bytes, runtime).ok()?;
                layout::told(&bytes)
            };
            let layout = layout::of(major, minor).or_else(told)?;
            Some(Self { runtime, layout })
        })
    }

    /// Its threads by the kernel's ids. Whatever does not hang together is left out.
    pub(super) fn threads(&self, pid: u32) -> HashMap<u32, PythonThread> {
        let mut found = HashMap::new();
        let Some(memory) = memory(pid) else { return found };
        let word = |address: u64, offset: u64| {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, address.checked_add(offset)?).ok()?;
            Some(u64::from_le_bytes(bytes)).filter(|w| *w != 0)
        };
        let layout = &self.layout;
        let id = |state: u64| match layout.id {
            ThreadId::Native(at) => word(state, at),
            ThreadId::Pthread(at) => Some(word(word(state, at)?, PTHREAD_TID)? & 0xffff_ffff),
        };
        let mut interpreter = word(self.runtime, layout.interpreters);
        for _ in 0..INTERPRETERS {
            let Some(here) = interpreter else { break };
            let mut state = word(here, layout.threads);
            for _ in 0..THREADS {
                let Some(at) = state else { break };
                if let Some(tid) = id(at).and_then(|tid| u32::try_from(tid).ok()) {
                    found.insert(
                        tid,
                        PythonThread {
                            state: at,
                            cframe: layout.cframe.unwrap_or(NO_STEP),
                            frame: layout.frame,
                            instruction: layout.instruction,
                            pad: 0,
                        },
                    );
                }
                state = word(at, layout.next_thread);
            }
            interpreter = word(here, layout.next_interpreter);
        }
        found
    }
}

fn memory(pid: u32) -> Option<File> {
    File::open(format!("/proc/{pid}/mem")).ok()
}

/// From the name of the program or library: `python3.11`, `libpython3.8.so.1.0`.
fn version(line: &MapsLine) -> Option<(u8, u8)> {
    let name = line.path().file_name()?.to_str()?;
    let name = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python")?;
    let (major, rest) = name.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_names() {
        let of = |name: &str| {
            let name = format!("/x/{name}").into_bytes();
            let (start, end, offset, file) = (0, 1, 0, (0, 1));
            version(&MapsLine { start, end, executable: true, offset, file, name, deleted: false })
        };
        assert_eq!(of("python3.11"), Some((3, 11)));
        assert_eq!(of("libpython3.8.so.1.0"), Some((3, 8)));
        assert_eq!(of("libpython3.7m.so.1.0"), Some((3, 7)));
        for other in ["python3", "python", "libc.so.6", "pythonx.y", "libpython3.so"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_has_none() {
        assert!(Interpreter::find(std::process::id()).is_none());
        assert!(Interpreter::find(u32::MAX).is_none());
    }
}
