//! Is the PCIe link as wide and as fast as it can be, while the device is at work?

use std::collections::BTreeMap;

use crate::cause::seconds;
use crate::timeline::DeviceTrack;
use crate::trace::{Ns, Span};

/// From here on a window counts as load, percent: a link at rest is slowed down to save power, and comes back.
const LOAD_PERCENT: f64 = 50.0;
/// Part of the time under load that makes a finding; less is the moment in which the link wakes up.
const PART: u64 = 10;

pub(super) fn words(track: &DeviceTrack) -> Option<String> {
    let device = &track.device;
    let max = (device.pcie_generation_max, device.pcie_width_max);
    let mut loaded: BTreeMap<(Option<u32>, Option<u32>), u64> = BTreeMap::new();
    for (held, state) in held(track) {
        let load: u64 = track
            .readings
            .iter()
            .filter(|r| r.busy_percent.is_some_and(|busy| busy >= LOAD_PERCENT))
            .filter_map(|r| r.span.intersect(held))
            .map(Span::len)
            .sum();
        if load > 0 && (state.0.is_some() || state.1.is_some()) {
            *loaded.entry(state).or_default() += load;
        }
    }
    let whole: u64 = loaded.values().sum();
    let below = loaded.iter().filter(|(link, _)| less(link.0, max.0) || less(link.1, max.1));
    let below_ns: u64 = below.clone().map(|(_, ns)| ns).sum();
    let worst = below.max_by_key(|(_, ns)| **ns).filter(|_| below_ns > whole / PART);
    if let Some((link, _)) = worst {
        return Some(format!(
            "PCIe {} for {} of {} under load (reseat the card, look for a shared or narrow slot, a riser, or a \
             setting of the firmware)",
            compared(*link, max),
            seconds(below_ns),
            seconds(whole)
        ));
    }
    if whole > 0 {
        return Some(format!("PCIe {} under load", compared(max, max)));
    }
    let now = (device.pcie_generation, device.pcie_width);
    (now.1.is_some() && max.1.is_some()).then(|| format!("PCIe {}", compared(now, max)))
}

type Link = (Option<u32>, Option<u32>);

/// From each state to the next, the link as it was.
fn held(track: &DeviceTrack) -> impl Iterator<Item = (Span, Link)> {
    let ends = track.states.iter().skip(1).map(|state| state.at).chain([Ns::MAX]);
    track
        .states
        .iter()
        .zip(ends)
        .map(|(state, end)| (Span::new(state.at, end), (state.pcie_generation, state.pcie_width)))
}

fn less(now: Option<u32>, max: Option<u32>) -> bool {
    now.zip(max).is_some_and(|(now, max)| now < max)
}

/// "x8 of x16, generation 3 of 5"
fn compared(now: Link, max: Link) -> String {
    let width =
        now.1.map(|now| format!("x{now}{}", max.1.map_or(String::new(), |max| format!(" of x{max}"))));
    let generation = now
        .0
        .filter(|_| less(now.0, max.0))
        .map(|now| format!("generation {now}{}", max.0.map_or(String::new(), |max| format!(" of {max}"))));
    width.into_iter().chain(generation).collect::<Vec<_>>().join(", ")
}
