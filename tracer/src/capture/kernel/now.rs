//! The one clock of a trace.

use rustix::time::{ClockId, clock_gettime};

use crate::trace::Ns;

/// `CLOCK_MONOTONIC`, what `bpf_ktime_get_ns` returns.
#[must_use]
pub fn now() -> Ns {
    let t = clock_gettime(ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}
