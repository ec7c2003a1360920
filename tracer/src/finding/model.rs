//! The report as data: the JSON contract. Fields are added, never changed or dropped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Mechanism};

/// Version of the JSON contract.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    pub schema: u32,
    pub window: Window,
    pub host: HostSummary,
    pub gpus: Vec<Gpu>,
    pub findings: Vec<Finding>,
    pub losses: Vec<LossLine>,
    pub probes: Vec<ProbeLine>,
    /// The five questions, in order.
    pub questions: Vec<Answer>,
    /// Anything that limits what can be said: a cut trace, governor steps, threads without symbols.
    pub notes: Vec<String>,
}

/// On CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    pub start_ns: u64,
    pub end_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostSummary {
    pub hostname: String,
    pub kernel: String,
    pub cpus: u32,
    pub command: String,
    pub tool_version: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub start_ns: u64,
    pub window_ns: u64,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub unknown_ns: u64,
    /// Time in collectives that waited for another rank; `null`: not known.
    pub collective_ns: Option<u64>,
    pub placed: Placed,
    /// Sorted by `ns` descending; `ns` sums to `idle_ns`.
    pub causes: Vec<Cause>,
    /// Why part of the window is unknown, in words.
    pub unknown_reasons: Vec<String>,
    pub launches_per_second: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placed {
    pub drained_ns: u64,
    pub bounded_ns: u64,
    pub inferred_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    pub mechanism: Mechanism,
    pub gpu: u32,
    pub title: String,
    pub gain_ns: u64,
    pub ns: u64,
    /// Sentences a sceptic can check, each with its figure.
    pub evidence: Vec<String>,
    pub remedy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossLine {
    pub class: String,
    pub cpu: Option<u32>,
    pub cause: String,
    pub count: u64,
    pub ns_at_risk: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeLine {
    pub name: String,
    pub attached: bool,
    pub reason: String,
}

/// An answer to one of the five questions; `known: false` means `text` says why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    pub question: String,
    pub known: bool,
    pub text: String,
}
