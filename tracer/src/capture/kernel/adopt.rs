//! Threads that are not of the job but wake its threads often become targets, up to a cap, and are named as
//! adopted: a chain that leaves the job goes on there.

use std::collections::HashMap;

use super::targets::{self, Pids};
use crate::trace::{Record, TargetKind, ThreadKey, ThreadSeen, WakerContext};

/// Wake-ups that ended waits past the threshold before a thread is adopted.
const OFTEN: u32 = 16;
/// Candidates are few; a host of short-lived wakers must not grow the table.
const CANDIDATES: usize = 4096;

#[derive(Debug)]
pub struct Adoption {
    cap: u32,
    adopted: u32,
    wakes: HashMap<ThreadKey, u32>,
}

impl Adoption {
    #[must_use]
    pub fn new(cap: u32) -> Self {
        Self { cap, adopted: 0, wakes: HashMap::new() }
    }

    /// Counts wake-ups done in task context; the one too many adopts the waker.
    pub fn see(&mut self, record: &Record, pids: &Pids) -> Option<ThreadSeen> {
        let Record::OffCpu(wait) = record else { return None };
        let waker = wait.waker.as_ref()?;
        let key = waker.thread?;
        if waker.context != WakerContext::Task
            || self.adopted >= self.cap
            || waker.pid == std::process::id()
            || pids.contains(key.tid)
            || !self.often(key)
        {
            return None;
        }
        let seen = targets::identity(wait.ran, waker.pid, key.tid, TargetKind::Adopted)?;
        if seen.key != key || !pids.add(key.tid) {
            return None;
        }
        self.adopted += 1;
        Some(seen)
    }

    fn often(&mut self, key: ThreadKey) -> bool {
        if self.wakes.len() >= CANDIDATES && !self.wakes.contains_key(&key) {
            self.wakes.clear();
        }
        let count = self.wakes.entry(key).or_insert(0);
        *count += 1;
        if *count < OFTEN {
            return false;
        }
        self.wakes.remove(&key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn often_is_often() {
        let mut a = Adoption::new(1);
        let key = ThreadKey { tid: 1, start_ticks: 2 };
        assert!((1..OFTEN).all(|_| !a.often(key)));
        assert!(a.often(key));
        assert!(!a.often(key), "counted anew");
    }

    #[test]
    fn candidates_are_bounded() {
        let mut a = Adoption::new(1);
        for tid in 0..3 * CANDIDATES as u32 {
            a.often(ThreadKey { tid, start_ticks: 0 });
        }
        assert!(a.wakes.len() <= CANDIDATES);
    }
}
