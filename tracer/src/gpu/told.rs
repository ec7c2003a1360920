//! When a device's clock record is written: once known, when it changes, and every so often.

use std::collections::VecDeque;

use crate::trace::{DeviceClock, Ns};

/// The offset is measured at every poll and written anew this often.
const REPEAT_NS: u64 = 10_000_000_000;
/// Changes worth a record at once.
const OFFSET_STEP_NS: u64 = 1_000_000;
const AGES: usize = 63;

#[derive(Debug, Default)]
pub(super) struct Told {
    ages: VecDeque<u64>,
    written: Option<DeviceClock>,
}

impl Told {
    /// `settled`: the clock's name and its offset; `age_ns`: of a sample seen for the first time now.
    pub(super) fn clock(
        &mut self,
        device: u32,
        at: Ns,
        period_ns: Option<u64>,
        (domain, offset_ns): (String, i64),
        age_ns: Option<u64>,
    ) -> Option<DeviceClock> {
        self.ages.extend(age_ns);
        if self.ages.len() > AGES {
            self.ages.pop_front();
        }
        let clock =
            DeviceClock { at, device, period_ns, domain, offset_ns, age_ns: self.median(), lag_ns: None };
        let due = self.written.as_ref().is_none_or(|written| {
            let period = written.period_ns.unwrap_or(0);
            written.domain != clock.domain
                || clock.period_ns.unwrap_or(0).abs_diff(period) > period / 100
                || clock.offset_ns.abs_diff(written.offset_ns) > OFFSET_STEP_NS
                || at.saturating_sub(written.at) >= REPEAT_NS
        });
        due.then(|| {
            self.written = Some(clock.clone());
            clock
        })
    }

    fn median(&self) -> u64 {
        let mut sorted: Vec<u64> = self.ages.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_written_when_known_when_it_changes_and_every_so_often() {
        let mut told = Told::default();
        let mut tell = |at: u64, period: u64, domain: &str, offset: i64| {
            told.clock(0, at * 1_000_000_000, Some(period), (domain.into(), offset), Some(at)).is_some()
        };
        assert!(tell(1, 166_000_000, "realtime", 5));
        assert!(!tell(2, 166_100_000, "realtime", 900_000));
        assert!(tell(3, 166_100_000, "realtime", 2_000_000));
        assert!(tell(4, 166_100_000, "boottime", 2_000_000));
        assert!(tell(5, 50_000_000, "boottime", 2_000_000));
        assert!(!tell(14, 50_000_000, "boottime", 2_000_000));
        assert!(tell(15, 50_000_000, "boottime", 2_000_000));
        assert_eq!(told.written.expect("written").age_ns, 4);
    }
}
