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

/// What a thread is called as a member of a pool: its name with numbers after a separator left out, so that
/// `loader-0` and `loader-1` are one role and `python3` stays what it is.
pub(crate) fn role(comm: &str) -> String {
    let mut role = String::with_capacity(comm.len());
    let mut separated = false;
    for c in comm.chars() {
        if c.is_ascii_digit() && separated {
            if !role.ends_with('*') {
                role.push('*');
            }
        } else {
            separated = "-_:/#. ".contains(c);
            role.push(c);
        }
    }
    role
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
            Job::Siblings { parent: thread.ppid, program: program(&thread.cmdline) }
        }
        _ => Job::Process(top),
    }
}

/// A program, and what it runs where it is an interpreter: the first word that is no option, or the module.
fn program(cmdline: &[String]) -> Vec<String> {
    let mut words = cmdline.iter().skip(1).skip_while(|w| w.starts_with('-') && *w != "-m");
    let what = match words.next() {
        Some(option) if option == "-m" => words.next(),
        word => word,
    };
    cmdline.iter().take(1).chain(what).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};

    #[test]
    fn numbers_after_a_separator_are_left_out_of_a_role() {
        assert_eq!(role("loader-12"), "loader-*");
        assert_eq!(role("Thread-3 (run)"), "Thread-* (run)");
        assert_eq!(role("python3"), "python3");
        assert_eq!(role(""), "");
    }

    #[test]
    fn a_tree_is_a_job_and_so_are_siblings_that_run_one_program() {
        let with = |trace: TraceBuilder, pid, ppid, program: &str| {
            trace.thread_with(pid, pid, program, |t| t.ppid = ppid)
        };
        let mut trace = TraceBuilder::new(0, MS);
        for (pid, ppid, program) in [
            (10, 5, "rank"),
            (11, 10, "loader"),
            (12, 11, "decoder"),
            (20, 5, "rank"),
            (30, 5, "cron"),
            (40, 1, "rank"),
        ] {
            trace = with(trace, pid, ppid, program);
        }
        let jobs = Jobs::new(&build(trace.records()));
        assert!(jobs.together(10, 12) && jobs.together(12, 11));
        assert!(jobs.together(12, 20), "ranks of one launcher");
        assert!(!jobs.together(10, 30) && !jobs.together(10, 40) && !jobs.together(10, 99));
    }

    #[test]
    fn a_program_is_what_it_runs_whatever_its_options() {
        let of = |line: &str| program(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("python3 -u train.py --lr 1"), ["python3", "train.py"]);
        assert_ne!(of("python3 -u train.py"), of("python3 -u prep.py"));
        assert_ne!(of("python3 -m a"), of("python3 -m b"));
        assert_eq!(of("python3 -u -m a --x"), ["python3", "a"]);
        assert_eq!(of("rank"), ["rank"]);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let trace = TraceBuilder::new(0, MS).thread_with(10, 10, "a", |t| t.ppid = 11).thread_with(
            11,
            11,
            "b",
            |t| t.ppid = 10,
        );
        assert!(Jobs::new(&build(trace.records())).together(10, 10));
    }
}
