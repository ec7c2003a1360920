//! Operators and annotations as user stacks, and samples of them at a sampler's pace.

use std::collections::{BTreeSet, HashSet};
use std::io;

use super::hash::Hash;
use super::names::{Names, Who};
use crate::trace::{Ns, Record, Sample, Stack, StackEnd, StackId, StackKind, Symbol};

/// 99 a second, as a live recording takes them.
pub(super) const PERIOD_NS: u64 = 10_101_010;
/// Samples of a stretch in which a thread's stack does not change. A longer one has as many, each for several
/// periods, so that an event that lasts for days is no more to keep than one that lasts a second.
const MAX_ALIKE: u64 = 100;
/// Deepest stack kept.
const MAX_DEPTH: usize = 127;
/// Stacks remembered as written; past that they are written again, which changes nothing.
const MAX_SENT: usize = 1 << 16;

pub(super) type Out<'a> = dyn FnMut(Record) -> io::Result<()> + 'a;

/// Where a thread is: what it is in, outermost first.
#[derive(Debug, Default)]
pub(super) struct Open {
    ops: Vec<(Ns, u32)>,
    /// Next instant of a sample.
    next: Ns,
}

#[derive(Debug, Default)]
pub(super) struct Stacks {
    sent: HashSet<StackId>,
    /// Process, address and name of the frames written.
    used: BTreeSet<(u32, u64, u32)>,
}

impl Open {
    pub(super) fn enter(&mut self, name: u32, end: Ns) {
        if self.ops.len() < MAX_DEPTH {
            self.ops.push((end, name));
        }
    }
}

impl Stacks {
    /// The stack a thread is in at `at`, written out where it was not yet. 0 for none.
    pub(super) fn at(
        &mut self,
        who: &Who,
        open: &mut Open,
        at: Ns,
        names: &Names,
        out: &mut Out,
    ) -> io::Result<StackId> {
        open.ops.retain(|(end, _)| *end > at);
        if open.ops.is_empty() {
            return Ok(0);
        }
        let mut hash = Hash::new();
        hash.add(&who.pid.to_le_bytes());
        for (_, name) in &open.ops {
            hash.add(&names.address(*name).to_le_bytes());
        }
        let id = hash.finish();
        if self.sent.len() >= MAX_SENT {
            self.sent.clear();
        }
        if self.sent.insert(id) {
            let frames = open.ops.iter().rev().map(|(_, name)| (names.address(*name), *name));
            let addresses = frames.clone().map(|(address, _)| address).collect();
            self.used.extend(frames.map(|(address, name)| (who.pid, address, name)));
            out(Record::Stack(Stack {
                image: 0,
                id,
                kind: StackKind::User,
                pid: who.pid,
                addresses,
                end: StackEnd::Start,
                python: 0,
            }))?;
        }
        Ok(id)
    }

    /// Samples of a thread up to `to`.
    pub(super) fn sample(
        &mut self,
        who: &Who,
        open: &mut Open,
        to: Ns,
        names: &Names,
        out: &mut Out,
    ) -> io::Result<()> {
        while open.next < to {
            let (at, thread, pid) = (open.next, who.key, who.pid);
            let user_stack = self.at(who, open, at, names, out)?;
            if user_stack == 0 {
                open.next = to.next_multiple_of(PERIOD_NS);
                break;
            }
            let alike = open.ops.iter().map(|(end, _)| *end).fold(to, Ns::min);
            let left = (alike - at).div_ceil(PERIOD_NS);
            let step = left.div_ceil(MAX_ALIKE);
            while open.next < alike {
                let (at, periods) = (open.next, step.min((alike - open.next).div_ceil(PERIOD_NS)));
                let stands_for = u32::try_from(periods).unwrap_or(u32::MAX);
                let sample = Sample { at, thread, pid, user_stack, periods: stands_for, ..Sample::default() };
                out(Record::Sample(sample))?;
                open.next += periods * PERIOD_NS;
            }
        }
        Ok(())
    }

    /// The name table.
    pub(super) fn symbols(&self, names: &Names, out: &mut Out) -> io::Result<()> {
        for &(pid, address, name) in &self.used {
            let (frame, module) = names.symbol(name);
            out(Record::Symbol(Symbol {
                image: 0,
                kind: StackKind::User,
                pid,
                address,
                frames: vec![frame],
                module: module.into(),
                file_offset: 0,
                build_id: Vec::new(),
                reason: String::new(),
            }))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Written, import};
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn samples(written: &Written) -> Vec<Sample> {
        let (records, _) = import(written.json().as_bytes()).unwrap();
        records.into_iter().filter_map(|r| if let Record::Sample(s) = r { Some(s) } else { None }).collect()
    }

    #[test]
    fn samples_of_an_event_are_bounded_however_long_it_is() {
        for seconds in [1, 2, 100, 86_000] {
            let mut written = Written::default();
            written.op(7, "aten::long", 0, seconds * SECOND_US);
            let samples = samples(&written);
            assert!(samples.len() as u64 <= MAX_ALIKE, "{} for {seconds} s", samples.len());
            let periods: u64 = samples.iter().map(|s| u64::from(s.periods)).sum();
            let expected = seconds * 1_000_000_000 / PERIOD_NS;
            assert!(periods.abs_diff(expected) <= 1, "{periods} periods in {seconds} s");
            for pair in samples.windows(2) {
                assert_eq!(pair[1].at - pair[0].at, u64::from(pair[0].periods) * PERIOD_NS);
            }
        }
    }

    #[test]
    fn many_threads_of_long_events_are_bounded_too_and_keep_their_changes() {
        let mut written = Written::default();
        for tid in 1..=20 {
            written.op(tid, "aten::outer", 0, 80_000 * SECOND_US);
            written.op(tid, "aten::inner", 40_000 * SECOND_US, 10 * SECOND_US);
        }
        let samples = samples(&written);
        // Before, in and after the inner one.
        assert!(samples.len() as u64 <= 20 * 3 * MAX_ALIKE, "{}", samples.len());
        let mut by_stack = std::collections::BTreeMap::<StackId, u64>::new();
        samples.iter().for_each(|s| *by_stack.entry(s.user_stack).or_default() += u64::from(s.periods));
        let inner = 20 * 10 * 1_000_000_000 / PERIOD_NS;
        assert!(by_stack.values().any(|n| n.abs_diff(inner) <= 40), "{by_stack:?}");
        assert_eq!(by_stack.len(), 2);
    }
}
