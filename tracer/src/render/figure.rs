//! Figures as a reader wants them: shares that never round something to nothing, times with a unit.

/// A no-break space: keeps a figure and its unit on one line; [`super::page::Page`] prints it as a space.
pub(super) const TIE: char = '\u{a0}';

/// `part` of `whole` in percent with one decimal. What is not nothing is never `0.0 %`, what is not
/// everything never `100.0 %`; `-` without a whole.
pub(super) fn share(part: u64, whole: u64) -> String {
    match tenths(part, whole) {
        None => "-".to_owned(),
        Some(0) if part > 0 => format!("<0.1{TIE}%"),
        Some(t) if t >= 1000 && part < whole => format!(">99.9{TIE}%"),
        Some(t) => format!("{}.{}{TIE}%", t / 10, t % 10),
    }
}

/// `part` of `whole` in tenths of a percent, rounded to nearest.
pub(super) fn tenths(part: u64, whole: u64) -> Option<u128> {
    let whole = u128::from(whole);
    (whole > 0).then(|| (u128::from(part) * 1000 + whole / 2) / whole)
}

/// Share in points of the window ("54 points of it"), whole numbers from 10 up.
pub(super) fn points(part: u64, whole: u64) -> String {
    match tenths(part, whole) {
        None => "-".to_owned(),
        Some(0) if part > 0 => "under 0.1".to_owned(),
        Some(t) if t >= 100 => format!("{}", (t + 5) / 10),
        Some(t) => format!("{}.{}", t / 10, t % 10),
    }
}

/// Milliseconds with thousands separators; decimals only where the number is small.
pub(super) fn millis(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        1..1_000 => "<0.001".to_owned(),
        1_000..1_000_000 => format!("0.{:03}", ns / 1_000),
        1_000_000..9_950_000 => {
            let tenths = (ns + 50_000) / 100_000;
            format!("{}.{}", tenths / 10, tenths % 10)
        }
        _ => grouped(ns / 1_000_000 + u64::from(ns % 1_000_000 >= 500_000)),
    }
}

/// A time with its unit, three or four digits.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0 => format!("0{TIE}s"),
        1..1_000 => format!("{ns}{TIE}ns"),
        1_000..1_000_000 => format!("{}{TIE}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}{TIE}ms", millis(ns)),
        _ => {
            let tenths = ns / 100_000_000 + u64::from(ns % 100_000_000 >= 50_000_000);
            format!("{}.{}{TIE}s", grouped(tenths / 10), tenths % 10)
        }
    }
}

/// Digits in groups of three.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 gap`, `12 gaps`.
pub(super) fn count(n: u64, noun: &str) -> String {
    format!("{}{TIE}{noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(s: String) -> String {
        s.replace(TIE, " ")
    }

    #[test]
    fn a_share_never_hides_a_rest() {
        assert_eq!(plain(share(0, 10)), "0.0 %");
        assert_eq!(plain(share(1, 1_000_000)), "<0.1 %");
        assert_eq!(plain(share(999_999, 1_000_000)), ">99.9 %");
        assert_eq!(plain(share(10, 10)), "100.0 %");
        assert_eq!(plain(share(613, 1000)), "61.3 %");
        assert_eq!(plain(share(5, 0)), "-");
        assert_eq!(plain(share(u64::MAX, u64::MAX)), "100.0 %");
    }

    #[test]
    fn points_are_whole_from_ten_up() {
        assert_eq!(points(541, 1000), "54");
        assert_eq!(points(18, 1000), "1.8");
        assert_eq!(points(1, 100_000), "under 0.1");
    }

    #[test]
    fn times_carry_a_fitting_unit() {
        assert_eq!(plain(time(0)), "0 s");
        assert_eq!(plain(time(999)), "999 ns");
        assert_eq!(plain(time(215_000)), "215 us");
        assert_eq!(plain(time(3_249_999)), "3.2 ms");
        assert_eq!(plain(time(412_000_000)), "412 ms");
        assert_eq!(plain(time(16_230_000_000)), "16.2 s");
        assert_eq!(plain(time(u64::MAX)), "18,446,744,073.7 s");
        assert_eq!(millis(16_230_499_999), "16,230");
        assert_eq!(millis(9_960_000), "10");
        assert_eq!(millis(1), "<0.001");
    }

    #[test]
    fn counts_agree_with_their_noun() {
        assert_eq!(plain(count(1, "gap")), "1 gap");
        assert_eq!(plain(count(1_234_567, "gap")), "1,234,567 gaps");
    }
}
