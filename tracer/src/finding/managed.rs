//! Managed memory that moves back and forth: the driver's bottom halves serve the GPU's page faults.

use std::collections::BTreeMap;

use crate::cause::seconds;
use crate::timeline::Timeline;
use crate::trace::Span;

/// A bottom half that runs less than this share of the window, in percent, is no sign of anything.
const THRASH: u64 = 5;

/// How the recorder names the run time of the memory manager's bottom halves.
const BOTTOM_HALF: &str = " BH";

/// Run time of the memory manager's bottom halves, where it says that managed memory moves back and forth.
pub(super) fn memory(timeline: &Timeline, window: Span) -> Option<String> {
    let mut first: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let inside = timeline.counters.iter().filter(|c| window.start <= c.at && c.at <= window.end);
    for counter in inside.filter(|c| c.name.starts_with("UVM GPU") && c.name.ends_with(BOTTOM_HALF)) {
        let seen = first.entry(&counter.name).or_insert((counter.value, counter.value));
        *seen = (seen.0.min(counter.value), seen.1.max(counter.value));
    }
    let (name, ns) = first.into_iter().map(|(name, (a, b))| (name, b - a)).max_by_key(|(_, ns)| *ns)?;
    let large = u128::from(ns) * 100 > u128::from(window.len()) * u128::from(THRASH);
    large.then(|| {
        format!(
            "The kernel thread {name}, which serves page faults of the GPU, ran {} of the window's {}: managed memory \
             moves between host and device while kernels wait for it.",
            seconds(ns),
            seconds(window.len()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};
    use crate::trace::{Counter, Record};

    const WINDOW: Span = Span { start: 0, end: 1_000 * MS };

    #[test]
    fn a_busy_bottom_half_is_a_sign_and_a_quiet_one_is_none() {
        let ran = |ns: u64| {
            let counter = |at, value| Record::Counter(Counter { at, name: "UVM GPU1 BH".into(), value });
            let trace = TraceBuilder::new(0, 1_000 * MS)
                .record(counter(0, 5_000 * MS))
                .record(counter(900 * MS, 5_000 * MS + ns));
            memory(&build(trace.records()), WINDOW)
        };
        assert!(ran(60 * MS).expect("over the limit").contains("UVM GPU1 BH"));
        assert_eq!(ran(40 * MS), None);
        assert_eq!(memory(&build(TraceBuilder::new(0, MS).records()), WINDOW), None);
    }
}
