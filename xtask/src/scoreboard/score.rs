//! A run with the fault beside one without: what the report said, held against what the device did.

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::case::{Case, Judged};
use super::kept::Kept;
use super::report::{Report, Sum};
use super::run::Outcome;

/// One line of the board. Seconds are of the counted part of the run with the fault; those of the report are carried
/// over from its ledger's window by length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub case: String,
    pub seed: u64,
    /// What read the traces.
    pub commit: String,
    /// What they were recorded with, where that was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// Idle seconds and length of the counted part without the fault, and with it.
    pub base_idle_s: f64,
    pub base_s: f64,
    pub fault_idle_s: f64,
    pub fault_s: f64,
    /// What the fault cost in idle time, by the device's account.
    pub truth_s: f64,
    /// The mechanism with the largest gain; of a moving fault that of each half.
    pub first: Vec<String>,
    pub right: bool,
    /// `None` where nobody is to be named.
    pub culprit: Option<bool>,
    /// Gain of the accepted mechanism with the largest.
    pub gain_s: f64,
    /// Share of the accepted mechanisms in the ledger of them and the second fault's.
    pub share: Option<f64>,
    pub unexplained: f64,
    pub findings: Vec<String>,
}

/// Idle time and length of a counted part, in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Spent {
    pub idle_s: f64,
    pub lasted_s: f64,
}

impl From<&Outcome> for Spent {
    fn from(outcome: &Outcome) -> Self {
        Self { idle_s: seconds(outcome.idle_ns), lasted_s: seconds(outcome.told.lasted_ns()) }
    }
}

/// What the reports say of the run with the fault: of all of it, and of each half where the fault moves.
#[derive(Debug)]
pub struct Reports {
    pub whole: Report,
    pub halves: Option<[Report; 2]>,
}

impl Reports {
    pub fn of(case: &Case, kept: &Kept) -> Result<Self> {
        let (trace, told) = (&kept.trace, &kept.told);
        let part = |from, to| Report::of(trace, (from, to), case.gpu);
        let halves = match (case.judged, told.turn_ns) {
            (Judged::Moving, turn) => {
                let turn = turn.context("the job does not say when its fault moved")?;
                Some([part(told.start_ns, turn)?, part(turn, told.end_ns)?])
            }
            _ => None,
        };
        Ok(Self { whole: part(told.start_ns, told.end_ns)?, halves })
    }
}

pub fn score(
    (name, seed, commit): (&str, u64, &str),
    case: &Case,
    kept: &Kept,
    reports: &Reports,
) -> Result<Line> {
    let (base, fault) = (kept.base, kept.fault);
    let report = &reports.whole;
    ensure!(report.ledger_ns() > 0 || case.judged == Judged::Control, "{name}: the report has no ledger");
    let truth_s = match case.judged {
        Judged::ByTime => fault.idle_s - base.idle_s / base.lasted_s * fault.lasted_s,
        _ => fault.idle_s - base.idle_s,
    };
    let sums = report.mechanisms();
    let of =
        |mechanisms: &[String]| mechanisms.iter().filter_map(|m| sums.get(m.as_str()).copied()).collect();
    let first_fault: Vec<Sum> = of(&case.accepts);
    let second_fault: Vec<Sum> = of(&case.then);
    let ns = |sums: &[Sum]| sums.iter().map(|s| s.ns).sum::<u64>();
    let gain_ns = first_fault.iter().map(|s| s.gain_ns).max().unwrap_or(0);
    let devices = report.gpus.len().max(1) as f64;
    let scale = fault.lasted_s * devices / seconds(report.ledger_ns()).max(1e-9);
    let idle_ns = report.idle_ns().max(1);
    let first: Vec<String> = match &reports.halves {
        Some(halves) => halves.iter().map(|h| h.first().unwrap_or("none").to_owned()).collect(),
        None => vec![report.first().unwrap_or("none").to_owned()],
    };
    let findings: Vec<String> = report.findings.iter().map(|f| f.mechanism.clone()).collect();
    let share = (case.judged == Judged::TwoFaults)
        .then(|| ns(&first_fault) as f64 / (ns(&first_fault) + ns(&second_fault)).max(1) as f64);
    let right = match case.judged {
        Judged::Control => findings.is_empty(),
        Judged::NoDemand => findings.is_empty() && first == ["no-demand"],
        Judged::Moving => {
            case.accepts.contains(&first[0]) && first.get(1).is_some_and(|f| case.then.contains(f))
        }
        Judged::TwoFaults => share.is_some_and(|s| (s - 0.6).abs() <= 0.1),
        Judged::BySteps | Judged::ByTime => case.accepts.contains(&first[0]),
    };
    Ok(Line {
        case: name.into(),
        seed,
        commit: commit.into(),
        recorded: (kept.commit != commit).then(|| kept.commit.clone()),
        base_idle_s: base.idle_s,
        base_s: base.lasted_s,
        fault_idle_s: fault.idle_s,
        fault_s: fault.lasted_s,
        truth_s,
        first,
        right,
        culprit: (!case.culprits.is_empty()).then(|| report.names(&case.accepts, &case.culprits)),
        gain_s: seconds(gain_ns) * scale,
        share,
        unexplained: sums.get("unexplained").map_or(0.0, |s| s.ns as f64 / idle_ns as f64),
        findings,
    })
}

impl Line {
    /// How far the gain may be from the truth: 15 % of it, or twice the spread (standard deviation) of the runs
    /// without the fault.
    pub fn tolerance_s(&self, base_idle_s: &[f64]) -> f64 {
        (self.truth_s.abs() * 0.15).max(2.0 * deviation(base_idle_s))
    }

