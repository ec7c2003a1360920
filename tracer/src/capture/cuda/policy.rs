//! How much of the driver's calls is watched, by what watching them costs.

use clap::ValueEnum;

use crate::trace::{CudaWatch, Ns, Watched};

const SECOND: Ns = 1_000_000_000;
/// Bursts are no shorter than 0.3 s, the ticks of the recorder included: shorter ones see few silences.
const BURST: Ns = 400_000_000;
/// Between the beginnings of two bursts.
const BURST_EVERY: Ns = 20 * SECOND;
/// So far over the budget that one measurement is enough.
const FAR_OVER: f64 = 4.0;

/// What `--cuda` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Watches all calls, fewer where that costs more than the budget
    #[default]
    Auto,
    /// Watches all calls whatever it costs
    On,
    /// Watches none
    Off,
}

/// Shares of the machine's processor time, 0.01 for 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Probes on the rare calls, the kernel's part included.
    pub rare: f64,
    /// Probes on the frequent ones; while these are not attached, nothing.
    pub frequent: f64,
    /// Everything else that the tracer does.
    pub others: f64,
    /// Hits a second, for people to read.
    pub hits: f64,
}

/// A change to what is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub watch: CudaWatch,
    /// It gives something up for good, or takes it back: worth a line among the tracer's steps.
    pub step: bool,
}

/// All calls, then the rare ones with bursts of all, then the rare ones alone, then none; back to all where
/// bursts show that launches have become few.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    budget: f64,
    watched: Watched,
    /// Watching began, or began anew.
    since: Ns,
    /// Measurements in a row that were over the budget.
    over: u32,
    /// Bursts in a row that would not be over it were they for good.
    cheap: u32,
    burst_ends: Ns,
    /// `None`: bursts cost too much themselves.
    next_burst: Option<Ns>,
}

impl Policy {
    #[must_use]
    pub fn new(mode: Mode, budget: f64) -> Self {
        Self {
            mode,
            budget,
            watched: Watched::Nothing,
            since: 0,
            over: 0,
            cheap: 0,
            burst_ends: 0,
            next_burst: None,
        }
    }

    #[must_use]
    pub fn watched(&self) -> Watched {
        self.watched
    }

    /// The first library is attached to.
    pub fn begin(&mut self, at: Ns) -> Change {
        let why = match self.mode {
            Mode::On => "every call of the driver is watched, whatever it costs (--cuda on)",
            _ => "every call of the driver is watched",
        };
        self.change(at, Watched::All, why.into(), false)
    }

    /// Takes note of a measurement; a change when one has to be made now.
    pub fn judge(&mut self, at: Ns, cost: Cost) -> Option<Change> {
        if self.mode != Mode::Auto || self.watched == Watched::Nothing {
            return None;
        }
        if self.watched == Watched::Burst {
            return self.judge_burst(at, cost);
        }
        let ours = cost.rare + cost.frequent;
        let total = ours + cost.others;
        // The dearest part yields: were it the rest, that has steps of its own.
        if total <= self.budget || ours < total / 2.0 {
            self.over = 0;
            return None;
        }
        self.over += 1;
        if self.over < 2 && ours <= FAR_OVER * self.budget {
            return None;
        }
        // Its beginning is a burst at the least: what follows until the next one is told from it.
        if self.watched == Watched::All && at < self.since + BURST {
            return None;
        }
        let over = self.over_budget(cost);
        if self.watched == Watched::All {
            self.next_burst = Some(at + BURST_EVERY);
            let why = format!(
                "{over}: of launches, memsets and queries bursts of {:.1} s are watched, one in {} s, and the \
                 rarer calls all the time",
                BURST as f64 / 1e9,
                BURST_EVERY / SECOND
            );
            return Some(self.change(at, Watched::Rare, why, true));
        }
        Some(self.change(
            at,
            Watched::Nothing,
            format!("{over}: no call of the driver is watched any more"),
            true,
        ))
    }

    fn judge_burst(&mut self, at: Ns, cost: Cost) -> Option<Change> {
        let for_good = cost.rare + cost.frequent;
        let mean = cost.rare + cost.frequent * (BURST as f64 / BURST_EVERY as f64);
        if mean + cost.others > self.budget && mean >= cost.others {
            self.next_burst = None;
            let why = format!(
                "{}: bursts are too dear too, and only the rarer calls are watched",
                self.over_budget(cost)
            );
            return Some(self.change(at, Watched::Rare, why, true));
        }
        let cheap = for_good + cost.others <= self.budget / 2.0;
        self.cheap = if cheap { self.cheap + 1 } else { 0 };
        if self.cheap < 2 {
            return None;
        }
        let why = format!(
            "driver calls have become few ({:.0} hits a second, {:.2} % of the machine's processor time): all are \
             watched again",
            cost.hits,
            for_good * 100.0
        );
        Some(self.change(at, Watched::All, why, true))
    }

    /// Begins and ends bursts. `free`: what was detached before is gone.
    pub fn tick(&mut self, at: Ns, free: bool) -> Option<Change> {
        match self.watched {
            Watched::Burst if at >= self.burst_ends => {
                Some(self.change(at, Watched::Rare, "the burst is over".into(), false))
            }
            Watched::Rare if free && self.next_burst.is_some_and(|next| at >= next) => {
                self.next_burst = Some(at + BURST_EVERY);
                self.burst_ends = at + BURST;
                let why = "a burst of all calls, to learn rates and durations";
                Some(self.change(at, Watched::Burst, why.into(), false))
            }
            _ => None,
        }
    }

