//! The silences method: what is too much of gaps is taken from their starts, from all alike.

use super::queue::Gap;

/// Shortens `gaps` at their starts by `excess` ns in all, each by the same amount where it is long enough.
/// Takes from gaps that no call vouches for first. Returns what was taken from the others.
pub(super) fn trim(gaps: &mut Vec<Gap>, excess: u64) -> u64 {
    let rest = excess - take(gaps, excess, false);
    let vouched = if rest > 0 { take(gaps, rest, true) } else { 0 };
    gaps.retain(|g| !g.span.is_empty());
    vouched
}

fn take(gaps: &mut [Gap], excess: u64, vouched: bool) -> u64 {
    let mut chosen: Vec<&mut Gap> = gaps.iter_mut().filter(|g| g.empty.is_some() == vouched).collect();
    // Shortest first, so that what a short one cannot give falls to the longer.
    chosen.sort_by_key(|g| (g.span.len(), g.span.start));
    let mut left = excess;
    let mut number = chosen.len() as u64;
    for gap in chosen {
        let cut = left.div_ceil(number.max(1)).min(gap.span.len());
        gap.span.start += cut;
        left -= cut;
        number -= 1;
    }
    excess - left
}
