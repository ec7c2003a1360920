//! Which processes have a context on which device, and what is left when one dies.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::clock;
use crate::interval::Interval;
use crate::lane;
use crate::layout::{ProcessSlot, Shared};
use crate::map::Timeline;

/// This process's entry.
#[derive(Debug)]
pub struct Process<'timeline> {
    timeline: &'timeline Timeline,
    slot: usize,
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
}

/// A process with a context, as NVML lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningProcess {
    pub pid: u32,
    pub memory: u64,
    pub mps: Mps,
    /// MIG instance it runs in.
    pub instance: Option<u32>,
}

/// A process's part in MPS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mps {
    #[default]
    None,
    Server,
    Client,
}

impl Timeline {
    /// Enters the calling process.
    ///
    /// # Errors
    /// There are too many, or the file cannot be locked.
    pub fn enter(&self) -> std::io::Result<Process<'_>> {
        let pid = std::process::id();
        let start_ticks =
            alive(pid).ok_or_else(|| std::io::Error::other("/proc does not show the calling process"))?;
        let slot = self.exclusively(|shared| {
            reap(shared);
            let slot = shared.processes.iter().position(|p| p.pid.load(Relaxed) == 0)?;
            let entry = &shared.processes[slot];
            for device in 0..entry.contexts.len() {
                entry.contexts[device].store(0, Relaxed);
                entry.opened[device].store(0, Relaxed);
                entry.closed[device].store(0, Relaxed);
                entry.memory[device].store(0, Relaxed);
            }
            entry.mps.store(0, Relaxed);
            entry.instance.store(0, Relaxed);
            entry.start_ticks.store(start_ticks, Relaxed);
            entry.pid.store(pid, Release);
            Some(slot)
        })?;
        let slot = slot.ok_or_else(|| std::io::Error::other("too many processes on the simulated device"))?;
        Ok(Process { timeline: self, slot, pid, start_ticks })
    }

    /// Live processes with a context on `device`.
    #[must_use]
    pub fn running(&self, device: u32) -> Vec<RunningProcess> {
        let device = device as usize;
        let entries = self.shared().processes.iter();
        entries
            .filter(|p| p.pid.load(Acquire) != 0 && p.contexts[device].load(Acquire) > 0)
            .map(|p| RunningProcess {
                pid: p.pid.load(Relaxed),
                memory: p.memory[device].load(Relaxed),
                mps: match p.mps.load(Relaxed) {
                    1 => Mps::Server,
                    2 => Mps::Client,
                    _ => Mps::None,
                },
                instance: p.instance.load(Relaxed).checked_sub(1),
            })
            .collect()
    }

    /// When `device` had a context, as far back as the slots remember.
    #[must_use]
    pub fn contexts(&self, device: u32, now: u64) -> Vec<Interval> {
        let device = device as usize;
        let spans = self.shared().processes.iter().filter_map(|p| {
            let opened = p.opened[device].load(Acquire);
            let closed = p.closed[device].load(Acquire);
            (opened > 0)
                .then_some(Interval { start: opened, end: if closed >= opened { closed } else { now } })
        });
        crate::interval::union(spans.collect())
    }

    /// Ends what dead processes left: their contexts, and their queued work from now on.
    ///
    /// # Errors
    /// The file cannot be locked.
    pub fn reap(&self) -> std::io::Result<()> {
        let shared = self.shared();
        let dead = |pid: u32, ticks: u64| pid != 0 && alive(pid) != Some(ticks);
        let any = shared.processes.iter().any(|p| dead(p.pid.load(Acquire), p.start_ticks.load(Relaxed)));
        if any { self.exclusively(reap) } else { Ok(()) }
    }
}

impl Process<'_> {
    fn entry(&self) -> &ProcessSlot {
        &self.timeline.shared().processes[self.slot]
    }

    pub fn context_made(&self, device: u32) {
        let (entry, device) = (self.entry(), device as usize);
        if entry.contexts[device].fetch_add(1, Relaxed) == 0 {
            entry.closed[device].store(0, Relaxed);
            entry.opened[device].store(clock::now(), Release);
        }
    }

    pub fn context_gone(&self, device: u32) {
        let (entry, device) = (self.entry(), device as usize);
        if entry.contexts[device].fetch_sub(1, Relaxed) == 1 {
            entry.closed[device].store(clock::now(), Release);
        }
    }

    /// Takes part in MPS from now on.
    pub fn set_mps(&self, part: Mps) {
        self.entry().mps.store(part as u32, Release);
    }

    /// Runs in a MIG instance from now on; lanes taken from now on are that instance's.
    pub fn enter_instance(&self, instance: u32) {
        self.entry().instance.store(instance + 1, Release);
    }

    pub(crate) fn instance_slot(&self) -> u32 {
        self.entry().instance.load(Acquire)
    }

    /// Adds to (or takes from) the device memory in use.
    pub fn memory_changed(&self, device: u32, by: i64) {
        let cell = &self.entry().memory[device as usize];
        cell.store(cell.load(Relaxed).saturating_add_signed(by), Relaxed);
    }

    /// The process is about to end: its queued work is dropped, as a driver does.
    /// Returns whether it was the last one.
    ///
    /// # Errors
    /// The file cannot be locked.
    pub fn leave(&self) -> std::io::Result<bool> {
        self.timeline.exclusively(|shared| {
            end(shared, self.pid, self.start_ticks);
            reap(shared);
            shared.processes.iter().all(|p| p.pid.load(Relaxed) == 0)
        })
    }
}

fn reap(shared: &Shared) {
    for process in &shared.processes {
        let (pid, ticks) = (process.pid.load(Acquire), process.start_ticks.load(Relaxed));
        if pid != 0 && alive(pid) != Some(ticks) {
            end(shared, pid, ticks);
        }
    }
}

fn end(shared: &Shared, pid: u32, ticks: u64) {
    let now = clock::now();
    for process in &shared.processes {
        if process.pid.load(Relaxed) == pid && process.start_ticks.load(Relaxed) == ticks {
            for device in 0..process.contexts.len() {
                if process.contexts[device].swap(0, Relaxed) > 0 {
                    process.closed[device].store(now, Release);
                }
            }
            process.pid.store(0, Release);
        }
    }
    lane::end_of_owner(shared, pid, ticks, now);
}

/// The start time of a process that is there and no zombie.
fn alive(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(start)
}
