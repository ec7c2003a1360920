//! Sets of half-open intervals.

use serde::{Deserialize, Serialize};

/// Half-open, nanoseconds on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Interval {
    #[serde(rename = "start_ns")]
    pub start: u64,
    #[serde(rename = "end_ns")]
    pub end: u64,
}

/// The union: in order, not touching, none empty.
#[must_use]
pub fn union(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|i| i.start < i.end);
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match merged.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => merged.push(next),
        }
    }
    merged
}

/// How much of `[from, to)` a union (as [`union`] gives it) covers.
#[must_use]
pub fn covered(union: &[Interval], from: u64, to: u64) -> u64 {
    let first = union.partition_point(|i| i.end <= from);
    union[first..]
        .iter()
        .take_while(|i| i.start < to)
        .map(|i| i.end.min(to).saturating_sub(i.start.max(from)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pairs: &[(u64, u64)]) -> Vec<Interval> {
        pairs.iter().map(|&(start, end)| Interval { start, end }).collect()
    }

    #[test]
    fn union_merges_overlapping_touching_and_contained() {
        assert_eq!(
            union(at(&[(30, 40), (0, 10), (10, 20), (5, 7), (50, 50), (39, 45)])),
            at(&[(0, 20), (30, 45)])
        );
    }

    #[test]
    fn covered_clips_at_both_ends() {
        let busy = at(&[(0, 20), (30, 45), (60, 70)]);
        assert_eq!(covered(&busy, 10, 62), 10 + 15 + 2);
        assert_eq!(covered(&busy, 20, 30), 0);
        assert_eq!(covered(&busy, 100, 50), 0);
        assert_eq!(covered(&[], 0, 100), 0);
    }
}
