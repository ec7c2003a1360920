//! Who has which of a row of numbered chunks.

use std::collections::{BTreeMap, VecDeque};

/// Ranges given back before the oldest of them is given out again: whoever reads it still may go on for a while.
const RESTING: usize = 64;

/// Gives out ranges of chunks, the first that fits.
#[derive(Debug, Default)]
pub(in crate::capture) struct Ranges {
    /// Start to length of what is free; neighbours are one.
    free: BTreeMap<u32, u32>,
    resting: VecDeque<(u32, u32)>,
    end: u32,
}

impl Ranges {
    /// How many there are, taken or not.
    pub(in crate::capture) fn end(&self) -> u32 {
        self.end
    }

    pub(in crate::capture) fn grow(&mut self, by: u32) {
        self.join(self.end, by);
        self.end += by;
    }

    /// Start of so many in a row.
    pub(in crate::capture) fn take(&mut self, chunks: u32) -> Option<u32> {
        let (&start, &length) = self.free.iter().find(|(_, length)| **length >= chunks)?;
        self.free.remove(&start);
        if length > chunks {
            self.free.insert(start + chunks, length - chunks);
        }
        Some(start)
    }

    pub(in crate::capture) fn free(&mut self, start: u32, chunks: u32) {
        self.resting.push_back((start, chunks));
        while self.resting.len() > RESTING {
            if let Some((start, chunks)) = self.resting.pop_front() {
                self.join(start, chunks);
            }
        }
    }

    fn join(&mut self, mut start: u32, mut chunks: u32) {
        if chunks == 0 {
            return;
        }
        if let Some(after) = self.free.remove(&(start + chunks)) {
            chunks += after;
        }
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            (start, chunks) = (before, chunks + length);
        }
        self.free.insert(start, chunks);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_given_back_is_whole_again() {
        let mut ranges = Ranges::default();
        ranges.grow(100);
        let taken: Vec<u32> = (0..10).filter_map(|_| ranges.take(10)).collect();
        assert_eq!((taken.len(), ranges.take(1)), (10, None));
        for start in [30, 10, 20, 0, 40, 90, 60, 80, 70, 50] {
            ranges.join(start, 10);
        }
        assert_eq!(ranges.take(100), Some(0));
    }

    #[test]
    fn what_was_given_back_rests_first() {
        let mut ranges = Ranges::default();
        ranges.grow(RESTING as u32 + 1);
        for at in 0..=RESTING as u32 {
            assert_eq!(ranges.take(1), Some(at));
        }
        for at in 0..RESTING as u32 {
            ranges.free(at, 1);
            assert_eq!(ranges.take(1), None);
        }
        ranges.free(RESTING as u32, 1);
        assert_eq!(ranges.take(1), Some(0), "the one that was given back first");
    }

    proptest! {
        #[test]
        fn nobody_gets_what_another_has(steps in prop::collection::vec((0u32..40, any::<bool>()), 1..200)) {
            let mut ranges = Ranges::default();
            ranges.grow(500);
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (n, gives_back) in steps {
                if gives_back && !held.is_empty() {
                    let (start, length) = held.swap_remove(n as usize % held.len());
                    ranges.free(start, length);
                } else if let Some(start) = ranges.take(n + 1) {
                    let overlaps = |(s, l): &(u32, u32)| start < s + l && *s < start + n + 1;
                    prop_assert!(start + n < 500 && !held.iter().any(overlaps));
                    held.push((start, n + 1));
                }
            }
        }
    }
}
