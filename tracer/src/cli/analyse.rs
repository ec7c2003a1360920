//! From a trace to a report: the one place where the stages are put in a row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::CliError;
use super::range::Range;
use crate::finding::Report;
use crate::idle::DeviceIdle;
use crate::timeline::Timeline;
use crate::trace::{Reader, Record, TraceError};
use crate::{cause, finding, idle, symbol, timeline};

/// A trace, read and understood.
#[derive(Debug)]
pub struct Analysis {
    pub timeline: Timeline,
    pub devices: Vec<DeviceIdle>,
    pub report: Report,
}

/// Reads a trace and runs all stages on it; frames without a name are looked up in the debug folders. The same
/// files always give the same result.
///
/// # Errors
/// The file cannot be read or is no trace, the range lies outside it, it has no such GPU, or a debug folder cannot
/// be read.
pub fn analyse(
    path: &Path,
    range: Range,
    gpu: Option<u32>,
    debug_dirs: &[PathBuf],
) -> Result<Analysis, CliError> {
    let (mut timeline, damage) = read(path)?;
    name(&mut timeline, debug_dirs)?;
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
    let devices = ledgers.into_iter().map(|(device, _)| device).collect();
    Ok(Analysis { timeline, devices, report })
}

/// Puts the names that the folders' files give in place.
fn name(timeline: &mut Timeline, folders: &[PathBuf]) -> Result<(), CliError> {
    if folders.is_empty() {
        return Ok(());
    }
    let missing = |(path, source)| CliError::DebugDir { path, source };
    let folders = symbol::DebugDirs::open(folders).map_err(missing)?;
    let stacks: Vec<_> = timeline.stacks.values().collect();
    let known = |key| timeline.names.get(&key).map(Arc::as_ref);
    let named = folders.name(&symbol::unnamed(&stacks, &timeline.mappings, known));
    timeline.names.extend(named.into_iter().map(|s| ((s.pid, s.image, s.address), Arc::new(s))));
    Ok(())
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
