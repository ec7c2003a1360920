//! Where a thread itself keeps the address of its Python state: a word at the same place of every thread, measured
//! from its `pthread_t`, which is its `fs` base.

use std::collections::HashMap;

use super::memory::Memory;

/// To 3.14 a thread-specific value (`_PyRuntime.autoTSSkey`). glibc keeps the first 32 in `struct pthread`, as
/// pairs of a sequence number and the value (`specific_1stblock`).
const SPECIFIC: std::ops::Range<i32> = 720..720 + 640;
/// From 3.15 on a thread-local variable, which lies below, with those of everything else the program started
/// with.
const BELOW: u64 = 16 << 10;
const PAGE: u64 = 4096;
/// Threads that are compared.
const THREADS: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// Places that held it in every thread whenever they were looked at.
    held: Vec<i32>,
}

impl Slot {
    /// The one place. A variable beside it has the state too while the thread holds the interpreter's lock: a
    /// place is not taken before it is alone.
    pub(super) fn place(&self) -> Option<i32> {
        let mut specific = self.held.iter().filter(|at| SPECIFIC.contains(at));
        match (specific.next(), self.held.as_slice()) {
            (Some(at), _) | (None, [at]) => Some(*at),
            _ => None,
        }
    }

    /// Looks at threads: the `pthread_t` and the state of each. One that has several states has one of them there.
    pub(super) fn look(&mut self, memory: &impl Memory, states: &[(u64, u64)]) {
        let mut of: HashMap<u64, Vec<u64>> = HashMap::new();
        for (thread, state) in states {
            if of.len() < THREADS || of.contains_key(thread) {
                of.entry(*thread).or_default().push(*state);
            }
        }
        let mut all: Option<Vec<i32>> = None;
        // Threads that end meanwhile hold it nowhere.
        for held in
            of.iter().map(|(thread, states)| places(memory, *thread, states)).filter(|h| !h.is_empty())
        {
            match &mut all {
                Some(all) => all.retain(|at| held.contains(at)),
                None => all = Some(held),
            }
        }
        let Some(now) = all else { return };
        let before = std::mem::take(&mut self.held);
        self.held = now.iter().copied().filter(|at| before.contains(at)).collect();
        if self.held.is_empty() {
            self.held = now;
        }
    }
}

/// Where a thread holds one of `states`.
fn places(memory: &impl Memory, thread: u64, states: &[u64]) -> Vec<i32> {
    let mut held = Vec::new();
    let mut among = |from: u64, bytes: &[u8]| {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        for (at, _) in (from..).step_by(8).zip(words).filter(|(_, word)| states.contains(word)) {
            held.extend(i32::try_from(at.wrapping_sub(thread).cast_signed()).ok());
        }
    };
    let Some(until) = thread.checked_add(SPECIFIC.end as u64).filter(|_| thread.is_multiple_of(8)) else {
        return held;
    };
    let from = until - SPECIFIC.len() as u64;
    if let Some(bytes) = memory.bytes(from, 0, SPECIFIC.len()) {
        among(from, &bytes);
    }
    // Page by page: the first of them may begin in the midst of one, and what lies before need not be there.
    let lowest = thread.saturating_sub(BELOW);
    let mut end = thread;
    while end > lowest {
        let start = ((end - 1) & !(PAGE - 1)).max(lowest);
        let Some(bytes) = memory.bytes(start, 0, (end - start) as usize) else { break };
        among(start, &bytes);
        end = start;
    }
    held
}

#[cfg(test)]
mod tests {
    use super::super::memory::Fake;
    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;
    const FIRST: u64 = BASE + 0x3000;
    const SECOND: u64 = BASE + 0x5000;

    fn memory(words: &[(u64, u64)]) -> Fake {
        let mut memory = Fake { base: BASE, bytes: vec![0; 0x6000] };
        words.iter().for_each(|(at, word)| memory.put(*at, &word.to_le_bytes()));
        memory
    }

    #[test]
    fn a_thread_specific_value_is_taken_at_once() {
        let mut slot = Slot::default();
        slot.look(&memory(&[(FIRST + 728, 7), (FIRST - 8, 7)]), &[(FIRST, 7)]);
        assert_eq!(slot.place(), Some(728));
    }

    #[test]
    fn a_variable_is_taken_once_it_alone_holds_the_state() {
        let states = [(FIRST, 7), (SECOND, 9), (SECOND, 11), (BASE + 0x10_0000, 5)];
        let mut slot = Slot::default();
        assert_eq!(slot.place(), None);
        // The first thread runs, and holds it in two places.
        let running = [(FIRST - 40, 7), (FIRST - 48, 7)];
        slot.look(&memory(&running), &states[..1]);
        assert_eq!(slot.place(), None);
        slot.look(&memory(&[(FIRST - 40, 7)]), &states[..1]);
        assert_eq!(slot.place(), Some(-40));
        // Two threads tell it in one look; the second is in an interpreter of its own, another thread is gone.
        let mut slot = Slot::default();
        slot.look(&memory(&[running.as_slice(), &[(SECOND - 40, 11)]].concat()), &states);
        assert_eq!(slot.place(), Some(-40));
    }

    #[test]
    fn a_place_that_was_none_is_given_up() {
        let mut slot = Slot::default();
        slot.look(&memory(&[(FIRST - 80, 7)]), &[(FIRST, 7)]);
        assert_eq!(slot.place(), Some(-80));
        slot.look(&memory(&[(FIRST - 40, 7), (SECOND - 40, 9)]), &[(FIRST, 7), (SECOND, 9)]);
        assert_eq!(slot.place(), Some(-40));
        // Nothing to be seen changes nothing.
        slot.look(&memory(&[]), &[(FIRST, 7)]);
        assert_eq!(slot.place(), Some(-40));
    }

    #[test]
    fn addresses_that_cannot_be_are_none() {
        let mut slot = Slot::default();
        for thread in [0, 8, 4, BASE, BASE + 8, u64::MAX, u64::MAX - 7, u64::MAX - 1400] {
            slot.look(&memory(&[]), &[(thread, 0)]);
        }
        assert!(slot.held.len() < 8 << 10);
    }
}
