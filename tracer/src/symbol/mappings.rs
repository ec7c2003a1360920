//! Mappings of the processes whose stacks appear, read while they live.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};

use super::files::Files;
use super::maps::{self, MapsLine};
use super::perf_map::PerfMaps;
use super::{ANONYMOUS, elf, made_at_run_time};
use crate::trace::{Mapping, Ns, Stack, StackKind, Symbol};

/// Executable mappings kept of one process.
const RANGES: usize = 1 << 14;
/// Mappings stored in one recording; a JIT that maps without end must not fill memory.
const STORED: usize = 1 << 18;
/// Processes that ended are remembered, because their last stacks may still come.
const ENDED: usize = 256;
/// From the kernel's giving a process another program's memory to its saying so. What was read in this time may be of
/// either.
const EXEC: Ns = 20_000_000;
/// Files whose build id is remembered.
const BUILD_IDS: usize = 1 << 16;
/// Pauses between two looks at a process whose addresses nothing covers: stacks walked by frame pointer
/// through code without any end in nonsense.
const SHORTEST_PAUSE: Ns = 1_000_000_000;
const LONGEST_PAUSE: Ns = 64_000_000_000;

/// Reads `/proc/<pid>/maps` when the first stack of a process's program appears, and again when an address is not
/// covered. Only mappings that hold an address of a stack become records.
#[derive(Debug, Default)]
pub struct Mappings {
    /// By process and image.
    processes: HashMap<(u32, u32), Process>,
    /// Of processes that ran `execve`, the image they have now.
    newest: HashMap<u32, u32>,
    ended: VecDeque<(u32, u32)>,
    build_ids: HashMap<(u64, u64), Vec<u8>>,
    stored: Vec<Mapping>,
    files: Files,
    perf_maps: PerfMaps,
}

#[derive(Debug, Default)]
struct Process {
    /// Executable ones in the order of addresses, and whether they are stored.
    ranges: Vec<(MapsLine, bool)>,
    read_at: Ns,
    /// It ended since they were read; its id may be another's.
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
    fn read(&mut self, pid: u32, at: Ns) {
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
        (self.ranges, self.stale, self.read_at) = (ranges, false, at);
    }
}

impl Mappings {
    /// To be called with every new stack, soon after it was taken. Gives the mappings to store.
    pub fn see(&mut self, at: Ns, stack: &Stack) -> Vec<Mapping> {
        if stack.kind == StackKind::Kernel || stack.addresses.is_empty() {
            return Vec::new();
        }
        let (pid, image) = (stack.pid, stack.image);
        // What is mapped now is another program's.
        let gone = self.newest.get(&pid).is_some_and(|newest| *newest != image);
        let process = self.processes.entry((pid, image)).or_default();
        let uncovered = |process: &mut Process| stack.addresses.iter().any(|a| process.find(*a).is_none());
        if !gone && (process.stale || uncovered(process)) && at >= process.read_again {
            process.read(pid, at);
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
        let new: Vec<_> = lines.into_iter().map(|line| self.mapping(at, (pid, image), &line)).collect();
        if new.iter().any(|mapping| made_at_run_time(&mapping.path)) {
            self.perf_maps.hold(pid);
        }
        self.stored.extend_from_slice(&new);
        new
    }

    /// The process runs another program, which began at `at`. What was read of the one before shortly before that,
    /// or later, may be this one's, and is dropped.
    pub fn exec(&mut self, pid: u32, image: u32, at: Ns) {
        self.perf_maps.forget(pid);
        self.newest.insert(pid, image);
        let before = (pid, image.wrapping_sub(1));
        let Some(process) = self.processes.get(&before) else { return };
        if process.read_at.saturating_add(EXEC) >= at {
            self.processes.remove(&before);
            self.stored.retain(|mapping| (mapping.pid, mapping.image) != before);
        } else {
            self.end(before);
        }
    }

    /// The process ended; its id may be given to another.
    pub fn exit(&mut self, pid: u32) {
        let image = self.newest.remove(&pid);
        let its: Vec<_> = self.processes.keys().filter(|key| key.0 == pid).copied().collect();
        for key in its.into_iter().filter(|key| image.is_none_or(|image| image == key.1)) {
            self.end(key);
        }
    }

    /// Keeps what is known of a program for its last stacks, for a while.
    fn end(&mut self, key: (u32, u32)) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        (process.stale, process.read_again) = (true, 0);
        self.ended.push_back(key);
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
        super::resolve_with(stacks, &self.stored, &self.files, &self.perf_maps)
    }

    #[cfg(test)]
    pub(super) fn read_again(&self, pid: u32) -> Ns {
        self.processes[&(pid, 0)].read_again
    }

    fn mapping(&mut self, at: Ns, (pid, image): (u32, u32), line: &MapsLine) -> Mapping {
        let path = match line.name.as_slice() {
            [] => ANONYMOUS.to_owned(),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        let build_id = if line.is_file() { self.build_id(pid, line, &path) } else { Vec::new() };
        let (start, end) = (line.start, line.end);
        Mapping { at, pid, image, start, end, offset: line.offset, path, build_id }
    }

    fn build_id(&mut self, pid: u32, line: &MapsLine, path: &str) -> Vec<u8> {
        if let Some(known) = self.build_ids.get(&line.file) {
            return known.clone();
        }
        let Some(file) = line.open(pid) else { return Vec::new() };
        let build_id = file.try_clone().ok().and_then(|f| elf::build_id(f).ok()).unwrap_or_default();
        if self.build_ids.len() < BUILD_IDS {
            self.build_ids.insert(line.file, build_id.clone());
        }
        self.files.hold((path.to_owned(), build_id.clone()), file);
        build_id
    }
}
