//! What the recording says of the environment's fast path: rules, each with its evidence and what to do.

mod device;
mod errors;
mod link;
mod speed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::timeline::Timeline;

const OPENMP: &[&str] = &["libgomp", "libiomp5", "libomp"];

/// `oversubscribed`: a device waited for threads that were in each other's way.
pub(super) fn words(timeline: &Timeline, oversubscribed: bool) -> Result<String, String> {
    let mut parts = Vec::new();
    for (index, track) in &timeline.devices {
        let of_device = device::words(track, timeline.span.start);
        if !of_device.is_empty() {
            parts.push(format!("GPU {index}: {}", of_device.join(", ")));
        }
    }
    parts.extend(runtime(timeline));
    parts.extend(openmp(timeline));
    parts.extend(throttled(timeline));
    if parts.is_empty() {
        return Err("neither the device nor the processes' libraries were recorded".to_owned());
    }
    let tensor = timeline.devices.values().any(|track| speed::tensor(track).is_some());
    let open = if tensor { "run-time compilation" } else { "run-time compilation, tensor cores" };
    if oversubscribed {
        parts.push("more threads than processors".to_owned());
    }
    let threads = if oversubscribed { "" } else { ", whether thread counts fit" };
    parts.push(format!("not known: {open}{threads}"));
    Ok(format!("{}.", parts.join("; ")))
}

/// CUDA runtimes newer than what the driver is made for.
fn runtime(timeline: &Timeline) -> Option<String> {
    let driver = timeline.devices.values().filter_map(|track| track.device.cuda_version).max()?;
    let major =
        |path: &str| path.rsplit('/').next()?.strip_prefix("libcudart.so.")?.split('.').next()?.parse().ok();
    let newest: u32 = timeline.mappings.iter().filter_map(|m| major(&m.path)).max()?;
    (newest > driver / 1000).then(|| {
        format!(
            "a CUDA {newest} runtime runs on a driver made for CUDA {}.{}: update the driver or use its \
             compatibility package, else new features fail or kernels are compiled at run time",
            driver / 1000,
            driver % 1000 / 10
        )
    })
}

/// Processes that map more than one OpenMP runtime.
fn openmp(timeline: &Timeline) -> Option<String> {
    let mut runtimes: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for mapping in &timeline.mappings {
        let base = mapping.path.rsplit('/').next().unwrap_or_default();
        if let Some(name) =
            OPENMP.iter().find(|n| base.strip_prefix(**n).is_some_and(|r| r.starts_with(['.', '-'])))
        {
            runtimes.entry(mapping.pid).or_default().insert(name);
        }
    }
    let (pid, names) = runtimes.iter().max_by_key(|(pid, names)| (names.len(), std::cmp::Reverse(**pid)))?;
    let names: Vec<&str> = names.iter().copied().collect();
    Some(match names.len() {
        1 => format!("one OpenMP runtime ({})", names[0]),
        n => format!("{n} OpenMP runtimes in process {pid} ({})", names.join(", ")),
    })
}

fn throttled(timeline: &Timeline) -> Option<String> {
    let mut groups: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for tick in timeline.cgroup_ticks.iter().filter(|t| t.quota_us.is_some()) {
        let slot = groups.entry(&tick.path).or_insert((tick.throttled_count, 0));
        slot.1 = tick.throttled_count.saturating_sub(slot.0);
    }
    let (path, (_, count)) = groups.into_iter().max_by_key(|(_, (_, count))| *count)?;
    (count > 0).then(|| format!("processor quota of {path} ran out {count} times"))
}
