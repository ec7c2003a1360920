//! Comparing stretches of time by how much they overlap.

use serde::Serialize;

use crate::timeline::{total, without};
use crate::trace::Span;

/// How well stretches that were found cover those that are true, by length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Share of the true that was found.
    pub recall: f64,
    /// Share of the found that is true.
    pub precision: f64,
    /// Harmonic mean of the two.
    pub f1: f64,
}

/// Both in order and without overlaps. Nothing found of nothing is a full score.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shares to be shown")]
pub fn score(found: &[Span], truth: &[Span]) -> Score {
    let (found_ns, true_ns, common) = (total(found), total(truth), overlap(found, truth));
    let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    Score {
        recall: share(common, true_ns),
        precision: share(common, found_ns),
        f1: share(2 * common, found_ns + true_ns),
    }
}

/// Length that both have, each in order and without overlaps.
#[must_use]
pub fn overlap(a: &[Span], b: &[Span]) -> u64 {
    total(a) - without(a, b)
}

/// What lies between stretches in order.
#[must_use]
pub fn gaps(busy: &[Span]) -> Vec<Span> {
    busy.windows(2).map(|pair| Span::new(pair[0].end, pair[1].start)).filter(|gap| !gap.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::union;

    fn spans(of: &[(u64, u64)]) -> Vec<Span> {
        of.iter().map(|s| Span::new(s.0, s.1)).collect()
    }

    #[test]
    fn half_found_and_a_third_of_it_wrong() {
        let (found, truth) = (spans(&[(0, 10), (20, 25)]), spans(&[(5, 25)]));
        let score = score(&found, &truth);
        assert!((score.recall - 0.5).abs() < 1e-9, "{score:?}");
        assert!((score.precision - 2.0 / 3.0).abs() < 1e-9, "{score:?}");
        assert!((score.f1 - 4.0 / 7.0).abs() < 1e-9, "{score:?}");
    }

    #[test]
    fn all_or_nothing() {
        let some = spans(&[(3, 9)]);
        assert!((score(&some, &some).f1 - 1.0).abs() < 1e-9);
        assert!(score(&some, &spans(&[(9, 12)])).f1 < 1e-9);
        assert!((score(&[], &[]).f1 - 1.0).abs() < 1e-9);
        assert!(score(&[], &some).recall < 1e-9);
    }

    #[test]
    fn unions_and_gaps() {
        let union = union(spans(&[(5, 6), (0, 2), (2, 3), (1, 2), (4, 4)]));
        assert_eq!(union, spans(&[(0, 3), (5, 6)]));
        assert_eq!(gaps(&union), spans(&[(3, 5)]));
    }
}
