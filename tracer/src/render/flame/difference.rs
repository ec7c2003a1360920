//! Two flames compared: of one trace's idle and busy time, or of two traces.

use std::collections::BTreeMap;

use super::frame::safe;
use super::threads::offcpu_within;
use super::{Flame, FlameError, Kind, told_lost};
use crate::idle::Sides;
use crate::render::Style;
use crate::render::figure::{TIE, time};
use crate::render::fit::elide;
use crate::timeline::Timeline;

const SECOND: u128 = 1_000_000_000;
/// Columns of a title that another trace's name may take.
const NAME: usize = 60;

/// What the two sides are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pair {
    /// Time in which the GPU stood idle, less time in which it was busy.
    IdleBusy,
    /// This trace less another, of the given name.
    Traces(String),
}

/// Two flames of one kind, each scaled to a second of its own window.
#[derive(Clone, Debug)]
pub struct Difference {
    pub pair: Pair,
    pub first: Flame,
    pub second: Flame,
    /// Stacks whose rates differ, and those that do not.
    pub(super) stacks: BTreeMap<Vec<String>, Rates>,
}

/// Nanoseconds per second on either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) first: u64,
    pub(super) second: u64,
}

impl Rates {
    pub(super) fn width(self) -> u64 {
        self.first.abs_diff(self.second)
    }

    pub(super) fn signed(self) -> i128 {
        i128::from(self.first) - i128::from(self.second)
    }

    /// Such as `+310 ms/s`.
    pub(super) fn told(self) -> String {
        let sign = if self.first < self.second { '-' } else { '+' };
        format!("{sign}{}/s", time(self.width())).replace(TIE, " ")
    }
}

/// Blocked time of the watched threads while a device stood idle, less that while all were busy.
///
/// # Errors
/// One of the two is of no length.
pub fn idle_and_busy(timeline: &Timeline, sides: &Sides) -> Result<Difference, FlameError> {
    for (side, name) in [(&sides.idle, "idle"), (&sides.busy, "busy")] {
        if side.is_empty() {
            return Err(FlameError::NoSide(name));
        }
    }
    let (idle, busy) = (offcpu_within(timeline, &sides.idle), offcpu_within(timeline, &sides.busy));
    Difference::new(Pair::IdleBusy, idle, busy)
}

impl Difference {
    /// # Errors
    /// One of the two is of no length.
    pub fn new(pair: Pair, first: Flame, second: Flame) -> Result<Self, FlameError> {
        if first.window_ns == 0 || second.window_ns == 0 {
            return Err(FlameError::NoLength);
        }
        let mut stacks: BTreeMap<Vec<String>, Rates> = BTreeMap::new();
        for (stack, ns) in &first.stacks {
            stacks.entry(stack.clone()).or_default().first = rate(*ns, first.window_ns);
        }
        for (stack, ns) in &second.stacks {
            stacks.entry(stack.clone()).or_default().second = rate(*ns, second.window_ns);
        }
        Ok(Self { pair, first, second, stacks })
    }

    /// Names of the two sides, each a word or two.
    #[must_use]
    pub fn sides(&self) -> [&'static str; 2] {
        match self.pair {
            Pair::IdleBusy => ["while idle", "while busy"],
            Pair::Traces(_) => ["this trace", "the other"],
        }
    }

    #[must_use]
    pub fn title(&self) -> String {
        match (&self.pair, self.first.kind) {
            (Pair::IdleBusy, _) => {
                "Blocked time while the GPU stood idle, less that while it was busy".to_owned()
            }
            (Pair::Traces(other), kind) => {
                let what = match kind {
                    Kind::Idle => "Idle GPU time",
                    Kind::OffCpu => "Blocked time",
                    Kind::OnCpu => "Processor time",
                    Kind::Wakers => "Blocked time by waker",
                };
                let style = Style { colour: false, unicode: true };
                format!("{what}, less that of {}", elide(&safe(other), NAME, style))
            }
        }
    }

    /// What width and colour mean, windows, losses and share of complete stacks, in one line.
    #[must_use]
    pub fn subtitle(&self) -> String {
        let [first, second] = self.sides();
        let within = if self.pair == Pair::IdleBusy { "" } else { "in " };
        let side = |flame: &Flame| format!("{} in {}", time(flame.total_ns()), time(flame.window_ns));
        let (here, there) = (side(&self.first), side(&self.second));
        let lost = told_lost(match self.pair {
            Pair::IdleBusy => self.first.lost,
            Pair::Traces(_) => self.first.lost.saturating_add(self.second.lost),
        });
        let both = |of: fn(&Flame) -> u64| of(&self.first).saturating_add(of(&self.second));
        let (complete_ns, stacked_ns) = (both(|f| f.complete_ns), both(|f| f.stacked_ns));
        let complete = Flame { complete_ns, stacked_ns, ..self.first.empty() }.told_complete();
        format!(
            "width: difference; red: more {within}{first} ({here}); blue: more {within}{second} ({there}); \
             {lost}; {complete}"
        )
        .replace(TIE, " ")
    }

