//! `whyidle` without a verb: the whole job.

use std::io::IsTerminal;
use std::time::Duration;

use super::analyse::analyse;
use super::error::CliError;
use super::live::LiveLine;
use super::options::{Common, Recording};
use super::output;
use super::range::Range;
use super::record::say_where;
use super::report::{columns, style};
use super::session::Session;
use crate::capture::selection::Selection;
use crate::render;

const DURATION: Duration = Duration::from_secs(30);

/// Finds the processes that use a GPU, watches them, prints the report, says where the trace lies.
pub fn watch(options: &Recording, common: &Common) -> Result<(), CliError> {
    let selection = Selection::GpuProcesses;
    let what = selection.describe();
    let duration = Some(options.duration.unwrap_or(DURATION));
    let session = Session::start(&selection, &what, duration, options, common)?;
    let mut live = LiveLine::new(session.path(), duration);
    let recorded = session.record(&mut live)?;
    live.clear();
    recorded.had_something("every process on a GPU")?;
    let report = analyse(&recorded.path, Range::default(), None, &[])?.report;
    let out = std::io::stdout();
    output::print(&render::text(&report, style(out.is_terminal()), columns(&out)))?;
    say_where(&recorded);
    recorded.settle()
}
