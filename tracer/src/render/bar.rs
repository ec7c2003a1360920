//! Bars. A part that is not nothing always shows, and the parts of a split bar fill it exactly.

use super::page::Style;

/// Characters for busy, idle and unknown; apart by shape, not only by colour.
pub(super) fn marks(style: Style) -> [&'static str; 3] {
    if style.unicode { ["█", "░", "?"] } else { ["#", ".", "?"] }
}

/// Splits `cells` over `parts` by largest remainder, at least one cell for each part that is not zero.
/// All zero: no cells.
pub(super) fn split<const N: usize>(parts: [u64; N], cells: usize) -> [usize; N] {
    let total: u128 = parts.iter().copied().map(u128::from).sum();
    let mut out = [0; N];
    if total == 0 || cells < N {
        return out;
    }
    let mut rest: [(u128, usize); N] = [(0, 0); N];
    for (i, part) in parts.into_iter().enumerate() {
        let scaled = u128::from(part) * cells as u128;
        // At most `cells`, so it fits.
        out[i] = usize::try_from(scaled / total).unwrap_or(cells);
        rest[i] = (scaled % total, i);
    }
    rest.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let missing = cells - out.iter().sum::<usize>();
    for (_, i) in rest.into_iter().take(missing) {
        out[i] += 1;
    }
    for i in 0..N {
        if parts[i] > 0
            && out[i] == 0
            && let Some(largest) = (0..N).max_by_key(|&j| out[j])
        {
            out[largest] -= 1;
            out[i] = 1;
        }
    }
    out
}

/// `part` of `whole` as a bar of at most `cells`, in eighths of a cell where the style has them.
pub(super) fn one(part: u64, whole: u64, cells: usize, style: Style) -> String {
    if part == 0 || whole == 0 || cells == 0 {
        return String::new();
    }
    let steps = if style.unicode { 8 } else { 1 };
    let all = cells * steps;
    let exact = (u128::from(part) * all as u128 + u128::from(whole) / 2) / u128::from(whole);
    let filled = usize::try_from(exact).unwrap_or(all).clamp(1, all);
    if !style.unicode {
        return "#".repeat(filled);
    }
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    format!("{}{}", "█".repeat(filled / 8), EIGHTHS[filled % 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNICODE: Style = Style { colour: false, unicode: true };
    const ASCII: Style = Style { colour: false, unicode: false };

    #[test]
    fn small_parts_still_show() {
        assert_eq!(split([1_000_000, 1, 1], 10), [8, 1, 1]);
        assert_eq!(split([0, 0, 0], 10), [0, 0, 0]);
        assert_eq!(split([387, 613, 0], 100), [39, 61, 0]);
        assert_eq!(one(1, 1_000_000, 20, UNICODE), "▏");
        assert_eq!(one(1, 1_000_000, 20, ASCII), "#");
        assert_eq!(one(1, 2, 3, UNICODE), "█▌");
        assert_eq!(one(5, 2, 3, ASCII), "###");
        assert_eq!(one(0, 2, 3, UNICODE), "");
    }

    proptest! {
        #[test]
        fn a_split_bar_is_full(parts: [u64; 3], cells in 3usize..200) {
            let out = split(parts, cells);
            let expected = if parts.iter().all(|&p| p == 0) { 0 } else { cells };
            prop_assert_eq!(out.iter().sum::<usize>(), expected);
            for i in 0..3 {
                prop_assert_eq!(parts[i] == 0, out[i] == 0);
            }
        }
    }
}
