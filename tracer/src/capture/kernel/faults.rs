//! Minor and major faults of each target process, from the counters the kernel keeps anyway: `/proc/<pid>/stat`
//! while it is there, and what its threads had counted when they ended once it is not.

use std::collections::BTreeMap;

use super::targets::{self, Stat};
use crate::trace::{FaultTotal, Ns, Record, Span};

/// Between two looks at a process.
const EVERY: Ns = 1_000_000_000;
/// Processes looked at per second; with more of them each is looked at less often.
const LOOKS: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) minor: u64,
    pub(super) major: u64,
}

impl Count {
    fn plus(self, other: Self) -> Self {
        Self { minor: self.minor + other.minor, major: self.major + other.major }
    }

    fn less(self, other: Self) -> Self {
        Self { minor: self.minor.saturating_sub(other.minor), major: self.major.saturating_sub(other.major) }
    }
}

#[derive(Debug)]
struct Process {
    /// `None`: born while recording, not looked at since.
    start_ticks: Option<u64>,
    /// End of what was said so far.
    since: Ns,
    said: Count,
    /// Of threads that ended.
    gone: Count,
    /// Not found at the last look: its last threads' ends may still be under way from the kernel.
    vanished: bool,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    processes: BTreeMap<u32, Process>,
    /// Last parts of processes whose id was taken by another.
    done: Vec<FaultTotal>,
    looked: Ns,
    /// The process after which the next looks begin.
    after: u32,
}

impl Faults {
    /// A process that runs already: only what it faults from now on counts.
    pub(super) fn add(&mut self, at: Ns, pid: u32) {
        let Some(now) = targets::process_stat(pid) else { return };
        if self.processes.get(&pid).is_some_and(|p| p.start_ticks.is_none_or(|s| s == now.start_ticks)) {
            return;
        }
        let alive = targets::threads(pid)
            .into_iter()
            .filter_map(|tid| targets::stat(pid, tid))
            .fold(Count::default(), |sum, thread| sum.plus(count(&thread)));
        let said = count(&now);
        let (start_ticks, gone) = (Some(now.start_ticks), said.less(alive));
        self.put(at, pid, Process { start_ticks, since: at, said, gone, vanished: false });
    }

    pub(super) fn born(&mut self, at: Ns, pid: u32) {
        let none = Count::default();
        self.put(at, pid, Process { start_ticks: None, since: at, said: none, gone: none, vanished: false });
    }

    fn put(&mut self, at: Ns, pid: u32, process: Process) {
        if let Some(mut before) = self.processes.insert(pid, process) {
            let total = before.gone;
            self.done.extend(before.say(at, pid, total));
        }
    }

    /// A thread of `pid` ended, having counted this much.
    pub(super) fn exited(&mut self, pid: u32, count: Count) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.gone = process.gone.plus(count);
        }
    }

    /// Once a second, what was counted since.
    pub(super) fn tick(&mut self, at: Ns, sink: &mut dyn FnMut(Record)) {
        if at < self.looked + EVERY {
            return;
        }
        self.looked = at;
        let behind = self.processes.range(..=self.after).map(|(pid, _)| *pid);
        let pids: Vec<u32> =
            self.processes.range(self.after + 1..).map(|(pid, _)| *pid).chain(behind).take(LOOKS).collect();
        self.after = pids.last().copied().unwrap_or(0);
        self.look(at, &pids, sink);
    }

    /// Everything not said yet.
    pub(super) fn finish(&mut self, at: Ns, sink: &mut dyn FnMut(Record)) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        self.look(at, &pids, sink);
    }

    fn look(&mut self, at: Ns, pids: &[u32], sink: &mut dyn FnMut(Record)) {
        self.done.drain(..).for_each(|total| sink(Record::FaultTotal(total)));
        for pid in pids {
            let Some(process) = self.processes.get_mut(pid) else { continue };
            let there = targets::process_stat(*pid)
                .filter(|s| process.start_ticks.is_none_or(|start| start == s.start_ticks));
            let total = match &there {
                Some(stat) => {
                    process.start_ticks = Some(stat.start_ticks);
                    count(stat)
                }
                None => process.gone,
            };
            if let Some(said) = process.say(at, *pid, total) {
                sink(Record::FaultTotal(said));
            }
            if there.is_none() && std::mem::replace(&mut process.vanished, true) {
                self.processes.remove(pid);
            }
        }
    }
}

impl Process {
    fn say(&mut self, at: Ns, pid: u32, total: Count) -> Option<FaultTotal> {
        let new = total.less(self.said);
        if new == Count::default() {
            return None;
        }
        let span = Span::new(self.since, at.max(self.since));
        (self.since, self.said) = (span.end, total);
        Some(FaultTotal { span, pid, minor: new.minor, major: new.major })
    }
}

fn count(stat: &Stat) -> Count {
    Count { minor: stat.minor_faults, major: stat.major_faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Larger than any process id.
    const NOBODY: u32 = 1 << 23;

    fn said(faults: &mut Faults, at: Ns) -> Vec<(u64, u64, u64, u64)> {
        let mut out = Vec::new();
        faults.tick(at, &mut |record| {
            let Record::FaultTotal(t) = record else { panic!("{record:?}") };
            out.push((t.span.start, t.span.end, t.minor, t.major));
        });
        out
    }

    #[test]
    fn a_process_that_ended_unseen_has_what_its_threads_counted() {
        let mut faults = Faults::default();
        faults.born(5, NOBODY);
        faults.exited(NOBODY, Count { minor: 10, major: 1 });
        assert_eq!(said(&mut faults, EVERY), [(5, EVERY, 10, 1)]);
        faults.exited(NOBODY, Count { minor: 7, major: 0 });
        assert_eq!(said(&mut faults, 2 * EVERY), [(EVERY, 2 * EVERY, 7, 0)]);
        assert!(faults.processes.is_empty());
    }

    #[test]
    fn an_id_used_again_keeps_the_two_apart() {
        let mut faults = Faults::default();
        faults.born(5, NOBODY);
        faults.exited(NOBODY, Count { minor: 10, major: 0 });
        faults.born(8, NOBODY);
        faults.exited(NOBODY, Count { minor: 3, major: 0 });
        assert_eq!(said(&mut faults, EVERY), [(5, 8, 10, 0), (8, EVERY, 3, 0)]);
    }

    #[test]
    fn own_faults_are_counted_from_when_it_was_added() {
        let pid = std::process::id();
        let mut faults = Faults::default();
        faults.add(5, pid);
        let pages = 512u64;
        let mut memory = vec![0u8; pages as usize * 4096];
        memory.iter_mut().step_by(4096).for_each(|b| *b = 1);
        std::hint::black_box(&memory);
        let minor: u64 = said(&mut faults, EVERY).iter().map(|(.., minor, _)| minor).sum();
        let all = targets::process_stat(pid).unwrap().minor_faults;
        assert!(minor > 0 && minor < all, "{minor} of {all}");
    }

    #[test]
    fn many_processes_take_turns() {
        let mut faults = Faults::default();
        for pid in 0..2 * LOOKS as u32 {
            faults.born(5, NOBODY + pid);
            faults.exited(NOBODY + pid, Count { minor: 1, major: 0 });
        }
        assert_eq!(said(&mut faults, EVERY).len(), LOOKS);
        assert_eq!(said(&mut faults, EVERY + 1).len(), 0);
        assert_eq!(said(&mut faults, 2 * EVERY).len(), LOOKS);
        assert_eq!(said(&mut faults, 3 * EVERY).len(), 0);
    }
}
