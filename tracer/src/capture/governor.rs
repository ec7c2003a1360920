//! Keeps the tracer's own processor time within its budget, and writes down each step it takes.

use std::time::Duration;

use rustix::time::ClockId;

use super::host;
use crate::trace::Ns;

/// After [`Step::FewerSamples`]. A stretch of work is told from the thread's samples within a second of it: of 99
/// there are still 20.
pub const SAMPLE_EVERY: u64 = 5;
/// After [`Step::FewerStacks`].
pub const STACK_EVERY: u64 = 8;
/// A measurement spans at least this long: shorter ones are mostly noise.
const SPAN: Duration = Duration::from_secs(2);

/// What is given up when the budget is exceeded, in this order. Each takes effect at once and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look for new targets eight times less often.
    FewerRescans,
    /// Host and group counters once a second instead of every tick.
    FewerHostTicks,
    /// System calls are watched no more in bursts; where that was asked for, they still are all the time.
    NoBursts,
    /// Requests to disks are counted no more.
    NoDisks,
    /// One CPU sample in [`SAMPLE_EVERY`].
    FewerSamples,
    /// In a storm of short waits the user stack of one in [`STACK_EVERY`] is walked.
    FewerStacks,
    /// Waits shorter than 1 ms are added up instead of recorded one by one.
    Threshold1Ms,
    /// No more CPU samples.
    NoSamples,
    /// Waits shorter than 10 ms are added up.
    Threshold10Ms,
}

impl Step {
    const ORDER: [Self; 9] = [
        Self::FewerRescans,
        Self::FewerHostTicks,
        Self::NoBursts,
        Self::NoDisks,
        Self::FewerSamples,
        Self::FewerStacks,
        Self::Threshold1Ms,
        Self::NoSamples,
        Self::Threshold10Ms,
    ];

    fn what(self) -> &'static str {
        match self {
            Self::FewerRescans => "looks for new targets eight times less often",
            Self::FewerHostTicks => "reads host and group counters once a second",
            Self::NoBursts => "watches reads and driver calls no more in bursts",
            Self::NoDisks => "counts no more requests to disks, their latency and queue depth",
            Self::FewerSamples => "takes one CPU sample in five",
            Self::FewerStacks => "walks the user stack of one in eight of the waits that follow a short one",
            Self::Threshold1Ms => "adds up waits shorter than 1 ms instead of recording each",
            Self::NoSamples => "takes no more CPU samples",
            Self::Threshold10Ms => "adds up waits shorter than 10 ms instead of recording each",
        }
    }

    /// It costs the answer something, so one burst is no reason for it.
    fn hurts(self) -> bool {
        !matches!(self, Self::FewerRescans | Self::FewerHostTicks)
    }

    /// What part of what is too much it has to win, where that is known. Without samples what runs has no name.
    fn worth(self) -> f64 {
        if self == Self::NoSamples { 0.5 } else { 0.1 }
    }

    /// The programs that it takes out or lets run less; none where it makes many of them cheaper.
    #[must_use]
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::NoDisks => &["block_issue", "block_issue_q", "block_complete"],
            Self::FewerSamples | Self::NoSamples => &["cpu_sample"],
            Self::FewerStacks => &["sched_switch", "sched_switch_3"],
            _ => &[],
        }
    }
}

/// Own processor time, that of the kernel side's programs included, against the budget. Those are charged
/// to whoever was running when they ran, and are measured now and then (`kernel_cost`).
#[derive(Debug)]
pub struct Governor {
    /// Share of the machine's processor time, 0.01 for 1 %.
    budget: f64,
    cpus: f64,
    since: (Ns, u64),
    /// Share of each of the kernel side's programs as last measured; nothing before that.
    programs: Vec<(String, f64)>,
    /// Steps not taken yet.
    left: Vec<Step>,
    /// Share as last measured, and the largest so far; the second with the probes on driver calls, which have
    /// steps of their own (`cuda::policy`).
    share: f64,
    worst: f64,
    driver: f64,
    /// Spans over the budget in a row.
    streak: u32,
    exhausted: bool,
}

impl Governor {
    #[must_use]
    pub fn new(budget: f64, cpus: usize) -> Self {
        Self {
            budget,
            cpus: cpus.max(1) as f64,
            since: (host::now(), own_cpu()),
            programs: Vec::new(),
            left: Step::ORDER.to_vec(),
            share: 0.0,
            worst: 0.0,
            driver: 0.0,
            streak: 0,
            exhausted: false,
        }
    }

    /// Call every tick. A step, with the sentence for the trace, when one has to be taken now. `once` is processor
    /// time so far of what is done once an object, however long the recording: no step would make it less.
    pub fn tick(&mut self, once: u64) -> (Option<Step>, Option<String>) {
        self.judge(host::now(), own_cpu().saturating_sub(once))
    }

    fn judge(&mut self, now: Ns, cpu: u64) -> (Option<Step>, Option<String>) {
        let wall = now.saturating_sub(self.since.0);
        if u128::from(wall) < SPAN.as_nanos() {
            return (None, None);
        }
        let own = cpu.saturating_sub(self.since.1) as f64 / (wall as f64 * self.cpus);
        let kernel = self.kernel_share();
        let share = own + kernel;
        self.since = (now, cpu);
        self.share = share;
        self.worst = self.worst.max(share + self.driver);
        if share <= self.budget {
            self.streak = 0;
            return (None, None);
        }
        self.streak += 1;
        let over = format!(
            "whyidle took {:.2} % of the machine's processor time ({:.2} % of it inside the kernel), over its \
             budget of {:.2} %",
            share * 100.0,
            kernel * 100.0,
            self.budget * 100.0
        );
        let worth = |step: &Step| self.wins(*step).is_none_or(|w| w >= (share - self.budget) * step.worth());
        if let Some(next) = self.left.iter().position(worth) {
            if self.left[next].hurts() && self.streak < 2 {
                return (None, None);
            }
            let step = self.left.remove(next);
            return (Some(step), Some(format!("{over}: {}", step.what())));
        }
        let first = !std::mem::replace(&mut self.exhausted, true);
        (None, first.then(|| format!("{over}, and no step is left that would help")))
    }

