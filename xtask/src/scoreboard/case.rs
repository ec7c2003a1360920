//! What each case injects and what a right report says of it: `tests/job/cases.toml`, read.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::place;
use crate::vm::Kernel;

/// The cases by name. What the fault does is in `tests/job/cases`, in the function of the same name.
pub type Cases = BTreeMap<String, Case>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// What happens, in a line, for the page.
    pub what: String,
    /// Counted steps; a run lasts 30 s at most.
    pub steps: u32,
    #[serde(default)]
    pub judged: Judged,
    /// Mechanisms accepted as first cause; of two faults those of the first, of a moving one those of its first half.
    #[serde(default)]
    pub accepts: Vec<String>,
    /// Those of the second fault, or of the second half.
    #[serde(default)]
    pub then: Vec<String>,
    /// One of these stands in the culprit or the chain of at least half of what goes to accepted mechanisms.
    #[serde(default)]
    pub culprits: Vec<String>,
    /// Of a virtual machine that it runs in, where it needs what not every kernel has, or the stand-in for the driver.
    pub kernel: Option<Kernel>,
    /// Beside that machine there is a peer that answers it (`tests/job/network_peer.py`).
    #[serde(default)]
    pub peer: bool,
    /// The only device that counts, of several.
    pub gpu: Option<u32>,
    /// Settings of the simulated device.
    #[serde(default)]
    pub device: BTreeMap<String, String>,
    /// Arguments for the recording, such as `--cuda`.
    #[serde(default)]
    pub record: Vec<String>,
    /// A probe hit in user space costs more here than what the case is made of: the truth comes from runs that
    /// nobody traced.
    #[serde(default)]
    pub untraced_truth: bool,
    /// Why a right answer is not expected yet; it is run and counted all the same.
    pub miss: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judged {
    /// By the idle time that the same steps take longer with the fault.
    #[default]
    BySteps,
    /// By idle time a second: the fault comes by the clock, not by the step.
    ByTime,
    /// Two faults at once: their shares of the ledger are 60 : 40.
    TwoFaults,
    /// A fault that is another one from half-way on.
    Moving,
    /// Nothing is wrong: no finding.
    Control,
    /// Nobody asks for work: `no-demand` first, and no finding.
    NoDemand,
}

impl Case {
    /// All that a run of it depends on beside its job.
    pub fn conditions(&self) -> String {
        let Self { steps, kernel, peer, gpu, device, record, untraced_truth, .. } = self;
        let peer = if *peer { " with a peer" } else { "" };
        format!("{:?}{peer}", (steps, kernel, gpu, device, record, untraced_truth))
    }
}

impl Judged {
    /// One fault, whose gain can be held against what it cost.
    pub fn has_gain(self) -> bool {
        matches!(self, Self::BySteps | Self::ByTime)
    }

    pub fn is_double(self) -> bool {
        matches!(self, Self::TwoFaults | Self::Moving)
    }

    pub fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::NoDemand)
    }
}

/// All of them, or those named.
pub fn read(named: &[String]) -> Result<Cases> {
    let path = place::root().join("tests/job/cases.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut cases = parse(&text).with_context(|| path.display().to_string())?;
    for name in named {
        ensure!(cases.contains_key(name), "no case {name}; there are {}", list(&cases));
    }
    cases.retain(|name, _| named.is_empty() || named.contains(name));
    Ok(cases)
}

fn list(cases: &Cases) -> String {
    cases.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn parse(text: &str) -> Result<Cases> {
    let cases: Cases = toml::from_str(text)?;
    for (name, case) in &cases {
        let (faulty, two) = (!case.judged.is_control(), case.judged.is_double());
        if case.accepts.is_empty() == faulty || case.then.is_empty() == two || case.steps == 0 {
            bail!("{name}: `accepts`, `then` or `steps` do not fit how it is judged");
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_can_be_read() {
        assert!(!read(&[]).unwrap().is_empty());
        assert!(read(&["none of them".into()]).unwrap_err().to_string().contains("slow-read"));
    }

    #[test]
    fn a_case_without_an_answer_is_refused() {
        assert!(parse("[a]\nwhat = 'x'\nsteps = 1").is_err());
        assert!(parse("[a]\nwhat = 'x'\nsteps = 1\naccepts = ['lock.gil']").is_ok());
        assert!(parse("[a]\nwhat = 'x'\nsteps = 1\njudged = 'control'\naccepts = ['lock.gil']").is_err());
        assert!(parse("[a]\nwhat = 'x'\nsteps = 1\njudged = 'moving'\naccepts = ['lock.gil']").is_err());
        assert!(parse("[a]\nwhat = 'x'\nsteps = 1\naccepts = ['lock.gil']\nsurprise = 1").is_err());
    }
}
