//! A page of text that is never wider than its columns, whatever is written on it.

use std::borrow::Cow;

use anstyle::{AnsiColor, Color, Style as Ansi};

use super::escape::{escape, escape_ascii};
use super::figure::TIE;
use super::fit::{elide, ellipsis, take, width};
use crate::cause::Stage;

/// Columns of a page where nothing asks for fewer, and the fewest there are.
pub const WIDTH: usize = 100;
pub const NARROWEST: usize = 60;

/// A label before a paragraph that is wider than this does not set its indent.
const LABEL: usize = 12;

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

/// Collects lines. Every way in clips to `columns`, so no caller can break the promise.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) style: Style,
    pub(super) columns: usize,
    text: String,
}

impl Page {
    /// Of at least [`NARROWEST`] and at most [`WIDTH`] columns.
    pub(super) fn new(style: Style, columns: usize) -> Self {
        Self { style, columns: columns.clamp(NARROWEST, WIDTH), text: String::new() }
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
        let mut room = if total > self.columns { self.columns - width(dots) } else { self.columns };
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

    /// Text wrapped at spaces: `first` before its first line, as many columns of space before the others
    /// (after a long label less). A word that is longer than a line is elided in the middle.
    pub(super) fn paragraph(&mut self, first: &str, ink: Ink, text: &str) {
        let label = width(first.trim_start());
        let hang = if label > LABEL { width(first) - label + 2 } else { width(first) };
        let hang = " ".repeat(hang.min(self.columns / 2));
        let (room, lead) = (self.columns - width(&hang), width(first).saturating_sub(width(&hang)));
        let words: Vec<String> = text.split_ascii_whitespace().map(|w| elide(w, room, self.style)).collect();
        let hole = "_".repeat(lead.min(room));
        let options = textwrap::Options::new(room)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
        // Stands for what of the label passes the hanging indent.
        let options = options.initial_indent(&hole);
        for (i, line) in textwrap::wrap(&words.join(" "), options).iter().enumerate() {
            if i == 0 {
                self.line(&[(Ink::Plain, first), (ink, line.get(hole.len()..).unwrap_or(""))]);
            } else {
                self.line(&[(Ink::Plain, &hang), (ink, line)]);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ASCII: Style = Style { colour: false, unicode: false };

    #[test]
    fn colours_only_when_asked() {
        let draw = |colour| {
            let mut page = Page::new(Style { colour, unicode: true }, WIDTH);
            page.line(&[(Ink::Strong, "idle"), (Ink::Plain, " 3")]);
            page.finish()
        };
        assert_eq!(draw(false), "idle 3\n");
        assert_eq!(draw(true), "\u{1b}[1midle\u{1b}[0m 3\n");
    }

    #[test]
    fn figures_stay_with_their_unit() {
        let mut page = Page::new(ASCII, WIDTH);
        let text = format!("{} 12.5{TIE}s", "x".repeat(92));
        page.paragraph("  ", Ink::Plain, &text);
        assert_eq!(page.finish(), format!("  {}\n  12.5 s\n", "x".repeat(92)));
    }

    proptest! {
        #[test]
        fn nothing_passes_the_edge(
            first in ".{0,120}",
            text in any::<String>(),
            unicode: bool,
            columns in 0_usize..200,
        ) {
            let mut page = Page::new(Style { colour: false, unicode }, columns);
            let (first, text) = (page.safe(&first).into_owned(), page.safe(&text).into_owned());
            page.paragraph(&first, Ink::Plain, &text);
            page.line(&[(Ink::Plain, &first), (Ink::Strong, &text), (Ink::Faint, &text)]);
            for line in page.finish().lines() {
                prop_assert!(width(line) <= columns.clamp(NARROWEST, WIDTH), "{line}");
            }
        }

    }
}
