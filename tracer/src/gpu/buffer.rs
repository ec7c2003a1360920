//! One of a driver's sample buffers, read from where it was left.

use std::collections::VecDeque;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;

/// One sample: stamp in microseconds on the driver's clock, value in the buffer's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stamped {
    pub(super) stamp_us: u64,
    pub(super) value: f64,
}

/// What a read brought.
#[derive(Debug, PartialEq)]
pub(super) enum Brought {
    /// Oldest first, not empty.
    New(Vec<Stamped>),
    /// None since the last read; some drivers keep none while the device is idle.
    Nothing,
    /// The device has no such buffer.
    Unsupported,
}

/// Samples kept for look-ups by time.
const KEPT: usize = 128;

#[derive(Debug)]
pub(super) struct Buffer {
    kind: Sampling,
    last_us: u64,
    unsupported: bool,
    /// Reads in a row without anything new.
    misses: u32,
    recent: VecDeque<Stamped>,
}

impl Buffer {
    pub(super) fn new(kind: Sampling) -> Self {
        Self { kind, last_us: 0, unsupported: false, misses: 0, recent: VecDeque::new() }
    }

    /// Everything since the last read.
    ///
    /// # Errors
    /// The device did not answer.
    pub(super) fn read(&mut self, device: &Device<'_>) -> Result<Brought, NvmlError> {
        if self.unsupported {
            return Ok(Brought::Unsupported);
        }
        // After some misses from the start: the driver's clock may have been set back, and then nothing
        // would ever be later than the last stamp.
        let since = if self.misses > 3 { 0 } else { self.last_us };
        let samples = match device.samples(self.kind, since) {
            Ok(samples) => samples,
            Err(NvmlError::NotFound) => Vec::new(),
            Err(NvmlError::NotSupported | NvmlError::InvalidArg | NvmlError::FailedToLoadSymbol(_)) => {
                self.unsupported = true;
                return Ok(Brought::Unsupported);
            }
            Err(e) => return Err(e),
        };
        let all: Vec<Stamped> = samples
            .iter()
            .map(|s| Stamped { stamp_us: s.timestamp, value: number(&s.value) })
            .filter(|s| s.stamp_us > 0)
            .collect();
        Ok(self.keep(all))
    }

    /// Takes what lies behind the last sample seen, by position rather than by stamp.
    fn keep(&mut self, all: Vec<Stamped>) -> Brought {
        let seen = all.iter().rposition(|s| s.stamp_us == self.last_us).map_or(0, |at| at + 1);
        let new = all[seen..].to_vec();
        let Some(newest) = new.last() else {
            self.misses = self.misses.saturating_add(1);
            return Brought::Nothing;
        };
        self.misses = 0;
        self.last_us = newest.stamp_us;
        self.recent.extend(&new);
        while self.recent.len() > KEPT {
            self.recent.pop_front();
        }
        Brought::New(new)
    }

    /// The value nearest to a stamp, if one lies within `tolerance_us`.
    pub(super) fn near(&self, stamp_us: u64, tolerance_us: u64) -> Option<f64> {
        let nearest = self.recent.iter().min_by_key(|s| s.stamp_us.abs_diff(stamp_us))?;
        (nearest.stamp_us.abs_diff(stamp_us) <= tolerance_us).then_some(nearest.value)
    }

    pub(super) fn is_unsupported(&self) -> bool {
        self.unsupported
    }
}

fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(v) => v,
        SampleValue::U32(v) => f64::from(v),
        SampleValue::U64(v) => v as f64,
        SampleValue::I64(v) => v as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(us: &[u64]) -> Vec<Stamped> {
        us.iter().map(|&stamp_us| Stamped { stamp_us, value: stamp_us as f64 }).collect()
    }

    #[test]
    fn a_whole_buffer_gives_only_what_is_new_even_when_stamps_went_back() {
        let mut buffer = Buffer::new(Sampling::GpuUtilization);
        assert_eq!(buffer.keep(stamps(&[10, 20])), Brought::New(stamps(&[10, 20])));
        assert_eq!(buffer.keep(stamps(&[])), Brought::Nothing);
        assert_eq!(buffer.keep(stamps(&[10, 20])), Brought::Nothing);
        assert_eq!(buffer.keep(stamps(&[10, 20, 5, 6])), Brought::New(stamps(&[5, 6])));
        assert_eq!(buffer.keep(stamps(&[7])), Brought::New(stamps(&[7])));
    }

    #[test]
    fn near_looks_within_its_tolerance() {
        let mut buffer = Buffer::new(Sampling::Power);
        assert_eq!(buffer.near(10, 100), None);
        buffer.keep(stamps(&[100, 200, 300]));
        assert_eq!(buffer.near(190, 50), Some(200.0));
        assert_eq!(buffer.near(390, 50), None);
    }
}
