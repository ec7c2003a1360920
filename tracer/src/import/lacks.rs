//! What a recording does not hold, and what that means for the report.

use super::collect::Tally;
use crate::trace::ProbeStatus;

/// Something that is missing, as a probe that was not attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub what: &'static str,
    pub why: String,
}

const SCHEDULING: &str = "scheduling";
const DEVICE: &str = "device activity";
const CALLS: &str = "CUDA calls";
const OPERATORS: &str = "operators";
const PYTHON: &str = "Python functions";

pub(super) fn of(tally: &Tally, cut: Option<&str>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    let mut lack = |missing: bool, what, why: &str| {
        if missing {
            lacks.push(Lack { what, why: why.into() });
        }
    };
    if let Some(cut) = cut {
        lack(true, "the recording's end", &format!("{cut}: all events before that place are there"));
    }
    lack(
        true,
        SCHEDULING,
        "a profiler's recording holds none: waits, files and wake-ups are not known, and a thread counts as running",
    );
    lack(
        tally.device == 0,
        DEVICE,
        "no kernel or memset: a recording of the CPU only, so idle time is not known",
    );
    lack(
        tally.calls == 0,
        CALLS,
        "no cuda_runtime or cuda_driver event: recorded without ProfilerActivity.CUDA, or cut down later",
    );
    lack(tally.operators == 0, OPERATORS, "no cpu_op or user_annotation event: stacks hold no operators");
    lack(
        tally.python == 0,
        PYTHON,
        "no python_function event: recorded without with_stack=True, so stacks hold operators and annotations only",
    );
    lacks
}

/// The same as rows of the probe table, and what is there beside them.
pub(super) fn probes(tally: &Tally, lacks: &[Lack]) -> Vec<ProbeStatus> {
    let there =
        [(DEVICE, tally.device), (CALLS, tally.calls), (OPERATORS, tally.operators), (PYTHON, tally.python)];
    let missing = lacks.iter().map(|lack| ProbeStatus {
        name: lack.what.into(),
        attached: false,
        reason: lack.why.clone(),
    });
    let there = there.into_iter().filter(|row| row.1 > 0).map(|row| ProbeStatus {
        name: row.0.into(),
        attached: true,
        reason: String::new(),
    });
    missing.chain(there).collect()
}