    pub(super) fn drawable(&self) -> Result<(), FlameError> {
        if self.stacks.values().all(|rates| rates.width() == 0) {
            return Err(FlameError::NoDifference);
        }
        Ok(())
    }
}

fn rate(ns: u64, window_ns: u64) -> u64 {
    u64::try_from(u128::from(ns) * SECOND / u128::from(window_ns)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::flame::{Format, folded, offcpu};
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};
    use crate::trace::Span;

    fn flame(window_ns: u64, stacks: &[(&str, u64)]) -> Flame {
        let mut flame = Flame::new(Kind::OffCpu, window_ns, 0);
        for (stack, ns) in stacks {
            flame.add(stack.split(';').map(str::to_owned).collect(), None, *ns);
        }
        flame
    }

    fn text(difference: &Difference, format: Format) -> String {
        String::from_utf8(difference.write(format).expect("it is written")).expect("it is text")
    }

    /// One thread waits for its disk while the device is idle, the other sleeps all the time.
    fn timeline() -> Timeline {
        let mut trace = TraceBuilder::new(0, 1000 * MS).thread(1, 1, "trainer").thread(2, 2, "pool");
        trace = trace.wait(2, 0, 1000 * MS, 1000 * MS, |w| w.kernel(&["futex_wait"]));
        for at in [0, 500] {
            trace = trace.wait(1, at * MS, (at + 100) * MS, (at + 100) * MS, |w| w.kernel(&["io_schedule"]));
        }
        build(trace.total(1, None, 100 * MS, 500 * MS, |t| t.blocked_ns = 40 * MS).records())
    }

    #[test]
    fn what_waits_always_does_not_differ_and_what_waits_in_idle_alone_does() {
        let span = |from, to| Span::new(from * MS, to * MS);
        let sides = Sides { idle: vec![span(0, 200), span(500, 600)], busy: vec![span(200, 400)] };
        let difference = idle_and_busy(&timeline(), &sides).expect("both sides have time");
        let all = offcpu_within(&timeline(), &[span(0, 1000)]);
        assert_eq!(folded(&all), folded(&offcpu(&timeline())));
        // 200 ms of 300, none of 200; the short waits are spread over the 400 ms that they were seen in.
        assert_eq!(
            text(&difference, Format::Folded),
            "pool;futex_wait_[k] 1000000000 1000000000\n\
             trainer;[waits under the threshold] 100000000 33333333\n\
             trainer;io_schedule_[k] 0 666666666\n"
        );
        let drawing = text(&difference, Format::Svg);
        assert!(drawing.contains("io_schedule +667 ms/s"), "{drawing}");
        assert!(drawing.contains("-66.7 ms/s") || drawing.contains("-67 ms/s"), "{drawing}");
        assert!(!drawing.contains("futex_wait"), "{drawing}");
        assert!(drawing.contains("red: more while idle"), "{drawing}");
    }

    #[test]
    fn a_side_without_time_is_said() {
        let idle_only = Sides { idle: vec![Span::new(0, 9)], busy: Vec::new() };
        assert!(matches!(idle_and_busy(&timeline(), &idle_only), Err(FlameError::NoSide("busy"))));
        let traces = || Pair::Traces("b".into());
        let none = Difference::new(traces(), flame(0, &[]), flame(5, &[]));
        assert!(matches!(none, Err(FlameError::NoLength)));
        let same = Difference::new(traces(), flame(5, &[("a", 1)]), flame(10, &[("a", 2)])).expect("lengths");
        assert!(matches!(same.write(Format::Svg), Err(FlameError::NoDifference)));
    }

    #[test]
    fn traces_of_unlike_length_compare_by_the_second() {
        let pair = Pair::Traces("old;\u{1b}[1m.trace".into());
        let (new, old) = (flame(1000, &[("a;b", 500), ("a;c", 10)]), flame(2000, &[("a;b", 500), ("d", 40)]));
        let difference = Difference::new(pair, new, old).expect("lengths");
        assert_eq!(
            text(&difference, Format::Folded),
            "a;b 250000000 500000000\na;c 0 10000000\nd 20000000 0\n"
        );
        assert_eq!(difference.title(), r"Blocked time, less that of old:\x1b[1m.trace");
        let drawing = text(&difference, Format::Svg);
        for told in ["b +250 ms/s", "c +10 ms/s", "d -20 ms/s"] {
            assert!(drawing.contains(told), "{told}: {drawing}");
        }
    }
}
