//! Sets of stretches.

use crate::trace::Span;

/// In order and apart: overlapping and touching ones joined, empty ones dropped.
#[must_use]
pub fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|s| !s.is_empty());
    spans.sort_unstable();
    let mut apart: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => apart.push(span),
        }
    }
    apart
}

/// Sum of their lengths.
#[must_use]
pub fn total(spans: &[Span]) -> u64 {
    spans.iter().fold(0, |sum: u64, s| sum.saturating_add(s.len()))
}

/// Time of `spans` that lies in none of `others`; both in order and apart.
#[must_use]
pub fn without(spans: &[Span], others: &[Span]) -> u64 {
    let mut sum = total(spans);
    for span in spans {
        let from = others.partition_point(|o| o.end <= span.start);
        let within = others[from..].iter().take_while(|o| o.start < span.end);
        sum -= within.filter_map(|o| o.intersect(*span)).map(Span::len).sum::<u64>();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_once_and_what_is_taken_out_not_at_all() {
        let spans = union(vec![Span::new(5, 10), Span::new(0, 7), Span::new(20, 21), Span::new(30, 30)]);
        assert_eq!(spans, [Span::new(0, 10), Span::new(20, 21)]);
        assert_eq!(total(&spans), 11);
        assert_eq!(without(&spans, &[Span::new(2, 4), Span::new(9, 40)]), 7);
        assert_eq!(without(&spans, &[]), 11);
    }
}
