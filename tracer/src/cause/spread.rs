//! Splitting nanoseconds without losing or inventing one.

/// Splits `total` in proportion to `weights` by largest remainder; ties go to the earlier weight. The parts
/// sum to `total` unless `weights` is empty. Where all weights are 0 the first part takes everything.
#[must_use]
pub(crate) fn spread(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    let mut parts = vec![0; weights.len()];
    if sum == 0 {
        if let Some(first) = parts.first_mut() {
            *first = total;
        }
        return parts;
    }
    let mut given = 0u64;
    let mut remainders = Vec::with_capacity(weights.len());
    for (i, &weight) in weights.iter().enumerate() {
        let product = u128::from(total) * u128::from(weight);
        // At most `total`, because weight <= sum.
        parts[i] = u64::try_from(product / sum).unwrap_or(total);
        given += parts[i];
        remainders.push((product % sum, i));
    }
    remainders.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let left = usize::try_from(total - given).unwrap_or(usize::MAX);
    for &(_, i) in remainders.iter().take(left) {
        parts[i] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::spread;

    #[test]
    fn largest_remainder_gets_the_rest() {
        assert_eq!(spread(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(spread(100, &[300, 150]), [67, 33]);
        assert_eq!(spread(5, &[0, 0]), [5, 0]);
        assert_eq!(spread(5, &[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole(total: u64, weights in proptest::collection::vec(any::<u64>(), 1..40)) {
            let parts = spread(total, &weights);
            prop_assert_eq!(parts.iter().map(|&p| u128::from(p)).sum::<u128>(), u128::from(total));
        }
    }
}
