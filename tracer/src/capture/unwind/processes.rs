//! Where processes have their objects mapped.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use tracer_ebpf::wire::unwind::{MAPPINGS, NO_OBJECT, TRAMPOLINE};
use tracer_ebpf::wire::{Layout, Mapped};

use super::objects::Objects;
use crate::capture::kernel::pool::Pool;
use crate::symbol::maps;

/// When a process that starts a program is looked at: it maps its libraries bit by bit.
const STARTING: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];
/// From here on for one that was not seen to start.
const RUNNING: usize = 2;

/// Between two looks for what a stack led to.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

#[derive(Debug)]
struct Process {
    mapped: Vec<Mapped>,
    /// It only wakes targets: its objects can wait.
    bystander: bool,
    /// The next of `STARTING`.
    step: usize,
    next: Option<Instant>,
    looked: Option<Instant>,
    pause: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Processes {
    processes: HashMap<u32, Process>,
    /// Forked processes have the same.
    layouts: HashMap<Vec<Mapped>, Layout>,
}

impl Processes {
    pub(super) fn seen(&mut self, pid: u32, now: Instant) {
        self.start(pid, now, false, RUNNING);
    }

    pub(super) fn exec(&mut self, pid: u32, now: Instant) {
        let bystander = self.processes.get(&pid).is_some_and(|p| p.bystander);
        self.start(pid, now, bystander, 1);
    }

    fn start(&mut self, pid: u32, now: Instant, bystander: bool, step: usize) {
        let (mapped, pause) = (Vec::new(), SHORTEST_PAUSE);
        self.processes.insert(pid, Process { mapped, bystander, step, next: Some(now), looked: None, pause });
    }

    pub(super) fn exit(&mut self, pid: u32, pool: &mut Pool) {
        // The first thread may have ended before the others.
        if !lives(pid) {
            self.processes.remove(&pid);
            pool.remove_process(pid);
        }
    }

    pub(super) fn gap(&mut self, pid: u32, now: Instant) {
        let Some(process) = self.processes.get_mut(&pid) else { return self.start(pid, now, true, RUNNING) };
        let soonest = process.looked.map_or(now, |at| at + process.pause).max(now);
        process.next = Some(process.next.map_or(soonest, |next| next.min(soonest)));
    }

    /// Processes whose first look is still to come.
    pub(super) fn waiting(&self) -> usize {
        self.processes.values().filter(|p| p.looked.is_none()).count()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.processes.values().filter_map(|p| p.next).min()
    }

    pub(super) fn due(&self, now: Instant) -> Option<u32> {
        let due = self.processes.iter().filter(|(_, p)| p.next.is_some_and(|next| next <= now));
        due.min_by_key(|(_, p)| p.next).map(|(pid, _)| *pid)
    }

    pub(super) fn look(&mut self, pid: u32, now: Instant, objects: &mut Objects, pool: &mut Pool) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.looked = Some(now);
        process.next = STARTING.get(process.step).map(|after| now + *after);
        process.step += 1;
        let mapped = mapped(pid, process.bystander, objects);
        if mapped.is_empty() {
            // Gone, or about to start its program.
            return;
        }
        if mapped == process.mapped {
            process.pause = (process.pause * 2).min(LONGEST_PAUSE);
            return;
        }
        (process.mapped, process.pause) = (mapped, SHORTEST_PAUSE);
        let layout = match self.layouts.get(&process.mapped) {
            Some(known) => Some(*known),
            None => pool.add_layout(&process.mapped).unwrap_or_else(|error| {
                tracing::debug!(%error, pid, "its mappings");
                None
            }),
        };
        if let Some(layout) = layout
            && pool.set_layout(pid, layout)
        {
            self.layouts.insert(process.mapped.clone(), layout);
        }
    }

    /// Forgets processes that are gone, and mappings that no process has.
    pub(super) fn sweep(&mut self, pool: &mut Pool) {
        self.processes.retain(|pid, _| lives(*pid));
        let (living, gone): (Vec<_>, Vec<_>) = pool.in_use().partition(|(pid, _)| lives(*pid));
        gone.into_iter().for_each(|(pid, _)| pool.remove_process(pid));
        let used: HashSet<Layout> = living.into_iter().map(|(_, layout)| layout).collect();
        self.layouts.retain(|_, layout| {
            let keep = used.contains(layout);
            if !keep {
                pool.drop_layout(*layout);
            }
            keep
        });
    }
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Executable mappings in the order of addresses, neighbours of the same kind as one.
fn mapped(pid: u32, bystander: bool, objects: &mut Objects) -> Vec<Mapped> {
    let mut lines = Vec::new();
    let read = maps::read(pid, |line| {
        if line.executable && lines.len() < MAPPINGS as usize * 4 {
            lines.push(line);
        }
    });
    if read.is_err() {
        return Vec::new();
    }
    let mut all: Vec<Mapped> = Vec::with_capacity(lines.len());
    for line in lines {
        if line.name == b"[uprobes]" {
            let (start, object) = (line.start - 1, TRAMPOLINE);
            all.push(Mapped { start, end: line.end, bias: 0, object, pad: 0 });
            continue;
        }
        let mut object = objects.of(pid, bystander, &line);
        let bias = objects.bias(object, &line).unwrap_or_else(|| {
            object = NO_OBJECT;
            0
        });
        match all.last_mut() {
            Some(last) if last.end == line.start && (last.object, last.bias) == (object, bias) => {
                last.end = line.end;
            }
            _ => all.push(Mapped { start: line.start, end: line.end, bias, object, pad: 0 }),
        }
    }
    all.truncate(MAPPINGS as usize);
    all
}
