//! Which processes belong together: a process tree, and siblings that run the same program.

use std::collections::BTreeMap;

use crate::timeline::{Thread, Timeline};
use crate::trace::TargetKind;

/// A tree's topmost recorded process, or, where several run the same program under one parent, that program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    Process(u32),
    Siblings { parent: u32, program: Vec<String> },
}

/// Ancestors looked at: parents may form circles in a damaged trace.
const GENERATIONS: usize = 64;

/// `init` and kthreadd adopt; being their child says nothing.
const ADOPTERS: std::ops::RangeInclusive<u32> = 0..=2;

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    by_process: BTreeMap<u32, Job>,
}

impl Jobs {
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let mut first: BTreeMap<u32, &Thread> = BTreeMap::new();
        for thread in timeline.threads.values().filter(|t| is_own(t)) {
            let slot = first.entry(thread.pid).or_insert(thread);
            if thread.key.tid == thread.pid {
                *slot = thread;
            }
        }
        let by_process = first.keys().map(|&pid| (pid, job(&first, pid))).collect();
        Self { by_process }
    }

    /// Both are known and of one job.
    pub(crate) fn together(&self, a: u32, b: u32) -> bool {
        a == b || self.by_process.get(&a).is_some_and(|job| self.by_process.get(&b) == Some(job))
    }
}

/// Watched as part of a job, not only because it woke one.
pub(crate) fn is_own(thread: &Thread) -> bool {
    matches!(thread.kind, TargetKind::Named | TargetKind::Inherited) && !thread.kernel_thread
}

fn job(first: &BTreeMap<u32, &Thread>, pid: u32) -> Job {
    let mut top = pid;
    for _ in 0..GENERATIONS {
        match first.get(&top).map(|t| t.ppid).filter(|p| *p != top && first.contains_key(p)) {
            Some(parent) if !ADOPTERS.contains(&parent) => top = parent,
            _ => break,
        }
    }
    match first.get(&top) {
        Some(thread) if !ADOPTERS.contains(&thread.ppid) && !thread.cmdline.is_empty() => {
            Job::Siblings { parent: thread.ppid, program: thread.cmdline.iter().take(2).cloned().collect() }
        }
        _ => Job::Process(top),
    }
}