    /// Share that a step would win at most; `None` where that was not measured.
    fn wins(&self, step: Step) -> Option<f64> {
        let relieved = step.programs();
        let of = |(name, share): &(String, f64)| relieved.contains(&name.as_str()).then_some(*share);
        (!relieved.is_empty() && !self.programs.is_empty()).then(|| self.programs.iter().filter_map(of).sum())
    }

    /// Takes note of what the kernel side's programs take: processor time per time passed, of each.
    pub fn kernel(&mut self, per_time: Vec<(String, f64)>) {
        self.programs = per_time.into_iter().map(|(name, of)| (name, of / self.cpus)).collect();
    }

    /// Share that probes on driver calls take, as last measured.
    pub fn driver(&mut self, share: f64) {
        self.driver = share;
    }

    /// Share of the machine's processor time as last measured, without the probes on driver calls.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    #[must_use]
    pub fn kernel_share(&self) -> f64 {
        // A sum of nothing would be -0.
        self.programs.iter().fold(0.0, |sum, (_, share)| sum + share)
    }

    /// Largest share of the machine's processor time over one span of measurement.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.worst
    }
}

/// Processor time of this process, all threads.
#[must_use]
pub fn own_cpu() -> u64 {
    host::clock(ClockId::ProcessCPUTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn governor() -> Governor {
        Governor { since: (0, 0), ..Governor::new(0.01, 2) }
    }

    #[test]
    fn within_the_budget_nothing_happens() {
        let mut g = governor();
        for second in 1..=10 {
            // 1 % of two processors is 20 ms a second.
            assert_eq!(g.judge(second * SECOND, second * SECOND / 50), (None, None));
        }
        assert!((g.worst() - 0.01).abs() < 1e-9);
    }

    #[test]
    fn over_the_budget_each_step_is_taken_once_and_said() {
        let mut g = governor();
        let mut steps = Vec::new();
        let mut said = 0;
        for second in 1..=20 {
            let (step, what) = g.judge(second * SECOND, second * SECOND / 10);
            steps.extend(step);
            said += usize::from(what.is_some());
        }
        assert_eq!(steps, Step::ORDER);
        assert_eq!(said, Step::ORDER.len() + 1);
    }

    #[test]
    fn single_bursts_cost_the_answer_nothing() {
        let mut g = governor();
        let mut steps = Vec::new();
        let mut cpu = 0;
        for span in 1..=20 {
            cpu += if span % 2 == 0 { SECOND } else { 0 };
            steps.extend(g.judge(span * 2 * SECOND, cpu).0);
        }
        assert_eq!(steps, [Step::FewerRescans, Step::FewerHostTicks]);
    }

    #[test]
    fn the_kernel_side_counts_too() {
        let mut g = governor();
        g.kernel(vec![("sched_switch".into(), 0.03), ("sched_waking".into(), 0.01)]);
        let (step, what) = g.judge(2 * SECOND, 0);
        assert_eq!(step, Some(Step::FewerRescans));
        assert!(what.unwrap().contains("2.00 % of it inside the kernel"));
    }

    #[test]
    fn before_anything_was_measured_the_kernel_side_takes_nothing() {
        let (_, what) = governor().judge(2 * SECOND, SECOND);
        assert!(what.unwrap().contains("(0.00 % of it inside the kernel)"));
    }

    #[test]
    fn a_program_that_costs_next_to_nothing_is_not_taken_out() {
        let dear = |name: &str| {
            let mut g = governor();
            let all = ["sched_switch", "block_issue", "cpu_sample"];
            g.kernel(all.map(|n| (n.to_owned(), if n == name { 0.04 } else { 0.0001 })).to_vec());
            (1..=20).filter_map(|span| g.judge(span * 2 * SECOND, 0).0).collect::<Vec<_>>()
        };
        let relieving =
            |name| dear(name).into_iter().filter(|s| !s.programs().is_empty()).collect::<Vec<_>>();
        assert_eq!(relieving("sched_switch"), [Step::FewerStacks]);
        assert_eq!(relieving("block_issue"), [Step::NoDisks]);
        assert_eq!(relieving("cpu_sample"), [Step::FewerSamples, Step::NoSamples]);
        assert_eq!(dear("sched_switch").len(), Step::ORDER.len() - 3);
    }

    #[test]
    fn samples_are_given_up_only_where_they_are_most_of_what_is_too_much() {
        let steps = |sample: f64| {
            let mut g = governor();
            g.kernel(vec![("sched_switch".into(), 0.04), ("cpu_sample".into(), sample)]);
            (1..=20).filter_map(|span| g.judge(span * 2 * SECOND, 0).0).collect::<Vec<_>>()
        };
        assert!(!steps(0.005).contains(&Step::NoSamples) && steps(0.005).contains(&Step::FewerSamples));
        assert!(steps(0.1).contains(&Step::NoSamples));
    }

    #[test]
    fn a_short_burst_is_judged_over_the_whole_span() {
        let mut g = governor();
        assert_eq!(g.judge(SECOND / 100, SECOND / 100), (None, None));
        assert_eq!(g.judge(2 * SECOND, SECOND / 100), (None, None));
    }
}
