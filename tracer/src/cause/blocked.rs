//! The blocked time of a thread: whom each of its waits leads to, and what is said of those that lead to nobody.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::claims;
use super::classify::classify;
use super::ends::{inside_copy, inside_synchronise, step};
use super::entry::{Entry, Step, join, scale};
use super::item::item;
use super::kernel_stacks::Sleep;
use super::place::Place;
use super::waits::{self, Next};
use super::walk::Walker;
use super::{Stage, calls};
use crate::timeline::Thread;
use crate::trace::{CudaCall, CudaFamily, Ns, Span, ThreadKey};

/// A merged wait's last piece, its class, and the entry of the driver call around it.
pub(super) type BlockKey = (usize, Option<Sleep>, Option<Ns>);

/// The blocked time of one merged wait within a stretch.
pub(super) struct Block<'t> {
    /// Its first piece there.
    index: usize,
    class: Option<Sleep>,
    call: Option<&'t CudaCall>,
    start: Ns,
    end: Ns,
    ns: u64,
    /// Where it leads, once that was asked.
    next: Option<Next>,
}

impl Walker<'_> {
    /// Waits that lead to the same thread are followed together: of many the longest stand for the rest.
    pub(super) fn all_blocked<'t>(
        &self,
        thread: &'t Thread,
        blocks: impl Iterator<Item = Block<'t>>,
        span: Span,
        place: Place<'_>,
    ) -> Vec<Entry> {
        let mut groups: BTreeMap<Option<ThreadKey>, Vec<Block<'t>>> = BTreeMap::new();
        for mut block in blocks {
            block.next = self.next(thread, &block);
            let giver = match block.next {
                Some(Next::Follow(giver)) => Some(giver),
                _ => None,
            };
            groups.entry(giver).or_default().push(block);
        }
        let sum = |blocks: &[Block<'t>]| blocks.iter().map(|b| b.ns).sum::<u64>();
        let mut followed: Vec<_> =
            groups.into_iter().map(|(giver, blocks)| (sum(&blocks), giver, blocks)).collect();
        followed.sort_by_key(|(ns, giver, _)| (Reverse(*ns), *giver));
        let (mut entries, mut rank) = (Vec::new(), 0);
        for (ns, giver, mut blocks) in followed {
            if giver.is_none() {
                let part = |b: &Block<'t>| self.blocked(thread, b, place.for_part(b.ns, span));
                entries.extend(blocks.iter().flat_map(part));
                continue;
            }
            let (place, most) = place.for_group(ns, span, rank);
            rank += 1;
            blocks.sort_by_key(|b| (Reverse(b.ns), b.index));
            blocks.truncate(most);
            let kept = Span::new(0, sum(&blocks));
            let part = |b: &Block<'t>| self.blocked(thread, b, place.for_part(b.ns, kept));
            entries.extend(scale(&join(blocks.iter().flat_map(part)), ns));
        }
        entries
    }

    /// Where a wait leads, if it is on record.
    fn next(&self, thread: &Thread, block: &Block<'_>) -> Option<Next> {
        let off = thread.off_cpu.get(block.index)?;
        let end = thread.off_cpu.get(waits::last_piece(thread, block.index))?;
        Some(waits::next(&self.context, off, end, block.class))
    }

    /// Pieces of one merged wait are spread as one, so that re-arming it costs no rounding.
    pub(super) fn note_block<'t>(
        &self,
        thread: &'t Thread,
        index: usize,
        part: Span,
        call: Option<&'t CudaCall>,
        blocks: &mut BTreeMap<BlockKey, Block<'t>>,
    ) {
        let class = thread.off_cpu.get(index).and_then(|off| classify(&self.context, off));
        let key = (waits::last_piece(thread, index), class, call.map(|c| c.entry));
        let new = Block { index, class, call, start: part.start, end: part.end, ns: 0, next: None };
        let block = blocks.entry(key).or_insert(new);
        block.end = part.end;
        block.ns += part.len();
    }

    fn blocked(&self, thread: &Thread, block: &Block<'_>, place: Place<'_>) -> Vec<Entry> {
        let (ns, class) = (block.ns, block.class);
        let last = waits::last_piece(thread, block.index);
        let (off, end) = (thread.off_cpu.get(block.index), thread.off_cpu.get(last));
        let (Some(off), Some(end), Some(next)) = (off, end, block.next.clone()) else {
            let own = step(thread.key, "blocked", "waits");
            return vec![Entry::unexplained(ns, "no record of this wait", own)];
        };
        let what = waits::describe(&self.context, off, class);
        let own = step(thread.key, "blocked", &what);
        let stacks = (off.kernel_stack, off.user_stack);
        let lock = claims::of_driver_lock(&self.context, off, end);
        if let Some(call) = block.call.filter(|c| lock.is_none() && calls::synchronises(c)) {
            let entry = inside_synchronise(&self.context, thread, place.idle_to(block.end), ns, call);
            return vec![entry.with_stacks(stacks.0, stacks.1)];
        }
        let claim = claims::of_wait(&self.context, thread, off, end, class, block.call);
        let leaf = |mut entry: Entry| {
            entry.shown.file = off.file;
            vec![entry.with_stacks(stacks.0, stacks.1).claimed(claim.as_ref())]
        };
        match next {
            Next::Leaf(mechanism, culprit) => leaf(Entry::leaf(ns, mechanism, culprit, own)),
            Next::Unexplained(reason) => {
                match claim.as_ref().filter(|c| c.mechanism.stage() == Stage::Driver) {
                    // Inside the driver the wait itself is as far as a chain can see.
                    Some(claim) => leaf(Entry::leaf(ns, claim.mechanism, None, own)),
                    None if block.call.is_some_and(|c| c.family == CudaFamily::Copy) => {
                        let copy = block.call.map(|call| inside_copy(thread, "blocked", ns, call));
                        copy.map_or_else(Vec::new, leaf)
                    }
                    None => leaf(Entry::unexplained(ns, reason, own)),
                }
            }
            Next::Follow(giver) => {
                let claim = claim.or_else(|| claims::of_peer(&self.context, giver));
                let child = claims::of_child(&self.context, thread, giver, end.woken.unwrap_or(end.ran));
                let entries = self.delivered(thread, giver, last, block, place);
                let own = Step { waits_for: Some(giver), ..own };
                entries
                    .into_iter()
                    .map(|e| e.claimed(child.as_ref()).behind(own.clone(), stacks, claim.as_ref()))
                    .collect()
            }
        }
    }

    /// A wait of `thread` that `giver` ended, spread over the giver's whole item.
    fn delivered(
        &self,
        thread: &Thread,
        giver: ThreadKey,
        last: usize,
        block: &Block<'_>,
        place: Place<'_>,
    ) -> Vec<Entry> {
        let end =
            |reason: &str| vec![Entry::unexplained(block.ns, reason, step(giver, "unseen", "not followed"))];
        let Some(by) = self.context.recorded(giver) else { return end("no records of this thread") };
        let mut nearer = place.path.to_vec();
        nearer.push(thread.key);
        let item = item(&self.context, by, thread, last, block.start, &nearer);
        if item.beyond {
            return end("beyond look-back: nothing in 60 s says where this thread began what it delivered");
        }
        if item.span.is_empty() {
            return end("a wake-up at the clock's zero");
        }
        let entries = self.cached(thread, giver, item.span, place);
        scale(&entries, block.ns)
    }
}
