//! Without a device: what the watched threads waited for.

use std::collections::{BTreeMap, BTreeSet};

use crate::cause::{seconds, wait_words};
use crate::timeline::{Activity, Timeline};

/// Lines shown.
const SHOWN: usize = 8;

/// The longest kinds of waits, one sentence each.
pub(super) fn summary(timeline: &Timeline) -> Vec<String> {
    let words = wait_words(timeline);
    let mut waits: BTreeMap<(&str, String), (u64, u64, BTreeSet<u32>)> = BTreeMap::new();
    for thread in timeline.threads.values() {
        for slice in &thread.slices {
            let (what, ns) = match slice.activity {
                Activity::Blocked(i) => (thread.off_cpu.get(i).map(&words), slice.span.len()),
                Activity::Runnable(_) => (Some("waits for a processor".to_owned()), slice.span.len()),
                Activity::Running | Activity::Unseen => continue,
            };
            let slot = waits.entry((thread.comm.as_str(), what.unwrap_or_default())).or_default();
            slot.0 += ns;
            slot.1 += 1;
            slot.2.insert(thread.pid);
        }
    }
    let mut longest: Vec<_> = waits.into_iter().collect();
    longest.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    longest
        .into_iter()
        .take(SHOWN)
        .map(|((comm, what), (ns, count, pids))| {
            let who = match pids.first() {
                Some(pid) if pids.len() == 1 => format!("pid {pid}"),
                _ => format!("{} processes", pids.len()),
            };
            let waits = if count == 1 { "1 wait".to_owned() } else { format!("{count} waits") };
            format!("{comm} ({who}): {what}, {} in {waits}.", seconds(ns))
        })
        .collect()
}
