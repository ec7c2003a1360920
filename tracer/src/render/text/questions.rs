//! The five questions, in the report's order.

use crate::finding::Report;
use crate::render::page::{Ink, Page};

pub(super) fn write(page: &mut Page, report: &Report) {
    page.heading("FIVE QUESTIONS");
    if report.questions.is_empty() {
        page.paragraph("  ", Ink::Plain, "Not known: this report holds no answers.");
    }
    for (i, answer) in report.questions.iter().enumerate() {
        let question = page.safe(&answer.question).into_owned();
        page.paragraph(&format!("  {}. ", i + 1), Ink::Plain, &question);
        let text = page.safe(&answer.text).into_owned();
        if answer.known {
            page.paragraph("     ", Ink::Strong, &text);
        } else if text.to_ascii_lowercase().starts_with("not known") {
            page.paragraph("     ", Ink::Faint, &text);
        } else {
            page.paragraph("     ", Ink::Faint, &format!("not known: {text}"));
        }
    }
}
