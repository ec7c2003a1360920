//! Operators and annotations as user stacks, and samples of them at a sampler's pace.

use std::collections::{BTreeSet, HashSet};
use std::io;

use super::hash::Hash;
use super::names::{Names, Who};
use crate::trace::{Ns, Record, Sample, Stack, StackId, StackKind, Symbol};

/// 99 a second, as a live recording takes them.
pub(super) const PERIOD_NS: u64 = 10_101_010;
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
            out(Record::Stack(Stack { id, kind: StackKind::User, pid: who.pid, addresses }))?;
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
            out(Record::Sample(Sample { at, thread, pid, cpu: 0, kernel_stack: 0, user_stack }))?;
            open.next += PERIOD_NS;
        }
        Ok(())
    }

    /// The name table.
    pub(super) fn symbols(&self, names: &Names, out: &mut Out) -> io::Result<()> {
        for &(pid, address, name) in &self.used {
            let (frame, module) = names.symbol(name);
            out(Record::Symbol(Symbol {
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
