//! Brings the stamps of a driver's samples onto `CLOCK_MONOTONIC`.
//!
//! Drivers stamp samples in microseconds "on the CPU's clock", which was seen to be the time of day on some
//! and the time since boot on others. The right clock is the one that puts the newest stamp just behind now.

use std::collections::VecDeque;

use rustix::time::{ClockId, clock_gettime};

use crate::trace::Ns;

/// Far below a sample period, and wide enough for an undisturbed reading of three clocks.
const TIGHT_NS: u64 = 5_000;

/// The candidate clocks, read at one instant, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clocks {
    pub(super) monotonic: Ns,
    pub(super) realtime: Ns,
    pub(super) boottime: Ns,
}

impl Clocks {
    pub(super) fn read() -> Self {
        // The tightest of a few brackets: being preempted in between would shift one clock against another.
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..32 {
            let before = monotonic();
            let realtime = ns(ClockId::Realtime);
            let boottime = ns(ClockId::Boottime);
            let width = monotonic().saturating_sub(before);
            let clocks = Self { monotonic: before + width / 2, realtime, boottime };
            if best.is_none_or(|(narrowest, _)| width < narrowest) {
                best = Some((width, clocks));
            }
            if width < TIGHT_NS {
                break;
            }
        }
        best.map(|(_, clocks)| clocks).unwrap_or_default()
    }

    fn on(self, domain: Domain) -> Ns {
        match domain {
            Domain::Realtime => self.realtime,
            Domain::Boottime => self.boottime,
            Domain::Monotonic => self.monotonic,
        }
    }
}

pub(super) fn monotonic() -> Ns {
    ns(ClockId::Monotonic)
}

fn ns(clock: ClockId) -> Ns {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    Realtime,
    Boottime,
    Monotonic,
}

impl Domain {
    const fn name(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::Boottime => "boottime",
            Self::Monotonic => "monotonic",
        }
    }
}

/// Reads in a row with nothing but stamps later than the clock after which it is not their clock.
const STRIKES: u32 = 3;
/// Fresh stamps that must agree that their clock is none of ours.
const CONFIRMED: usize = 3;
/// Lags remembered for a driver whose clock is none of ours.
const REMEMBERED: usize = 64;

/// One device's stamps.
#[derive(Debug, Default)]
pub(super) struct StampClock {
    domain: Option<Domain>,
    /// `CLOCK_MONOTONIC` less stamp of recent fresh stamps; the least is closest to the true offset, because
    /// a stamp is only ever seen late.
    lags: VecDeque<i128>,
    strikes: u32,
}

impl StampClock {
    /// Looks at the newest stamp of a buffer. `fresh`: it was not there a poll ago.
    pub(super) fn observe(&mut self, newest_us: u64, clocks: Clocks, period_ns: u64, fresh: bool) {
        self.strikes = 0;
        if let Some(domain) = self.domain
            && lag(newest_us, clocks.on(domain)) >= -slack(period_ns)
        {
            return;
        }
        // Of several that fit, the nearest. Where the machine never slept, the time since boot and the
        // monotonic clock are the same, and it does not matter.
        let candidates = [Domain::Monotonic, Domain::Boottime, Domain::Realtime];
        let near = candidates.into_iter().map(|domain| (lag(newest_us, clocks.on(domain)), domain));
        self.domain = near
            .filter(|(lag, _)| (-slack(period_ns)..=2 * i128::from(period_ns)).contains(lag))
            .min_by_key(|(lag, _)| lag.unsigned_abs() / u128::from(TIGHT_NS))
            .map(|(_, domain)| domain);
        if self.domain.is_none() && fresh {
            self.lags.push_back(lag(newest_us, clocks.monotonic));
            if self.lags.len() > REMEMBERED {
                self.lags.pop_front();
            }
        }
    }

    /// A read brought nothing but stamps later than this clock: after some of these it is not theirs.
    pub(super) fn refute(&mut self) {
        self.strikes += 1;
        if self.strikes >= STRIKES {
            (self.domain, self.strikes) = (None, 0);
        }
    }

    /// The latest stamp that is no nonsense, microseconds; `None` while the driver's clock is not known.
    pub(super) fn latest_us(&self, clocks: Clocks, period_ns: u64) -> Option<u64> {
        self.domain.map(|domain| clocks.on(domain).saturating_add(period_ns / 8) / 1000)
    }

    /// The clock's name, or a sentence that says what is done without one; and what must be added to a stamp
    /// for `CLOCK_MONOTONIC`.
    pub(super) fn settled(&self, clocks: Clocks) -> (String, i64) {
        let offset = match (self.domain, self.least_lag()) {
            (Some(domain), _) => i128::from(clocks.monotonic) - i128::from(clocks.on(domain)),
            (None, Some(least)) => least,
            (None, None) => return ("not settled: too few fresh samples were seen yet".into(), 0),
        };
        let words = self.domain.map_or(
            "not settled: none of the host's clocks, so windows are placed by when their samples arrive",
            Domain::name,
        );
        (words.into(), i64::try_from(offset).unwrap_or(0))
    }

    /// `None` while too few were seen: a single stamp may be garbage.
    fn least_lag(&self) -> Option<i128> {
        self.lags.iter().min().copied().filter(|_| self.lags.len() >= CONFIRMED)
    }

    /// The stamp on `CLOCK_MONOTONIC`; `None` while the driver's clock is not known.
    /// `clocks` must be recent: the offset between two clocks is measured anew each time.
    pub(super) fn monotonic(&self, stamp_us: u64, clocks: Clocks) -> Option<Ns> {
        let lag = match self.domain {
            Some(domain) => lag(stamp_us, clocks.on(domain)),
            None => lag(stamp_us, clocks.monotonic) - self.least_lag()?,
        };
        u64::try_from(i128::from(clocks.monotonic) - lag).ok()
    }
}

