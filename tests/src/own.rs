//! Functions of the test program itself, as places for probes.

/// Offset of a function in the file it was loaded from.
///
/// # Panics
/// It is not mapped.
#[must_use]
pub fn file_offset(function: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    maps.lines()
        .find_map(|line| {
            let mut parts = line.split_ascii_whitespace();
            let (from, to) = parts.next()?.split_once('-')?;
            let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
            let offset = u64::from_str_radix(parts.nth(1)?, 16).ok()?;
            (from <= function && function < to).then(|| (function - from) as u64 + offset)
        })
        .expect("the function is mapped")
}
