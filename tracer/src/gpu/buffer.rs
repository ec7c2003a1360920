//! One of a driver's sample buffers, read from where it was left.

use std::collections::VecDeque;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;

use super::garbage::Garbage;
use super::rows::reason;

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
    /// All that is new is stamped later than now: garbage, or not on the clock it is taken to be on. It comes
    /// again at the next read.
    Future,
    /// The device has no such buffer.
    Unsupported,
}

/// Samples kept for look-ups by time.
const KEPT: usize = 128;

#[derive(Debug)]
pub(super) struct Buffer {
    kind: Sampling,
    last_us: u64,
    /// Why there is no such buffer.
    unsupported: Option<String>,
    /// Reads in a row without anything new.
    misses: u32,
    recent: VecDeque<Stamped>,
    /// Stamps from the future that were seen already; drivers give them again at every read.
    future: VecDeque<u64>,
    pub(super) garbage: Garbage,
}

impl Buffer {
    pub(super) fn new(kind: Sampling) -> Self {
        Self {
            kind,
            last_us: 0,
            unsupported: None,
            misses: 0,
            recent: VecDeque::new(),
            future: VecDeque::new(),
            garbage: Garbage::default(),
        }
    }

    /// Everything since the last read. `latest_us` is shown what came and says what the driver's clock stands at
    /// now, where that is known.
    ///
    /// # Errors
    /// The device did not answer.
    pub(super) fn read(
        &mut self,
        device: &Device<'_>,
        latest_us: impl FnOnce(&[Stamped]) -> Option<u64>,
    ) -> Result<Brought, NvmlError> {
        if self.unsupported.is_some() {
            return Ok(Brought::Unsupported);
        }
        // After some misses from the start: the driver's clock may have been set back, and then nothing
        // would ever be later than the last stamp.
        let since = if self.misses > 3 { 0 } else { self.last_us };
        let samples = match device.samples(self.kind, since) {
            Ok(samples) => samples,
            Err(NvmlError::NotFound) => Vec::new(),
            Err(e) if never(&e) => {
                self.unsupported = Some(reason(&e));
                return Ok(Brought::Unsupported);
            }
            Err(e) => return Err(e),
        };
        let all: Vec<Stamped> = samples
            .iter()
            .map(|s| Stamped { stamp_us: s.timestamp, value: number(&s.value) })
            .filter(|s| s.stamp_us > 0)
            .collect();
        let latest_us = latest_us(&all);
        Ok(self.keep(all, latest_us))
    }

    /// Takes what lies behind the last sample seen, by position rather than by stamp.
    fn keep(&mut self, all: Vec<Stamped>, latest_us: Option<u64>) -> Brought {
        let seen = all.iter().rposition(|s| s.stamp_us == self.last_us).map_or(0, |at| at + 1);
        let future = self.garbage.future;
        let new = self.sift(&all[seen..], latest_us);
        let Some(newest) = new.last() else {
            self.misses = self.misses.saturating_add(1);
            return if self.garbage.future > future { Brought::Future } else { Brought::Nothing };
        };
        self.misses = 0;
        self.last_us = newest.stamp_us;
        self.recent.extend(&new);
        while self.recent.len() > KEPT {
            self.recent.pop_front();
        }
        Brought::New(new)
    }

    /// Puts aside what no driver should have given: stamps from the future, stamps given twice, stamps behind
    /// the one before. Several of the last kind at the end are no garbage but a clock that was set back.
    fn sift(&mut self, new: &[Stamped], latest_us: Option<u64>) -> Vec<Stamped> {
        let mut kept: Vec<Stamped> = Vec::with_capacity(new.len());
        let mut behind: Vec<Stamped> = Vec::new();
        let mut end = self.last_us;
        for sample in new {
            let stamp = sample.stamp_us;
            if latest_us.is_some_and(|latest| stamp > latest) {
                if !self.future.contains(&stamp) {
                    self.garbage.future += 1;
                    self.future.push_back(stamp);
                    if self.future.len() > KEPT {
                        self.future.pop_front();
                    }
                }
            } else if stamp == end || behind.last().is_some_and(|last| last.stamp_us == stamp) {
                self.garbage.duplicate += 1;
            } else if stamp < end {
                behind.push(*sample);
            } else {
                self.garbage.backward += behind.len() as u64;
                behind.clear();
                end = stamp;
                kept.push(*sample);
            }
        }
        if behind.len() > 1 && behind.is_sorted_by(|a, b| a.stamp_us < b.stamp_us) {
            kept.append(&mut behind);
        }
        self.garbage.backward += behind.len() as u64;
        kept
    }

