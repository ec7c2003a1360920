//! What the recording says of the environment's fast path.

use std::collections::{BTreeMap, BTreeSet};

use crate::timeline::Timeline;

/// NVML's clock-throttle reasons that mean lost speed: software and hardware power, thermal, power brake.
const SLOWED: &[(u64, &str)] = &[
    (0x4, "software power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
];

const OPENMP: &[&str] = &["libgomp", "libiomp5", "libomp"];

pub(super) fn words(timeline: &Timeline) -> Result<String, String> {
    let mut parts = Vec::new();
    for (index, track) in &timeline.devices {
        let device = &track.device;
        let mut of_device = Vec::new();
        if !device.driver_version.is_empty() {
            of_device.push(format!("driver {}", device.driver_version));
        }
        if let Some(version) = device.cuda_version {
            of_device.push(format!("CUDA {}.{}", version / 1000, version % 1000 / 10));
        }
        if let (Some(now), Some(max)) = (device.pcie_width, device.pcie_width_max) {
            of_device.push(format!("PCIe x{now} of x{max}"));
        }
        let reasons = track.readings.iter().filter_map(|r| r.throttle_reasons).fold(0, |all, r| all | r);
        let slowed: Vec<&str> =
            SLOWED.iter().filter(|(bit, _)| reasons & bit != 0).map(|row| row.1).collect();
        if track.readings.iter().any(|r| r.throttle_reasons.is_some()) {
            let words = if slowed.is_empty() { "clocks not throttled".into() } else { slowed.join(", ") };
            of_device.push(words);
        }
        if !of_device.is_empty() {
            parts.push(format!("GPU {index}: {}", of_device.join(", ")));
        }
    }
    parts.extend(openmp(timeline));
    parts.extend(throttled(timeline));
    if parts.is_empty() {
        return Err("neither the device nor the processes' libraries were recorded".to_owned());
    }
    parts.push("not known: run-time compilation, tensor cores, whether thread counts fit".to_owned());
    Ok(format!("{}.", parts.join("; ")))
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
