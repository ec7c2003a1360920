//! When the device was really busy.

use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::interval::{Interval, covered, union};
use crate::lane::Work;
use crate::map::Timeline;

/// One device's busy intervals up to when they were read: in order, not touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    pub device: u32,
    pub busy: Vec<Interval>,
    /// Earlier intervals may have been overwritten.
    pub complete_from: u64,
}

/// A line of the truth file.
#[derive(Serialize, Deserialize)]
struct Line {
    device: u32,
    #[serde(flatten)]
    busy: Interval,
}

impl Truth {
    /// Nanoseconds of `[from, to)` during which a kernel or memset ran.
    #[must_use]
    pub fn busy_ns(&self, from: u64, to: u64) -> u64 {
        covered(&self.busy, from, to)
    }
}

impl Timeline {
    /// The truth about every device until now.
    ///
    /// # Errors
    /// The file cannot be locked.
    pub fn truth(&self) -> io::Result<Vec<Truth>> {
        self.reap()?;
        Ok((0..self.devices()).map(|device| self.truth_in(device, None)).collect())
    }

    /// The same about one MIG instance of a device.
    ///
    /// # Errors
    /// The file cannot be locked.
    pub fn truth_of_instance(&self, device: u32, instance: u32) -> io::Result<Truth> {
        self.reap()?;
        Ok(self.truth_in(device, Some(instance)))
    }

    fn truth_in(&self, device: u32, instance: Option<u32>) -> Truth {
        let now = clock::now();
        let history = self.history_in(device, instance, Work::Kernel, 0);
        let past = history.intervals.iter();
        let busy = union(past.map(|i| Interval { start: i.start, end: i.end.min(now) }).collect());
        Truth { device, busy, complete_from: history.complete_from }
    }
}

/// Reads the shared file at `path`, which must exist.
///
/// # Errors
/// It is missing or no simulated device.
pub fn read(path: &Path) -> io::Result<Vec<Truth>> {
    if std::fs::metadata(path)?.len() == 0 {
        return Err(io::Error::other("empty, not a simulated device"));
    }
    Timeline::open(path, 1)?.truth()
}

/// Writes JSON lines `{"device":0,"start_ns":1,"end_ns":2}`.
///
/// # Errors
/// `to` cannot be written.
pub fn write(truth: &[Truth], to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for device in truth {
        for &busy in &device.busy {
            serde_json::to_writer(&mut to, &Line { device: device.device, busy })?;
            to.write_all(b"\n")?;
        }
    }
    to.flush()
}

/// Reads back what [`write`] wrote; devices that were never busy are missing.
///
/// # Errors
/// It cannot be read, or a line is not of that form.
pub fn parse(from: impl BufRead) -> io::Result<Vec<Truth>> {
    let mut truths: Vec<Truth> = Vec::new();
    for line in from.lines() {
        let Line { device, busy } = serde_json::from_str(&line?)?;
        match truths.iter_mut().find(|t| t.device == device) {
            Some(truth) => truth.busy.push(busy),
            None => truths.push(Truth { device, busy: vec![busy], complete_from: 0 }),
        }
    }
    Ok(truths)
}