    /// The driver's clock is known now: what was taken from after it is garbage, and the next read goes on from
    /// the last sample before it.
    pub(super) fn forget_after(&mut self, latest_us: u64) {
        if self.last_us <= latest_us {
            return;
        }
        let (good, future) = self.recent.iter().partition::<Vec<Stamped>, _>(|s| s.stamp_us <= latest_us);
        self.garbage.future += future.len() as u64;
        self.future.extend(future.iter().map(|s| s.stamp_us));
        self.last_us = good.last().map_or(0, |s| s.stamp_us);
        self.recent = good.into();
    }

    /// The value nearest to a stamp, if one lies within `tolerance_us`.
    pub(super) fn near(&self, stamp_us: u64, tolerance_us: u64) -> Option<f64> {
        let nearest = self.recent.iter().min_by_key(|s| s.stamp_us.abs_diff(stamp_us))?;
        (nearest.stamp_us.abs_diff(stamp_us) <= tolerance_us).then_some(nearest.value)
    }

    /// Why the device has no such buffer; `None` while it has.
    pub(super) fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }
}

/// Whether an error means that no later read will be better.
fn never(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::InvalidArg
            | NvmlError::NoPermission
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            // Values of a type that is not documented: their bytes could mean anything.
            | NvmlError::UnexpectedVariant(_)
    )
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
        assert_eq!(buffer.keep(stamps(&[10, 20]), None), Brought::New(stamps(&[10, 20])));
        assert_eq!(buffer.keep(stamps(&[]), None), Brought::Nothing);
        assert_eq!(buffer.keep(stamps(&[10, 20]), None), Brought::Nothing);
        assert_eq!(buffer.keep(stamps(&[10, 20, 5, 6]), None), Brought::New(stamps(&[5, 6])));
        assert_eq!(buffer.keep(stamps(&[7]), None), Brought::New(stamps(&[7])));
        assert_eq!(buffer.garbage, Garbage::default());
    }

    #[test]
    fn single_stamps_behind_and_double_ones_are_put_aside_and_counted() {
        let mut buffer = Buffer::new(Sampling::GpuUtilization);
        let read = stamps(&[10, 20, 20, 12, 30, 29, 40, 33]);
        assert_eq!(buffer.keep(read, None), Brought::New(stamps(&[10, 20, 30, 40])));
        assert_eq!(buffer.garbage, Garbage { duplicate: 1, backward: 3, ..Garbage::default() });
    }

    #[test]
    fn stamps_from_the_future_are_put_aside_counted_once_and_do_not_hide_what_follows() {
        let mut buffer = Buffer::new(Sampling::GpuUtilization);
        assert_eq!(buffer.keep(stamps(&[10, 9_000, 20]), Some(25)), Brought::New(stamps(&[10, 20])));
        assert_eq!(buffer.keep(stamps(&[9_000]), Some(30)), Brought::Nothing);
        assert_eq!(buffer.keep(stamps(&[9_001]), Some(30)), Brought::Future);
        assert_eq!(buffer.keep(stamps(&[9_000, 30]), Some(35)), Brought::New(stamps(&[30])));
        assert_eq!(buffer.garbage, Garbage { future: 2, ..Garbage::default() });
        // Not garbage after all: the clock they are on was another.
        assert_eq!(buffer.keep(stamps(&[9_000, 9_001]), None), Brought::New(stamps(&[9_000, 9_001])));
    }

    #[test]
    fn what_was_taken_from_the_future_is_forgotten_once_the_clock_is_known() {
        let mut buffer = Buffer::new(Sampling::GpuUtilization);
        buffer.keep(stamps(&[10, 20, 9_000]), None);
        buffer.forget_after(25);
        assert_eq!((buffer.last_us, buffer.garbage.future), (20, 1));
        assert_eq!(buffer.keep(stamps(&[9_000, 30]), Some(35)), Brought::New(stamps(&[30])));
        assert_eq!(buffer.garbage, Garbage { future: 1, ..Garbage::default() });
    }

    #[test]
    fn near_looks_within_its_tolerance() {
        let mut buffer = Buffer::new(Sampling::Power);
        assert_eq!(buffer.near(10, 100), None);
        buffer.keep(stamps(&[100, 200, 300]), None);
        assert_eq!(buffer.near(190, 50), Some(200.0));
        assert_eq!(buffer.near(390, 50), None);
    }
}