/// How far a stamp lies behind a clock, nanoseconds.
fn lag(stamp_us: u64, clock: Ns) -> i128 {
    i128::from(clock) - i128::from(stamp_us) * 1000
}

/// Stamps were seen slightly ahead of the clock they were made on.
fn slack(period_ns: u64) -> i128 {
    i128::from(period_ns / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 166_667_000;
    const NOW: Clocks = Clocks {
        monotonic: 5_000_000_000_000,
        realtime: 1_800_000_000_000_000_000,
        boottime: 9_000_000_000_000,
    };

    fn observed(newest_us: u64, fresh: bool) -> StampClock {
        let mut clock = StampClock::default();
        clock.observe(newest_us, NOW, PERIOD, fresh);
        clock
    }

    #[test]
    fn the_clock_just_ahead_of_the_newest_stamp_is_the_drivers() {
        for (now, domain) in [
            (NOW.realtime, Domain::Realtime),
            (NOW.boottime, Domain::Boottime),
            (NOW.monotonic, Domain::Monotonic),
        ] {
            let stamp = now / 1000 - 100_000;
            let clock = observed(stamp, false);
            assert_eq!(clock.domain, Some(domain));
            assert_eq!(clock.monotonic(stamp, NOW), Some(NOW.monotonic - 100_000_000));
        }
    }

    #[test]
    fn a_stale_buffer_says_nothing() {
        let clock = observed(NOW.realtime / 1000 - 60_000_000, false);
        assert_eq!(clock.domain, None);
        assert_eq!(clock.monotonic(NOW.realtime / 1000, NOW), None);
    }

    #[test]
    fn a_foreign_clock_is_placed_by_its_least_lag_once_it_is_sure() {
        let mut clock = observed(7_000_000, true);
        let at = |ms: u64| Clocks { monotonic: NOW.monotonic + ms * 1_000_000, ..NOW };
        clock.observe(7_166_667, at(200), PERIOD, true);
        assert_eq!(clock.monotonic(7_166_667, at(200)), None);
        clock.observe(7_333_334, at(340), PERIOD, true);
        // The first was seen at once, the second 33 ms late, the third 7 ms.
        assert_eq!(clock.monotonic(7_333_334, at(340)), Some(NOW.monotonic + 333_334_000));
        let (words, offset) = clock.settled(at(340));
        assert!(words.starts_with("not settled: none of"), "{words}");
        assert_eq!(offset, 4_993_000_000_000);
    }

    #[test]
    fn a_stamp_from_the_future_starts_the_search_again() {
        let mut clock = observed(NOW.monotonic / 1000, false);
        assert_eq!(clock.domain, Some(Domain::Monotonic));
        clock.observe(NOW.boottime / 1000, NOW, PERIOD, true);
        assert_eq!(clock.domain, Some(Domain::Boottime));
    }

    #[test]
    fn of_two_clocks_that_fit_the_nearer_is_taken() {
        // Slept for 60 ms in all: both lie less than two periods ahead of the stamp.
        let now = Clocks { boottime: NOW.monotonic + 60_000_000, ..NOW };
        for (clock, domain) in [(now.monotonic, Domain::Monotonic), (now.boottime, Domain::Boottime)] {
            let mut stamps = StampClock::default();
            // Seen at once: on the other clock it is in the future, or further behind.
            stamps.observe(clock / 1000 - 1_000, now, PERIOD, true);
            assert_eq!(stamps.domain, Some(domain));
        }
    }

    #[test]
    fn a_clock_is_dropped_only_after_several_reads_from_its_future() {
        let mut clock = observed(NOW.monotonic / 1000, false);
        assert_eq!(clock.latest_us(NOW, PERIOD), Some((NOW.monotonic + PERIOD / 8) / 1000));
        clock.refute();
        clock.refute();
        clock.observe(NOW.monotonic / 1000, NOW, PERIOD, true);
        clock.refute();
        clock.refute();
        assert_eq!(clock.domain, Some(Domain::Monotonic));
        clock.refute();
        assert_eq!((clock.domain, clock.latest_us(NOW, PERIOD)), (None, None));
    }

    #[test]
    fn the_clock_and_its_offset_are_told_or_that_there_is_none() {
        assert_eq!(
            observed(NOW.boottime / 1000, false).settled(NOW),
            ("boottime".into(), -4_000_000_000_000)
        );
        let (words, offset) = observed(7_000_000, true).settled(NOW);
        assert!(words.starts_with("not settled: too few"), "{words}");
        assert_eq!(offset, 0);
    }

    #[test]
    fn the_offset_follows_a_clock_that_was_set() {
        let clock = observed(NOW.realtime / 1000, false);
        let set =
            Clocks { monotonic: NOW.monotonic + PERIOD, realtime: NOW.realtime + PERIOD + 3_000, ..NOW };
        assert_eq!(clock.settled(set).1 - clock.settled(NOW).1, -3_000);
    }

    #[test]
    fn hostile_stamps_do_not_overflow() {
        for stamp in [0, 1, u64::MAX / 1000, u64::MAX] {
            for fresh in [false, true] {
                let clock = observed(stamp, fresh);
                for other in [0, u64::MAX] {
                    for clocks in [NOW, Clocks::default()] {
                        let placed = clock.monotonic(other, clocks);
                        assert!(placed.is_none() || fresh || clock.domain.is_some());
                    }
                }
            }
        }
    }
}