    pub fn gain_is_right(&self, base_idle_s: &[f64]) -> bool {
        (self.gain_s - self.truth_s).abs() <= self.tolerance_s(base_idle_s)
    }
}

/// Of a sample; 0 of fewer than two.
fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(judged: &str, accepts: &[&str], then: &[&str]) -> Case {
        serde_json::from_value(json!({
            "what": "x", "steps": 1, "judged": judged, "accepts": accepts, "then": then, "culprits": ["/data/a"],
        }))
        .unwrap()
    }

    fn reports(causes: &[(&str, u64, u64)], findings: &[&str]) -> Reports {
        let causes: Vec<_> = causes
            .iter()
            .map(|(mechanism, ns, gain_ns)| {
                json!({"mechanism": mechanism, "ns": ns, "gain_ns": gain_ns, "chain": [{"what": "read of /data/a"}],
                       "culprit": null})
            })
            .collect();
        let idle: u64 = causes.iter().filter_map(|c| c["ns"].as_u64()).sum();
        let findings: Vec<_> = findings.iter().map(|m| json!({"mechanism": m})).collect();
        let whole = serde_json::from_value(json!({
            "window": {"start_ns": 0}, "findings": findings,
            "gpus": [{"index": 0, "window_ns": 5_000_000_000_u64, "idle_ns": idle, "unknown_ns": 0, "causes": causes}],
        }))
        .unwrap();
        Reports { whole, halves: None }
    }

    const BASE: Spent = Spent { idle_s: 0.5, lasted_s: 5.0 };
    const FAULT: Spent = Spent { idle_s: 4.5, lasted_s: 10.0 };
    fn kept(fault: Spent) -> Kept {
        let told = serde_json::from_value(json!({"start_ns": 0, "end_ns": 1, "turn_ns": null})).unwrap();
        Kept {
            commit: "c".into(),
            conditions: String::new(),
            base: BASE,
            fault,
            told,
            trace: "/nowhere".into(),
        }
    }

    const WHICH: (&str, u64, &str) = ("x", 1, "c");

    #[test]
    fn the_largest_gain_comes_first_and_is_carried_over_to_the_run() {
        let told = reports(
            &[
                ("storage.read", 1_500_000_000, 2_000_000_000),
                ("prepare.compute", 400_000_000, 400_000_000),
                ("unexplained", 100_000_000, 100_000_000),
            ],
            &["storage.read"],
        );
        let line = score(WHICH, &case("by-steps", &["storage.read"], &[]), &kept(FAULT), &told).unwrap();
        assert!(line.right && line.culprit == Some(true) && line.first == ["storage.read"]);
        assert!((line.gain_s - 4.0).abs() < 1e-9 && (line.truth_s - 4.0).abs() < 1e-9, "{line:?}");
        assert!((line.unexplained - 0.05).abs() < 1e-9);
        assert!(line.gain_is_right(&[0.5]));
        let wrong = score(WHICH, &case("by-steps", &["prepare.compute"], &[]), &kept(FAULT), &told).unwrap();
        assert!(!wrong.right && !wrong.gain_is_right(&[0.5]));
    }

    #[test]
    fn by_time_the_truth_is_a_rate() {
        let told = reports(&[("lock.gil", 1, 1)], &[]);
        let line = score(WHICH, &case("by-time", &["lock.gil"], &[]), &kept(FAULT), &told).unwrap();
        assert!((line.truth_s - 3.5).abs() < 1e-9);
    }

    #[test]
    fn a_control_may_have_no_finding() {
        let quiet = reports(&[("unexplained", 10, 10)], &[]);
        let loud = reports(&[("lock.gil", 10, 10)], &["lock.gil"]);
        let control = case("control", &[], &[]);
        assert!(score(WHICH, &control, &kept(BASE), &quiet).unwrap().right);
        assert!(!score(WHICH, &control, &kept(BASE), &loud).unwrap().right);
        let no_demand = case("no-demand", &[], &[]);
        assert!(!score(WHICH, &no_demand, &kept(BASE), &quiet).unwrap().right);
        let waiting = reports(&[("no-demand", 10, 10)], &[]);
        assert!(score(WHICH, &no_demand, &kept(BASE), &waiting).unwrap().right);
    }

    #[test]
    fn two_faults_are_judged_by_their_shares() {
        let two = case("two-faults", &["storage.read"], &["prepare.compute"]);
        let told = |a, b| reports(&[("storage.read", a, 0), ("prepare.compute", b, 0)], &[]);
        assert!(score(WHICH, &two, &kept(FAULT), &told(65, 35)).unwrap().right);
        assert!(!score(WHICH, &two, &kept(FAULT), &told(75, 25)).unwrap().right);
    }

    #[test]
    fn of_a_moving_fault_each_half_has_its_own() {
        let moving = case("moving", &["storage.read"], &["prepare.compute"]);
        let half = |m| reports(&[(m, 10, 10)], &[]).whole;
        let told = |a, b| Reports { whole: half(a), halves: Some([half(a), half(b)]) };
        assert!(score(WHICH, &moving, &kept(FAULT), &told("storage.read", "prepare.compute")).unwrap().right);
        assert!(!score(WHICH, &moving, &kept(FAULT), &told("storage.read", "storage.read")).unwrap().right);
    }

    #[test]
    fn the_spread_widens_the_tolerance() {
        let told = reports(&[("storage.read", 1, 1_000_000_000)], &[]);
        let line = score(WHICH, &case("by-steps", &["storage.read"], &[]), &kept(FAULT), &told).unwrap();
        assert!(!line.gain_is_right(&[0.5, 0.5]));
        assert!(line.gain_is_right(&[0.0, 2.0]), "a deviation of 1.41");
    }
}
