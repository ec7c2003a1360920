//! The host, the recording itself, and the state both were in.

use serde::{Deserialize, Serialize};

use super::time::Ns;

/// First record of every trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub tool_version: String,
    /// `uname -r`.
    pub kernel: String,
    pub hostname: String,
    /// Processors that may be used, as the kernel numbers them.
    pub online_cpus: Vec<u32>,
    /// Off-CPU intervals shorter than this are in [`WaitTotal`]s, not in [`OffCpu`] records.
    pub threshold_ns: u64,
    /// Period of the CPU samples, 0 where they are not taken.
    pub sample_period_ns: u64,
    pub tick_ns: u64,
    /// Start of the recording.
    pub start_ns: Ns,
    /// `CLOCK_REALTIME` at `start_ns`.
    pub start_unix_ns: u64,
    /// The command given to `whyidle run`, or how targets were chosen (`--pid 42`).
    pub command: String,
    pub own_pid: u32,
    /// Majors taken as the NVIDIA driver's (195 and the dynamic ones), as used by the kernel side.
    pub nvidia_majors: Vec<u32>,
}

/// Whether a probe is in place; also stored when it is not, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeStatus {
    pub name: String,
    pub attached: bool,
    /// Why not, in one sentence; empty when attached.
    pub reason: String,
}

/// Host state at a tick; counters are cumulative as the kernel gives them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostTick {
    pub at: Ns,
    /// Per processor in `/proc/stat` order: (cpu, idle ns, iowait ns, steal ns).
    pub cpus: Vec<(u32, u64, u64, u64)>,
    /// `/proc/pressure`: total `some` microseconds for cpu, memory, io; `None` where PSI is off.
    pub pressure_us: Option<[u64; 3]>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupTick {
    pub at: Ns,
    pub path: String,
    /// `cfs_quota_us`/`cfs_period_us` or `cpu.max`; `None` where there is no quota.
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub throttled_count: u64,
    pub throttled_ns: u64,
    /// `memory.events` max / `memory.failcnt`.
    pub memory_limit_hits: u64,
}

/// A step the budget governor took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GovernorStep {
    pub at: Ns,
    pub what: String,
}

/// Anything countable that has no record of its own (program run times, ring bytes), for `-v` and benches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    pub at: Ns,
    pub name: String,
    pub value: u64,
}

/// Last record of a recording that ended in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub at: Ns,
    /// Why: "duration", "interrupted", "targets exited", "out of space: ...".
    pub reason: String,
    /// Exit status of the command given to `whyidle run`.
    pub exit_status: Option<i32>,
}
