//! Line numbers from the tables of code objects. Tables come from another process's memory: any bytes give an
//! answer or none, in time that is linear in their length.

/// To 3.9 (`Objects/lnotab_notes.txt`): pairs of a step in bytes and a step in lines. `at` in bytes; before
/// the first instruction the function's own line.
pub(super) fn lnotab(table: &[u8], first_line: u32, at: i32) -> Option<u32> {
    let (mut address, mut line) = (0i64, i64::from(first_line));
    for [bytes, lines] in table.as_chunks().0 {
        address += i64::from(*bytes);
        if address > at.into() {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    positive(line)
}

/// 3.10: pairs of a length in bytes and a step in lines, -128 for a stretch without a line. `at` in bytes.
pub(super) fn linetable(table: &[u8], first_line: u32, at: i32) -> Option<u32> {
    if at < 0 {
        return positive(first_line.into());
    }
    let (mut end, mut line) = (0i64, i64::from(first_line));
    for [bytes, lines] in table.as_chunks().0 {
        end += i64::from(*bytes);
        let step = lines.cast_signed();
        if step != i8::MIN {
            line += i64::from(step);
        }
        if i64::from(at) < end {
            return if step == i8::MIN { None } else { positive(line) };
        }
    }
    None
}

/// From 3.11 (`Objects/locations.md`). `at` in code units of two bytes.
pub(super) fn locations(table: &[u8], first_line: u32, at: i64) -> Option<u32> {
    if at < 0 {
        return positive(first_line.into());
    }
    let (mut end, mut line) = (0i64, i64::from(first_line));
    let mut rest = table;
    while let Some((head, tail)) = rest.split_first() {
        // The bytes of an entry but its first have their topmost bit clear.
        let length = tail.iter().position(|byte| byte & 0x80 != 0).unwrap_or(tail.len());
        let (entry, next) = tail.split_at(length);
        rest = next;
        end += i64::from(head & 7) + 1;
        let kind = head >> 3 & 15;
        line = line.saturating_add(match kind {
            NO_COLUMNS | LONG => signed(entry)?,
            ONE_LINE_1 => 1,
            ONE_LINE_2 => 2,
            _ => 0,
        });
        if at < end {
            return if kind == NONE { None } else { positive(line) };
        }
    }
    None
}

const ONE_LINE_1: u8 = 11;
const ONE_LINE_2: u8 = 12;
const NO_COLUMNS: u8 = 13;
const LONG: u8 = 14;
const NONE: u8 = 15;

/// A number in groups of six bits, the lowest first; its lowest bit is the sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let mut value = 0i64;
    for (i, byte) in bytes.iter().enumerate().take(8) {
        value |= i64::from(byte & 0x3f) << (6 * i);
        if byte & 0x40 == 0 {
            return Some(if value & 1 == 0 { value >> 1 } else { -(value >> 1) });
        }
    }
    None
}

fn positive(line: i64) -> Option<u32> {
    u32::try_from(line).ok().filter(|line| *line > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digit = |b: u8| (b as char).to_digit(16).unwrap() as u8;
        text.as_bytes().as_chunks().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
    }

    /// One function, compiled by each version: from line 301 on, with a call over several lines, a loop and a
    /// `finally`. Where each stretch of bytes begins and on which line it is, as `dis` and `co_lines` tell it.
    const V3_8: &str = "0002020102ff04020c010401020102fe080302010802";
    const LINES_3_8: &[(i32, u32)] = &[
        (0, 303),
        (2, 304),
        (4, 303),
        (8, 305),
        (20, 306),
        (24, 307),
        (26, 308),
        (28, 306),
        (36, 309),
        (38, 310),
        (46, 312),
    ];
    const V3_10: &str = "0202020104ff0c0204010201020108fe020304011002";
    const LINES_3_10: &[(i32, u32)] = &[
        (0, 303),
        (2, 304),
        (4, 303),
        (8, 305),
        (20, 306),
        (24, 307),
        (26, 308),
        (28, 306),
        (36, 309),
        (38, 310),
        (42, 312),
    ];
    const V3_11: &str = "8000e0090ad8090af103010a0b8041e50d12903189588c58f00003050ff00003050f8801d808098d51d80c0dd80c0df105020e\
                         0ff400020e0ff10002090f88018801f00603050cd80f10e5080989038c0388038803f88d0189038c0388038803f8f8f8";
    const LINES_3_11: &[(i64, Option<u32>)] = &[
        (0, Some(301)),
        (2, Some(303)),
        (4, Some(304)),
        (6, Some(303)),
        (12, Some(305)),
        (46, Some(306)),
        (60, Some(307)),
        (62, Some(308)),
        (64, Some(306)),
        (86, Some(309)),
        (88, Some(310)),
        (90, Some(312)),
        (120, None),
        (122, Some(312)),
        (152, None),
        (158, None),
    ];
    const V3_15: &str = "8100e0090ad8090af503010a0b8041e40d1290318f588801d808098c51d80c0dd80c0df305020e0ff50002090f8a01f103000e\
                         16f00803050cd80f10e408098d03f88c018d03fa";
    const LINES_3_15: &[(i64, Option<u32>)] = &[
        (0, Some(301)),
        (4, Some(303)),
        (6, Some(304)),
        (8, Some(303)),
        (22, Some(305)),
        (52, Some(306)),
        (64, Some(307)),
        (66, Some(308)),
        (68, Some(306)),
        (94, Some(305)),
        (98, Some(309)),
        (100, Some(310)),
        (102, Some(312)),
        (124, None),
        (126, Some(312)),
        (148, None),
        (154, None),
    ];

    /// Every byte of a stretch is on its line, and so is what comes before the first where `before` says so.
    fn each<A: Copy + Into<i64>, L: Copy + PartialEq + std::fmt::Debug>(
        stretches: &[(A, L)],
        line: impl Fn(i64) -> L,
    ) {
        for pair in stretches.windows(2) {
            for at in pair[0].0.into()..pair[1].0.into() {
                assert_eq!(line(at), pair[0].1, "at {at}");
            }
        }
    }

    #[test]
    fn each_version_tells_its_lines() {
        each(LINES_3_8, |at| lnotab(&unhex(V3_8), 301, at as i32).unwrap());
        each(LINES_3_10, |at| linetable(&unhex(V3_10), 301, at as i32).unwrap());
        each(LINES_3_11, |at| locations(&unhex(V3_11), 301, at.div_euclid(2)));
        each(LINES_3_15, |at| locations(&unhex(V3_15), 301, at.div_euclid(2)));
    }

    #[test]
    fn a_frame_that_has_not_begun_is_on_the_functions_own_line() {
        assert_eq!(lnotab(&unhex(V3_8), 301, -1), Some(301));
        assert_eq!(linetable(&unhex(V3_10), 301, -2), Some(301));
        assert_eq!(locations(&unhex(V3_11), 301, -1), Some(301));
    }

    #[test]
    fn a_step_too_long_for_a_byte_is_several() {
        // 300 lines up, after a stretch of two bytes: 127 and 127 and 46.
        assert_eq!(lnotab(&[2, 127, 0, 127, 0, 46], 1, 2), Some(301));
        assert_eq!(lnotab(&[2, 0x80, 0, 0xff], 200, 2), Some(71));
        assert_eq!(linetable(&[2, 0, 2, 0x80, 2, 5], 7, 2), None);
        assert_eq!(linetable(&[2, 0, 2, 0x80, 2, 5], 7, 4), Some(12));
        // A long form of 64 lines: kind 14, the number in two bytes, three more numbers.
        assert_eq!(locations(&[0x80 | 14 << 3, 0x40, 2, 1, 1, 1], 7, 0), Some(71));
        assert_eq!(locations(&[0x80 | 13 << 3, 1 << 1 | 1], 7, 0), Some(6));
    }

    proptest! {
        #[test]
        fn any_table_gives_a_line_or_none(
            table in prop::collection::vec(any::<u8>(), 0..200), first in any::<u32>(), at in any::<i64>(),
        ) {
            let _ = lnotab(&table, first, at as i32);
            let _ = linetable(&table, first, at as i32);
            let _ = locations(&table, first, at);
        }
    }
}
