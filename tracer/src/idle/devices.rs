//! Which device a thread's driver calls are for.

use std::collections::{BTreeMap, BTreeSet};

use crate::timeline::{Thread, Timeline};

/// Names of processes that stand between jobs and a device and submit nothing of their own.
const BETWEEN: &str = "nvidia-cuda-mps";

/// The threads whose submits count for `device`, and whether that is a guess.
pub(super) fn feeders(timeline: &Timeline, device: u32) -> (Vec<&Thread>, bool) {
    let mut listed: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (&index, track) in &timeline.devices {
        for process in &track.processes {
            listed.entry(process.pid).or_default().insert(index);
        }
    }
    let only = timeline.devices.len() <= 1;
    let mut inferred = false;
    let mut threads = Vec::new();
    for thread in timeline.threads.values() {
        let edges = !thread.submits.is_empty() || !thread.calls.is_empty();
        if !edges || thread.comm.starts_with(BETWEEN) {
            continue;
        }
        let on = listed.get(&thread.pid);
        if on.is_some_and(|on| !on.contains(&device)) {
            continue;
        }
        let certain = only || on.is_some_and(|on| on.len() == 1);
        inferred |= !certain;
        threads.push(thread);
    }
    (threads, inferred)
}
