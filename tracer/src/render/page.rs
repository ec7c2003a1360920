//! A page of text that is never wider than [`WIDTH`] columns, whatever is written on it.

use std::borrow::Cow;

use anstyle::{AnsiColor, Color, Style as Ansi};
use unicode_width::UnicodeWidthChar;

use super::escape::{escape, escape_ascii};
use super::figure::TIE;
use crate::cause::Stage;

/// Columns of a page.
pub const WIDTH: usize = 100;

/// How text is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// SGR colours: only for a terminal that wants them.
    pub colour: bool,
    /// Block and line characters; without it the page is plain ASCII.
    pub unicode: bool,
}

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Faint,
    Busy,
    Unknown,
    Warning,
    Stage(Stage),
}

impl Ink {
    fn ansi(self) -> Ansi {
        let fore = |colour: AnsiColor| Ansi::new().fg_color(Some(Color::Ansi(colour)));
        match self {
            Self::Plain => Ansi::new(),
            Self::Strong => Ansi::new().bold(),
            Self::Faint => Ansi::new().dimmed(),
            Self::Busy => fore(AnsiColor::Green),
            Self::Unknown => fore(AnsiColor::BrightBlack),
            Self::Warning => fore(AnsiColor::Yellow),
            Self::Stage(stage) => match stage {
                Stage::Storage | Stage::Network => fore(AnsiColor::Blue),
                Stage::Prepare => fore(AnsiColor::Yellow),
                Stage::Memory | Stage::Copy => fore(AnsiColor::Magenta),
                Stage::Launch | Stage::Driver | Stage::Peer => fore(AnsiColor::Cyan),
                Stage::Schedule | Stage::Lock | Stage::Process => fore(AnsiColor::Red),
                Stage::NoDemand | Stage::Unexplained => fore(AnsiColor::BrightBlack),
            },
        }
    }
}

/// Collects lines. Every way in clips to [`WIDTH`], so no caller can break the promise.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) style: Style,
    text: String,
}

impl Page {
    pub(super) fn new(style: Style) -> Self {
        Self { style, text: String::new() }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// A name from outside, made safe for this page.
    pub(super) fn safe<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.style.unicode { escape(name) } else { Cow::Owned(escape_ascii(name)) }
    }

    /// As [`Self::safe`], elided in the middle to `columns`.
    pub(super) fn name(&self, name: &str, columns: usize) -> String {
        elide(&self.safe(name), columns, self.style)
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    pub(super) fn heading(&mut self, title: &str) {
        self.blank();
        self.line(&[(Ink::Strong, title)]);
    }

    /// One line of pieces; what passes the right edge is cut and marked.
    pub(super) fn line(&mut self, pieces: &[(Ink, &str)]) {
        let total: usize = pieces.iter().map(|(_, t)| width(t)).sum();
        let dots = ellipsis(self.style);
        let mut room = if total > WIDTH { WIDTH - width(dots) } else { WIDTH };
        let start = self.text.len();
        for (ink, text) in pieces {
            let cut = take(text, room);
            room -= width(cut);
            self.paint(*ink, cut);
            if cut.len() < text.len() {
                self.text.push_str(dots);
                break;
            }
        }
        let kept = self.text[start..].trim_end().len();
        self.text.truncate(start + kept);
        self.text.push('\n');
    }

    /// Text wrapped at spaces: `first` before its first line, as many columns of space before the others.
    /// A word that is longer than a line is elided in the middle.
    pub(super) fn paragraph(&mut self, first: &str, ink: Ink, text: &str) {
        let hang = " ".repeat(width(first).min(WIDTH / 2));
        let room = WIDTH - width(&hang);
        let words: Vec<String> = text.split_ascii_whitespace().map(|w| elide(w, room, self.style)).collect();
        let options = textwrap::Options::new(room)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
        for (i, line) in textwrap::wrap(&words.join(" "), options).iter().enumerate() {
            let lead = if i == 0 { first } else { &hang };
            self.line(&[(Ink::Plain, lead), (ink, line)]);
        }
    }

    fn paint(&mut self, ink: Ink, text: &str) {
        let printed = text.chars().map(|c| if c == TIE { ' ' } else { c });
        if self.style.colour && ink != Ink::Plain && !text.trim().is_empty() {
            let ansi = ink.ansi();
            self.text.push_str(&ansi.render().to_string());
            self.text.extend(printed);
            self.text.push_str(&ansi.render_reset().to_string());
        } else {
            self.text.extend(printed);
        }
    }
}

fn ellipsis(style: Style) -> &'static str {
    if style.unicode { "…" } else { "..." }
}

/// Columns `text` takes on a terminal; control characters count one, so that a slip shows up as too wide.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(1)).sum()
}

/// The longest start of `text` that fits `room` columns.
fn take(text: &str, room: usize) -> &str {
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

    #[test]
    fn colours_only_when_asked() {
        let draw = |colour| {
            let mut page = Page::new(Style { colour, unicode: true });
            page.line(&[(Ink::Strong, "idle"), (Ink::Plain, " 3")]);
            page.finish()
        };
        assert_eq!(draw(false), "idle 3\n");
        assert_eq!(draw(true), "\u{1b}[1midle\u{1b}[0m 3\n");
    }

    #[test]
    fn figures_stay_with_their_unit() {
        let mut page = Page::new(ASCII);
        let text = format!("{} 12.5{TIE}s", "x".repeat(92));
        page.paragraph("  ", Ink::Plain, &text);
        assert_eq!(page.finish(), format!("  {}\n  12.5 s\n", "x".repeat(92)));
    }

    proptest! {
        #[test]
        fn nothing_passes_the_edge(first in ".{0,120}", text in any::<String>(), unicode: bool) {
            let mut page = Page::new(Style { colour: false, unicode });
            let (first, text) = (page.safe(&first).into_owned(), page.safe(&text).into_owned());
            page.paragraph(&first, Ink::Plain, &text);
            page.line(&[(Ink::Plain, &first), (Ink::Strong, &text), (Ink::Faint, &text)]);
            for line in page.finish().lines() {
                prop_assert!(width(line) <= WIDTH, "{line}");
            }
        }

        #[test]
        fn an_elided_name_fits(text in ".*", columns in 0usize..120) {
            prop_assert!(width(&elide(&escape(&text), columns, UNICODE)) <= columns);
        }
    }
}
