//! The one door for names from outside: `comm`, paths, functions, cgroups, device names.
//!
//! A process chooses its own `comm` and file names. Printed raw they could move the cursor, recolour the
//! terminal, forge lines of the report or reverse reading order.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

/// Marks of zero width in a row that a script may need; more only serve to paint over other lines.
const MARKS: usize = 2;

/// `name` as one line that is safe to print: control characters, line separators, direction overrides and
/// invisible characters become `\n`, `\t`, `\x1b` or `\u{202e}`. A backslash stays as it is, because
/// systemd's unit names are full of them and nothing reads this text back.
#[must_use]
pub fn escape(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Cow::Borrowed(name);
    }
    let mut safe = String::with_capacity(name.len() + 8);
    let mut marks = 0;
    for c in name.chars() {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        if unsafe_to_print(c) || marks > MARKS {
            push_escaped(&mut safe, c);
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// As [`escape`], for bytes that need not be UTF-8: what is not becomes U+FFFD.
#[must_use]
pub fn escape_bytes(name: &[u8]) -> String {
    escape(&String::from_utf8_lossy(name)).into_owned()
}

/// As [`escape`], and every character outside ASCII becomes `\u{...}`.
#[must_use]
pub fn escape_ascii(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii() && !c.is_ascii_control() { safe.push(c) } else { push_escaped(&mut safe, c) }
    }
    safe
}

/// Characters that do something to a terminal or to the order of what stands beside them.
#[must_use]
pub fn unsafe_to_print(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
            | '\u{fdd0}'..='\u{fdef}' | '\u{fffe}' | '\u{ffff}')
}

fn push_escaped(safe: &mut String, c: char) {
    match c {
        '\n' => safe.push_str("\\n"),
        '\r' => safe.push_str("\\r"),
        '\t' => safe.push_str("\\t"),
        c if u32::from(c) < 0x100 => push_formatted(safe, format_args!("\\x{:02x}", u32::from(c))),
        c => push_formatted(safe, format_args!("\\u{{{:x}}}", u32::from(c))),
    }
}

fn push_formatted(safe: &mut String, text: std::fmt::Arguments<'_>) {
    let written = safe.write_fmt(text);
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_names_are_borrowed_and_unchanged() {
        assert!(matches!(escape("/data/imagenet/n01440764"), Cow::Borrowed("/data/imagenet/n01440764")));
        assert_eq!(escape("größe-図"), "größe-図");
        assert_eq!(escape(r"dev-disk\x2dby.slice"), r"dev-disk\x2dby.slice");
    }

    #[test]
    fn hostile_names_become_visible() {
        assert_eq!(escape("a\nb\r\tc"), r"a\nb\r\tc");
        assert_eq!(escape("\x1b[31mred\x1b]0;title\x07"), r"\x1b[31mred\x1b]0;title\x07");
        assert_eq!(escape("\u{9b}2J\u{7f}"), r"\x9b2J\x7f");
        assert_eq!(escape("gpj\u{202e}exe"), r"gpj\u{202e}exe");
        assert_eq!(escape("\u{2066}x\u{2069}\u{200b}\u{feff}"), r"\u{2066}x\u{2069}\u{200b}\u{feff}");
        assert_eq!(escape("l\u{2028}p\u{2029}"), r"l\u{2028}p\u{2029}");
    }

    #[test]
    fn a_pile_of_marks_is_cut_to_what_a_script_needs() {
        assert_eq!(escape("e\u{301}\u{302}"), "e\u{301}\u{302}");
        assert_eq!(escape("e\u{301}\u{302}\u{303}"), "e\u{301}\u{302}\\u{303}");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(escape_bytes(b"img\xff\xfe\n.jpg"), "img\u{fffd}\u{fffd}\\n.jpg");
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_left(name in any::<String>()) {
            prop_assert!(!escape(&name).chars().any(unsafe_to_print));
            prop_assert!(escape_ascii(&name).bytes().all(|b| (0x20..0x7f).contains(&b)));
        }

        #[test]
        fn escaping_twice_changes_nothing(name in any::<String>()) {
            let once = escape(&name).into_owned();
            prop_assert_eq!(escape(&once), once.as_str());
        }
    }
}
