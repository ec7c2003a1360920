//! The report a person reads: headline, ledger (without a GPU the longest waits), the five questions, what to change,
//! the largest chains, and what could not be seen.

mod chains;
mod findings;
mod headline;
mod ledger;
mod questions;
mod sight;
pub(super) mod tally;
mod waits;

use super::page::{Page, Style};
use crate::finding::Report;

/// The report as text, never wider than `columns` (taken as 60 at least and [`super::WIDTH`] at most). Every
/// name from outside is escaped; the same report, style and width always give the same bytes.
#[must_use]
pub fn text(report: &Report, style: Style, columns: usize) -> String {
    let mut page = Page::new(style, columns);
    headline::write(&mut page, report);
    for gpu in &report.gpus {
        ledger::write(&mut page, gpu);
    }
    waits::write(&mut page, report);
    questions::write(&mut page, report);
    findings::write(&mut page, report);
    chains::write(&mut page, report);
    sight::write(&mut page, report);
    page.finish()
}
