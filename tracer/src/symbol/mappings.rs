//! Mappings of the processes whose stacks appear, read while they live.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::Path;

use super::files::Files;
use super::maps::{self, MapsLine};
use super::{ANONYMOUS, elf};
use crate::trace::{Mapping, Ns, Stack, StackKind, Symbol};

/// Executable mappings kept of one process.
const RANGES: usize = 1 << 14;
/// Mappings stored in one recording; a JIT that maps without end must not fill memory.
const STORED: usize = 1 << 18;
/// Processes that ended are remembered, because their last stacks may still come.
const ENDED: usize = 256;
/// Files whose build id is remembered.
const BUILD_IDS: usize = 1 << 16;
/// Pauses between two looks at a process whose addresses nothing covers: stacks walked by frame pointer
/// through code without any end in nonsense.
const SHORTEST_PAUSE: Ns = 1_000_000_000;
const LONGEST_PAUSE: Ns = 64_000_000_000;

/// Reads `/proc/<pid>/maps` when a process's first stack appears, and again when an address is not covered.
/// Only mappings that hold an address of a stack become records.
#[derive(Debug, Default)]
pub struct Mappings {
    processes: HashMap<u32, Process>,
    ended: VecDeque<u32>,
    build_ids: HashMap<(u64, u64), Vec<u8>>,
    stored: Vec<Mapping>,
    files: Files,
}

#[derive(Debug, Default)]
struct Process {
    /// Executable ones in the order of addresses, and whether they are stored.
    ranges: Vec<(MapsLine, bool)>,
    /// It ran `execve` or ended since they were read.
    stale: bool,
    read_again: Ns,
    pause: Ns,
}

impl Process {
    fn find(&mut self, address: u64) -> Option<&mut (MapsLine, bool)> {
        let at = self.ranges.partition_point(|(line, _)| line.end <= address);
        self.ranges.get_mut(at).filter(|(line, _)| line.start <= address)
    }

    /// Keeps what it has if the process is gone: its last stacks may still come.
    fn read(&mut self, pid: u32) {
        let mut ranges = Vec::new();
        let read = maps::read(pid, |line| {
            if line.executable && ranges.len() < RANGES {
                ranges.push((line, false));
            }
        });
        if read.is_err() || ranges.is_empty() {
            return;
        }
        if !self.stale {
            for (line, stored) in &mut ranges {
                *stored = self.find(line.start).is_some_and(|(old, stored)| *stored && old == line);
            }
        }
        (self.ranges, self.stale) = (ranges, false);
    }
}

impl Mappings {
    /// To be called with every new stack, soon after it was taken. Gives the mappings to store.
    pub fn see(&mut self, at: Ns, stack: &Stack) -> Vec<Mapping> {
        if stack.kind == StackKind::Kernel || stack.addresses.is_empty() {
            return Vec::new();
        }
        let pid = stack.pid;
        let process = self.processes.entry(pid).or_default();
        let uncovered = |process: &mut Process| stack.addresses.iter().any(|a| process.find(*a).is_none());
        if (process.stale || uncovered(process)) && at >= process.read_again {
            process.read(pid);
            let longer = (process.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            process.pause = if uncovered(process) { longer } else { 0 };
            process.read_again = at.saturating_add(process.pause);
        }
        let mut lines = Vec::new();
        for address in &stack.addresses {
            if let Some((line, stored @ false)) = process.find(*address)
                && self.stored.len() + lines.len() < STORED
            {
                *stored = true;
                lines.push(line.clone());
            }
        }
        let new: Vec<_> = lines.into_iter().map(|line| self.mapping(at, pid, &line)).collect();
        self.stored.extend_from_slice(&new);
        new
    }

    /// The process runs another program now: its mappings are read again with its next stack.
    pub fn exec(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.stale, process.read_again) = (true, 0);
        }
    }

    /// The process ended; its id may be given to another.
    pub fn exit(&mut self, pid: u32) {
        if self.processes.contains_key(&pid) {
            self.exec(pid);
            self.ended.push_back(pid);
        }
        while self.ended.len() > ENDED {
            if let Some(oldest) = self.ended.pop_front()
                && self.processes.get(&oldest).is_some_and(|p| p.stale)
            {
                self.processes.remove(&oldest);
            }
        }
    }

    /// All mappings given so far.
    #[must_use]
    pub fn stored(&self) -> &[Mapping] {
        &self.stored
    }

    /// Names every distinct address of the stacks, as [`super::resolve`] does, but with the files that were
    /// kept open: those of processes and containers that are gone, and deleted ones, are named too.
    #[must_use]
    pub fn resolve<S: Borrow<Stack>>(&self, stacks: &[S]) -> Vec<Symbol> {
        super::resolve_with(stacks, &self.stored, &self.files)
    }

    #[cfg(test)]
    pub(super) fn read_again(&self, pid: u32) -> Ns {
        self.processes[&pid].read_again
    }

    fn mapping(&mut self, at: Ns, pid: u32, line: &MapsLine) -> Mapping {
        let path = match line.name.as_slice() {
            [] => ANONYMOUS.to_owned(),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        let build_id = if line.is_file() { self.build_id(pid, line, &path) } else { Vec::new() };
        Mapping { at, pid, start: line.start, end: line.end, offset: line.offset, path, build_id }
    }

    fn build_id(&mut self, pid: u32, line: &MapsLine, path: &str) -> Vec<u8> {
        if let Some(known) = self.build_ids.get(&line.file) {
            return known.clone();
        }
        let Some(file) = open(pid, line) else { return Vec::new() };
        let build_id = file.try_clone().ok().and_then(|f| elf::build_id(f).ok()).unwrap_or_default();
        if self.build_ids.len() < BUILD_IDS {
            self.build_ids.insert(line.file, build_id.clone());
        }
        self.files.hold((path.to_owned(), build_id.clone()), file);
        build_id
    }
}

fn open(pid: u32, line: &MapsLine) -> Option<File> {
    let rooted = || {
        let path = line.path().strip_prefix("/").ok()?;
        File::open(Path::new(&format!("/proc/{pid}/root")).join(path)).ok()
    };
    File::open(line.map_files(pid)).ok().or_else(|| if line.deleted { None } else { rooted() })
}
