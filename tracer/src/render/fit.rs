//! Text measured in columns of a terminal, and made to fit.

use unicode_width::UnicodeWidthChar;

use super::page::Style;

pub(super) fn ellipsis(style: Style) -> &'static str {
    if style.unicode { "…" } else { "..." }
}

/// Columns `text` takes on a terminal; control characters count one, so that a slip shows up as too wide.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(1)).sum()
}

/// The longest start of `text` that fits `room` columns.
pub(super) fn take(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(1);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// `text` padded with spaces on the right to `columns`.
pub(super) fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// `text` padded with spaces on the left to `columns`.
pub(super) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// `text` in at most `columns`, cut in the middle: the end of a path says more than its middle, so it gets
/// two thirds, and both cuts prefer a `/`.
pub(super) fn elide(text: &str, columns: usize, style: Style) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let dots = ellipsis(style);
    let room = columns.saturating_sub(width(dots));
    let head = take(text, room / 3);
    let head = head.rfind('/').map_or(head, |slash| &head[..=slash]);
    let mut tail_at = text.len();
    let mut used = width(head);
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(1);
        if used > room || at < head.len() {
            break;
        }
        tail_at = at;
    }
    let tail = &text[tail_at..];
    let tail = match tail.find('/') {
        Some(slash) if slash <= tail.len() / 2 => &tail[slash..],
        _ => tail,
    };
    take(&format!("{head}{dots}{tail}"), columns).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::escape::escape;
    use proptest::prelude::*;

    const UNICODE: Style = Style { colour: false, unicode: true };
    const ASCII: Style = Style { colour: false, unicode: false };

    #[test]
    fn a_long_path_keeps_its_ends() {
        let path = "/data/imagenet/train/a-very-long-folder-name/n01440764/n01440764_10026.JPEG";
        assert_eq!(elide(path, 40, UNICODE), "/data/…/n01440764/n01440764_10026.JPEG");
        assert_eq!(elide(path, 40, ASCII), "/data/.../n01440764/n01440764_10026.JPEG");
        assert_eq!(elide("short", 40, UNICODE), "short");
        assert_eq!(elide("abcdefghij", 4, UNICODE), "a…ij");
        assert_eq!(elide("abcdefghij", 0, ASCII), "");
    }

    #[test]
    fn a_wide_character_is_two_columns() {
        assert_eq!(width("図書"), 4);
        assert_eq!(left("図", 4), "図  ");
        assert_eq!(take("図書館", 5), "図書");
    }

    proptest! {
        #[test]
        fn an_elided_name_fits(text in ".*", columns in 0usize..120) {
            prop_assert!(width(&elide(&escape(&text), columns, UNICODE)) <= columns);
        }
    }
}
