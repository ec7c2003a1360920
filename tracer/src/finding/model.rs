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
    /// The longest kinds of waits of the watched threads, a sentence each, where no GPU was read.
    pub waits: Vec<String>,
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
    /// Idle time whose place was found without seeing the calls around it.
    pub unwatched: Unwatched,
    /// What is known of the waits between ranks; `null`: no collective call was seen.
    pub collectives: Option<Collectives>,
    /// What the feeding threads launch; `null`: no launch was seen.
    pub launches: Option<Launches>,
    /// What they copy; `null`: no copy was seen.
    pub copies: Option<Copies>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placed {
    pub drained_ns: u64,
    pub bounded_ns: u64,
    pub inferred_ns: u64,
}

/// Parts of the idle time, by what was watched where they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unwatched {
    /// Placed while no driver call was watched.
    pub no_calls_ns: u64,
    /// Placed while launches were not watched, only calls that are rare.
    pub no_launches_ns: u64,
    /// Said to lie between launches because of what short bursts of watching showed.
    pub extrapolated_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Collectives {
    /// Why `collective_ns` is not known, in words; `null` where it is.
    pub unknown_reason: Option<String>,
    /// Operations that all ranks were seen to launch, in the whole recording.
    pub operations: u64,
    /// Who launched last, the most often first.
    pub last: Vec<LastRank>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastRank {
    pub rank: u32,
    pub pid: u32,
    /// Operations it launched last.
    pub operations: u64,
    /// From the first rank's launch to its own, summed over those.
    pub behind_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Launches {
    /// Time in which launches were watched; counts and silences are of it alone.
    pub watched_ns: u64,
    pub kernels: u64,
    pub graphs: u64,
    pub memsets: u64,
    /// Kernel and graph launches over `watched_ns`.
    pub per_second: Option<f64>,
    /// Mean time of a launch call, the probes' own cost taken off; `null`: returns were not seen.
    pub call_ns: Option<u64>,
    /// Stretches without a submit to the device, by their length.
    pub silences: Vec<Silences>,
    /// Time in which a feeding thread stood in a call that waits for the device while that worked; `null`:
    /// no such call was seen.
    pub host_ahead_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Silences {
    pub from_ns: u64,
    /// `null`: any length.
    pub to_ns: Option<u64>,
    pub count: u64,
    /// Sum of their lengths.
    pub ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Copies {
    pub count: u64,
    pub to_device: CopyWay,
    pub to_host: CopyWay,
    /// On the device, between devices, and those of which no direction was seen.
    pub other: CopyWay,
    /// All bytes seen over the window; `null`: none were seen.
    pub bytes_per_second: Option<f64>,
    /// Copies with a record of their own, by what was seen of their host memory.
    pub pinned: u64,
    pub pageable: u64,
    pub memory_unknown: u64,
    /// Time in which a thread stood in a copy call, and how much of it the device ran kernels beside.
    pub in_calls_ns: u64,
    pub with_compute_ns: u64,
    /// Between two copies to the device; `null` for fewer than two.
    pub mean_gap_ns: Option<u64>,
    pub longest_gap_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CopyWay {
    pub count: u64,
    pub bytes: u64,
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
