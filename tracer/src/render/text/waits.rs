//! Without a GPU: what the watched threads waited for.

use crate::finding::Report;
use crate::render::page::{Ink, Page};

pub(super) fn write(page: &mut Page, report: &Report) {
    if report.waits.is_empty() {
        return;
    }
    page.heading("LONGEST WAITS of the watched threads");
    for wait in &report.waits {
        let wait = page.safe(wait).into_owned();
        page.paragraph("  - ", Ink::Plain, &wait);
    }
    page.paragraph("  ", Ink::Faint, "Their stacks: `whyidle flame --kind offcpu`.");
}
