//! Splitting whole nanoseconds without losing or inventing one.

/// Splits `total` in proportion to `weights` by largest remainder: the parts sum to `total` exactly. Equal
/// remainders go to the earlier part. All zero weights give all to the first part; no weights, no parts.
#[must_use]
pub fn apportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    if sum == 0 {
        return weights.iter().enumerate().map(|(i, _)| if i == 0 { total } else { 0 }).collect();
    }
    let mut parts = Vec::with_capacity(weights.len());
    let mut remainders = Vec::with_capacity(weights.len());
    let mut given = 0;
    for (i, &weight) in weights.iter().enumerate() {
        let exact = u128::from(total) * u128::from(weight);
        let part = narrow(exact / sum);
        given += part;
        parts.push(part);
        remainders.push((std::cmp::Reverse(exact % sum), i));
    }
    remainders.sort_unstable();
    let left = usize::try_from(total - given).unwrap_or(usize::MAX);
    for &(_, i) in remainders.iter().take(left) {
        parts[i] += 1;
    }
    parts
}

/// What of `total`, spread evenly over a length of `whole`, lies in `[from, to)`. Adjacent stretches sum
/// exactly, and all of them to `total`. Positions past `whole` count as `whole`; nothing lies in no length.
#[must_use]
pub fn prefix_share(total: u64, whole: u64, from: u64, to: u64) -> u64 {
    if whole == 0 || to <= from {
        return 0;
    }
    let up_to = |at: u64| narrow(u128::from(total) * u128::from(at.min(whole)) / u128::from(whole));
    up_to(to) - up_to(from)
}

/// Narrows a value that a factor of at most one keeps within 64 bits.
fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn remainders_go_to_the_largest_then_to_the_earlier() {
        assert_eq!(apportion(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(apportion(10, &[6, 3, 1]), [6, 3, 1]);
        assert_eq!(apportion(7, &[1, 2, 2]), [1, 3, 3]);
        assert_eq!(apportion(5, &[0, 0]), [5, 0]);
        assert_eq!(apportion(5, &[]), [0_u64; 0]);
    }

    proptest! {
        #[test]
        fn parts_sum_and_are_within_one_of_exact(
            total: u64,
            weights in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let parts = apportion(total, &weights);
            let sum: u128 = parts.iter().map(|&p| u128::from(p)).sum();
            prop_assert_eq!(sum, u128::from(total));
            let weight: u128 = weights.iter().map(|&w| u128::from(w)).sum();
            for (part, w) in parts.iter().zip(&weights) {
                let exact = (u128::from(total) * u128::from(*w)).checked_div(weight);
                let over = exact.map_or(0, |exact| u128::from(*part).wrapping_sub(exact));
                prop_assert!(over <= 1);
            }
        }

        #[test]
        fn adjacent_shares_sum(total: u64, whole in 1_u64.., mut cuts in prop::collection::vec(any::<u64>(), 0..9)) {
            cuts.iter_mut().for_each(|c| *c %= whole);
            cuts.extend([0, whole]);
            cuts.sort_unstable();
            let sum: u64 = cuts.windows(2).map(|c| prefix_share(total, whole, c[0], c[1])).sum();
            prop_assert_eq!(sum, total);
        }
    }
}