    fn over_budget(&self, cost: Cost) -> String {
        format!(
            "probes on the driver's calls take {:.2} % of the machine's processor time ({:.0} hits a second), the \
             rest of whyidle {:.2} %, over the budget of {:.2} %",
            (cost.rare + cost.frequent) * 100.0,
            cost.hits,
            cost.others * 100.0,
            self.budget * 100.0
        )
    }

    fn change(&mut self, at: Ns, watched: Watched, reason: String, step: bool) -> Change {
        (self.watched, self.since, self.over) = (watched, at, 0);
        if step {
            self.cheap = 0;
        }
        Change { watch: CudaWatch { at, watched, reason }, step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let mut policy = Policy::new(Mode::Auto, 0.01);
        assert_eq!(policy.begin(0).watch.watched, Watched::All);
        policy
    }

    fn cost(rare: f64, frequent: f64, others: f64) -> Cost {
        Cost { rare, frequent, others, hits: 1000.0 }
    }

    #[test]
    fn within_the_budget_all_is_watched() {
        let mut p = policy();
        for second in 1..50 {
            assert_eq!(p.judge(second * SECOND, cost(0.001, 0.007, 0.001)), None);
            assert_eq!(p.tick(second * SECOND, true), None);
        }
        assert_eq!(p.watched(), Watched::All);
    }

    #[test]
    fn another_part_that_is_dearer_yields_first() {
        let mut p = policy();
        for second in 1..50 {
            assert_eq!(p.judge(second * SECOND, cost(0.001, 0.004, 0.009)), None);
        }
    }

    #[test]
    fn a_storm_of_launches_leaves_rare_calls_and_bursts() {
        let mut p = policy();
        assert_eq!(p.judge(SECOND, cost(0.001, 0.012, 0.002)), None, "one measurement may be a hiccup");
        let change = p.judge(3 * SECOND, cost(0.001, 0.012, 0.002)).unwrap();
        assert_eq!((change.watch.watched, change.step), (Watched::Rare, true));
        assert!(change.watch.reason.contains("1.30 %") && change.watch.reason.contains("budget of 1.00 %"));
        let mut bursts = Vec::new();
        let mut began = 0;
        for tick in 0..600 {
            let at = 3 * SECOND + tick * SECOND / 6;
            if let Some(change) = p.tick(at, true) {
                assert!(!change.step);
                match change.watch.watched {
                    Watched::Burst => began = at,
                    other => {
                        assert_eq!(other, Watched::Rare);
                        bursts.push((began, at));
                    }
                }
            }
            if p.watched() == Watched::Burst {
                assert_eq!(p.judge(at, cost(0.001, 0.012, 0.002)), None);
            }
        }
        assert_eq!(bursts.len(), 4, "{bursts:?}");
        for (i, (began, ended)) in bursts.iter().enumerate() {
            assert!(ended - began >= 300_000_000);
            assert!(*began >= 3 * SECOND + (i as u64 + 1) * BURST_EVERY);
        }
    }

    #[test]
    fn far_over_one_measurement_is_enough_and_the_rare_calls_can_be_too_many_as_well() {
        let mut p = policy();
        let steps: Vec<_> = (1..20)
            .filter_map(|second| p.judge(second * SECOND, cost(0.05, 0.07, 0.002)))
            .map(|c| c.watch.watched)
            .collect();
        assert_eq!(steps, [Watched::Rare, Watched::Nothing]);
        assert_eq!(p.tick(1000 * SECOND, true), None);
    }

    #[test]
    fn the_beginning_is_at_least_a_burst() {
        let mut p = policy();
        assert_eq!(p.judge(BURST / 2, cost(0.0, 0.9, 0.0)), None);
        assert_eq!(p.judge(BURST, cost(0.0, 0.9, 0.0)).unwrap().watch.watched, Watched::Rare);
    }

    #[test]
    fn bursts_wait_until_what_was_detached_is_gone() {
        let mut p = policy();
        p.judge(SECOND, cost(0.0, 0.5, 0.0)).unwrap();
        assert_eq!(p.tick(60 * SECOND, false), None);
        assert_eq!(p.tick(61 * SECOND, true).unwrap().watch.watched, Watched::Burst);
    }

    #[test]
    fn bursts_that_are_too_dear_end() {
        let mut p = policy();
        p.judge(SECOND, cost(0.0, 0.9, 0.0)).unwrap();
        p.tick(60 * SECOND, true).unwrap();
        let change = p.judge(60 * SECOND + 1, cost(0.0, 0.9, 0.0)).unwrap();
        assert_eq!((change.watch.watched, change.step), (Watched::Rare, true));
        assert_eq!(p.tick(200 * SECOND, true), None);
    }

    #[test]
    fn two_calm_bursts_bring_all_back() {
        let mut p = policy();
        p.judge(SECOND, cost(0.0, 0.2, 0.0)).unwrap();
        let mut back = None;
        for second in 2..60 {
            p.tick(second * SECOND, true);
            if p.watched() == Watched::Burst {
                back = back.or(p.judge(second * SECOND, cost(0.001, 0.001, 0.0)));
            }
        }
        assert_eq!(back.unwrap().watch.watched, Watched::All);
        assert_eq!(p.watched(), Watched::All);
    }

    #[test]
    fn told_to_watch_it_never_yields() {
        let mut p = Policy::new(Mode::On, 0.01);
        p.begin(0);
        for second in 1..50 {
            assert_eq!(p.judge(second * SECOND, cost(0.3, 0.7, 0.0)), None);
            assert_eq!(p.tick(second * SECOND, true), None);
        }
    }
}
