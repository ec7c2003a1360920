//! Whether the driver is at work although none of its exported entry points is ever hit.
//!
//! The runtime takes the driver's functions from `cuGetProcAddress`. That they are the exported ones is nowhere
//! promised, so it is watched for: CPU samples inside the driver's code, and no call seen.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::trace::{Ns, Record, StackId, StackKind};

/// No hit for this long, with samples in the driver all the while: a single wait inside the driver is shorter.
const SILENT: Ns = 10_000_000_000;
/// Samples that it takes.
const SAMPLES: u32 = 20;
/// Stacks kept of processes of which it is not known where the driver lies; a table that is full is begun anew.
const EARLY: usize = 1 << 16;

#[derive(Debug, Default)]
pub struct Bypass {
    /// Where each process has the driver's code.
    code: HashMap<u32, Vec<Range<u64>>>,
    /// User stacks that end in it. A stack is sent once, however often it is sampled, so they are kept.
    inside: HashSet<StackId>,
    /// Process and innermost address of stacks that came before it was known where the driver lies.
    early: HashMap<StackId, (u32, u64)>,
    /// Last hit, or when the watch began.
    quiet_since: Ns,
    /// Samples inside the driver since.
    samples: u32,
}

impl Bypass {
    /// The driver's code in a process, as mapped.
    pub fn maps(&mut self, pid: u32, code: Vec<Range<u64>>) {
        let within = |address: &u64| code.iter().any(|range| range.contains(address));
        self.inside
            .extend(self.early.iter().filter(|(_, (p, at))| *p == pid && within(at)).map(|(id, _)| *id));
        self.early.retain(|_, (p, _)| *p != pid);
        self.code.insert(pid, code);
    }

    /// Whether that is known of a process.
    #[must_use]
    pub fn knows(&self, pid: u32) -> bool {
        self.code.contains_key(&pid)
    }

    /// Ids are used again: of processes that map the driver no longer nothing is known.
    pub fn keep(&mut self, pids: &HashSet<u32>) {
        self.code.retain(|pid, _| pids.contains(pid));
    }

    /// The watch begins anew.
    pub fn begin(&mut self, at: Ns) {
        (self.quiet_since, self.samples) = (at, 0);
    }

    pub fn see(&mut self, record: &Record) {
        match record {
            Record::Stack(stack) if stack.kind == StackKind::User => {
                if let Some(&innermost) = stack.addresses.first() {
                    self.place(stack.id, stack.pid, innermost);
                }
            }
            Record::Sample(sample) if self.inside.contains(&sample.user_stack) => self.samples += 1,
            Record::Submits(run) => self.begin(run.last),
            Record::CudaCall(call) => self.begin(call.exit.unwrap_or(call.entry)),
            _ => {}
        }
    }

    fn place(&mut self, id: StackId, pid: u32, innermost: u64) {
        match self.code.get(&pid) {
            Some(code) if code.iter().any(|range| range.contains(&innermost)) => {
                self.inside.insert(id);
            }
            Some(_) => {}
            None => {
                if self.early.len() >= EARLY {
                    self.early.clear();
                }
                self.early.insert(id, (pid, innermost));
            }
        }
    }

    /// Whether that is so by now.
    #[must_use]
    pub fn found(&self, at: Ns) -> bool {
        self.samples >= SAMPLES && at.saturating_sub(self.quiet_since) >= SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{CudaCall, Sample, Stack, StackEnd, Submits};

    const SECOND: Ns = 1_000_000_000;

    fn stack(id: StackId, address: u64) -> Record {
        Record::Stack(Stack {
            image: 0,
            id,
            kind: StackKind::User,
            pid: 7,
            addresses: vec![address, 0x10],
            end: StackEnd::Unknown,
            python: 0,
        })
    }

    fn sample(at: Ns, user_stack: StackId) -> Record {
        Record::Sample(Sample { at, pid: 7, user_stack, ..Sample::default() })
    }

    fn bypass() -> Bypass {
        let mut bypass = Bypass::default();
        bypass.maps(7, std::iter::once(0x1000..0x2000).collect());
        bypass.begin(SECOND);
        bypass.see(&stack(1, 0x1800));
        bypass.see(&stack(2, 0x2800));
        bypass
    }

    #[test]
    fn work_in_the_driver_without_a_hit_is_found_after_some_time() {
        let mut b = bypass();
        (0..SAMPLES).for_each(|i| b.see(&sample(2 * SECOND + u64::from(i), 1)));
        assert!(!b.found(5 * SECOND));
        assert!(b.found(SECOND + SILENT));
    }

    #[test]
    fn stacks_sent_before_the_driver_was_found_count_once_it_is() {
        let mut b = Bypass::default();
        b.see(&stack(1, 0x1800));
        b.see(&stack(2, 0x2800));
        b.see(&sample(SECOND / 2, 1));
        b.maps(7, std::iter::once(0x1000..0x2000).collect());
        b.begin(SECOND);
        (0..100).for_each(|_| b.see(&sample(2 * SECOND, 2)));
        assert!(!b.found(100 * SECOND));
        (0..SAMPLES).for_each(|_| b.see(&sample(2 * SECOND, 1)));
        assert!(b.found(SECOND + SILENT));
    }

    #[test]
    fn a_process_that_has_the_id_of_another_is_looked_at_anew() {
        let mut b = bypass();
        b.keep(&HashSet::new());
        assert!(!b.knows(7));
        b.see(&stack(3, 0x1800));
        b.maps(7, std::iter::once(0x5000..0x6000).collect());
        (0..100).for_each(|_| b.see(&sample(2 * SECOND, 3)));
        assert!(!b.found(100 * SECOND));
    }

    #[test]
    fn work_elsewhere_says_nothing() {
        let mut b = bypass();
        (0..100).for_each(|_| b.see(&sample(2 * SECOND, 2)));
        (0..100).for_each(|_| b.see(&sample(2 * SECOND, 3)));
        assert!(!b.found(100 * SECOND));
    }

    #[test]
    fn any_hit_begins_anew() {
        for hit in [
            Record::Submits(Submits { last: 3 * SECOND, ..Submits::default() }),
            Record::CudaCall(CudaCall { entry: 2 * SECOND, exit: Some(3 * SECOND), ..CudaCall::default() }),
        ] {
            let mut b = bypass();
            (0..100).for_each(|_| b.see(&sample(2 * SECOND, 1)));
            b.see(&hit);
            assert!(!b.found(100 * SECOND));
            (0..100).for_each(|_| b.see(&sample(4 * SECOND, 1)));
            assert!(!b.found(3 * SECOND + SILENT - 1));
            assert!(b.found(3 * SECOND + SILENT));
        }
    }
}
