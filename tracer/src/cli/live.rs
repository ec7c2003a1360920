//! The line on a terminal while recording; nothing in a pipe.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::estimate::Estimator;
use super::report::style;
use crate::capture::recorder::{Ending, Progress, Watch};
use crate::render::{self, Live, LiveCause};

/// Shows how far the recording is. Never ends it.
#[derive(Debug)]
pub struct LiveLine {
    /// `None` where standard error is no terminal.
    shown: Option<Shown>,
}

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    estimator: Estimator,
    duration_ns: Option<u64>,
}

impl LiveLine {
    #[must_use]
    pub fn new(trace: &Path, duration: Option<Duration>) -> Self {
        let shown = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // The default template if this one does not parse.
            if let Ok(template) = ProgressStyle::with_template("{msg}") {
                bar.set_style(template);
            }
            let duration_ns = duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
            Shown { bar, estimator: Estimator::new(trace), duration_ns }
        });
        Self { shown }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if let Some(shown) = &self.shown {
            shown.bar.finish_and_clear();
        }
    }
}

impl Watch for LiveLine {
    fn tick(&mut self, progress: &Progress) -> Option<Ending> {
        let shown = self.shown.as_mut()?;
        shown.estimator.tick(progress);
        let estimate = shown.estimator.latest();
        let live = Live {
            elapsed_ns: u64::try_from(progress.elapsed.as_nanos()).unwrap_or(u64::MAX),
            duration_ns: shown.duration_ns,
            devices: &progress.busy,
            largest: estimate.as_ref().map(|e| LiveCause {
                mechanism: e.mechanism,
                ns: e.ns,
                idle_ns: e.idle_ns,
                culprit: e.culprit.as_deref(),
            }),
            lost: progress.lost,
        };
        let columns = usize::from(console_columns());
        shown.bar.set_message(render::live(&live, columns, style(true)));
        None
    }

    fn ending(&mut self) {
        if let Some(shown) = &self.shown {
            shown.bar.set_message("recorded; naming functions");
        }
    }
}

/// One less than the terminal has: a full line would wrap on some.
fn console_columns() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| size.ws_col.max(20)) - 1
}
