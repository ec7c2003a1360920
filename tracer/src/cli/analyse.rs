//! From a trace to a report: the one place where the stages are put in a row.

use std::path::Path;

use super::error::CliError;
use super::range::Range;
use crate::finding::Report;
use crate::timeline::Timeline;
use crate::trace::{Reader, Record, TraceError};
use crate::{cause, finding, idle, timeline};

/// A trace, read and understood.
#[derive(Debug)]
pub struct Analysis {
    pub timeline: Timeline,
    pub report: Report,
}

/// Reads a trace and runs all stages on it. The same file always gives the same result.
///
/// # Errors
/// The file cannot be read or is no trace, the range lies outside it, or it has no such GPU.
pub fn analyse(path: &Path, range: Range, gpu: Option<u32>) -> Result<Analysis, CliError> {
    let (timeline, damage) = read(path)?;
    if let Some(wanted) = gpu
        && !timeline.devices.contains_key(&wanted)
    {
        return Err(CliError::NoSuchGpu { wanted, indices: timeline.devices.keys().copied().collect() });
    }
    let range = range.within(timeline.span)?;
    let ledgers: Vec<_> = idle::place(&timeline, range)
        .into_iter()
        .filter(|device| gpu.is_none_or(|wanted| wanted == device.device))
        .map(|device| {
            let ledger = cause::attribute(&timeline, &device);
            (device, ledger)
        })
        .collect();
    let mut report = finding::report(&timeline, &ledgers);
    report.notes.extend(damage);
    Ok(Analysis { timeline, report })
}

/// The timeline, and what of the file could not be read, a sentence each.
fn read(path: &Path) -> Result<(Timeline, Vec<String>), CliError> {
    let mut records = Records { reader: Reader::open(path)?, last: 0, pending: None, failed: None };
    let timeline = timeline::build(&mut records);
    if let Some(error) = records.failed {
        return Err(error.into());
    }
    let damage = records.reader.damage().iter().map(|d| format!("the trace is incomplete: {d}")).collect();
    Ok((timeline, damage))
}

/// The records of a file, and after them one loss for each damaged place.
struct Records {
    reader: Reader,
    last: u64,
    pending: Option<Vec<Record>>,
    failed: Option<TraceError>,
}

impl Iterator for &mut Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.pending.is_none() {
            match self.reader.next() {
                Some(Ok(record)) => {
                    if let Record::HostTick(tick) = &record {
                        self.last = tick.at;
                    }
                    return Some(record);
                }
                Some(Err(error)) => self.failed = Some(error),
                None => {}
            }
            let lost = self.reader.damage().iter().map(|d| Record::Loss(d.loss(self.last))).collect();
            self.pending = Some(lost);
        }
        self.pending.as_mut()?.pop()
    }
}
