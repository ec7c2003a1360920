//! A PyTorch profiler's recording becomes a trace: host calls as the edges the probes would have kept,
//! operators and annotations as stacks, and of the device's activity its busy share alone, a window at a time.
//!
//! Pure over a byte stream but for scratch files, which the caller makes. `docs/import.md` says what is taken
//! from where and how much memory it takes.

mod calls;
mod collect;
mod error;
mod event;
mod hash;
mod kineto;
mod lacks;
mod lossy;
mod names;
mod reduce;
mod sort;
mod stacks;
mod told;
mod truth;
mod write;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Read};

pub use collect::Tally;
pub use error::ImportError;
pub use lacks::Lack;
pub use sort::Scratch;
pub use truth::{NVML_WINDOW_NS, Windows};

use crate::trace::{Record, Span};

/// What is to be made of a device's activity.
#[derive(Debug)]
pub enum Activity<'a> {
    /// Readings in windows of so many nanoseconds.
    Readings(u64),
    /// Nothing in the trace; the busy stretches go here, in order, by device.
    Truth(&'a mut BTreeMap<u32, Vec<Span>>),
}

/// What came of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub tally: Tally,
    /// What the recording does not hold.
    pub lacks: Vec<Lack>,
    /// Why reading stopped before the recording's end.
    pub cut: Option<String>,
    pub span: Span,
}

/// Reads a recording and hands out records, `Host` first.
///
/// # Errors
/// It is no recording, it cannot be read, or a scratch file or `out` cannot be written.
pub fn kineto(
    input: impl Read,
    scratch: Scratch,
    activity: Activity,
    out: &mut dyn FnMut(Record) -> io::Result<()>,
) -> Result<Imported, ImportError> {
    let mut collector = collect::Collector::new(scratch);
    let cut = kineto::read(input, &mut |item| collector.take(item))?.map(|cut| cut.0);
    if collector.tally.events == 0 {
        return Err(ImportError::not("it holds no host call, operator or device activity"));
    }
    write::write(collector, cut, activity, out).map_err(ImportError::Scratch)
}
