//! Time in collectives that waited for the last rank: beside the ledger, because the kernel keeps the device
//! busy meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::devices::DeviceMap;
use crate::timeline::{Thread, Timeline, union};
use crate::trace::{Collective, CollectiveGroup, Ns, Span};

/// What the collectives of one device say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCollectives {
    /// Stretches from a launch on this device to the last rank's, in order and apart; or why they are not
    /// known.
    pub waits: Result<Vec<Span>, Blind>,
    /// Operations that all ranks were seen to launch, on communicators that this device takes part in.
    pub operations: u64,
    /// Of those, how often each rank came last, and by how much: the most often first.
    pub last: Vec<Latecomer>,
}

/// Why the waits of a device's collectives are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blind {
    /// The communicator was made before the recording, so its ranks cannot be told.
    NoBirth,
    /// Some of its ranks were not seen: they run on other hosts, or in processes that are not watched.
    RanksElsewhere,
    /// On which device one of its ranks is, is not known.
    NoDevice,
}

/// A rank by how often the others waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latecomer {
    pub rank: u32,
    pub pid: u32,
    /// Operations it launched last.
    pub count: u64,
    /// From the first rank's launch to its own, over those.
    pub behind_ns: u64,
}

/// One rank's launch.
struct Launch {
    at: Ns,
    rank: u32,
    pid: u32,
    device: Option<u32>,
}

#[derive(Default)]
struct Communicator {
    ranks: u32,
    /// By sequence.
    operations: BTreeMap<u64, Vec<Launch>>,
    /// Devices that its ranks are on, or may be.
    devices: BTreeSet<u32>,
    unplaced: bool,
}

#[derive(Default)]
struct Device {
    waits: Vec<Span>,
    blind: Option<Blind>,
    operations: u64,
    last: BTreeMap<(u32, u32), (u64, u64)>,
}

/// The collectives of each device that has some, by NVML index.
#[must_use]
pub fn collectives(timeline: &Timeline, map: &DeviceMap) -> BTreeMap<u32, DeviceCollectives> {
    let mut devices: BTreeMap<u32, Device> = BTreeMap::new();
    let mut communicators: BTreeMap<u64, Communicator> = BTreeMap::new();
    for thread in timeline.threads.values() {
        for call in &thread.collectives {
            let on = map.of_call(thread, 0, Some(call.stream));
            let all = || timeline.devices.keys().copied().collect();
            let candidates = on.map_or_else(all, |on| on.devices.clone());
            match call.group {
                Some(group) => {
                    let communicator = communicators.entry(group.id).or_default();
                    communicator.take(thread, call, group, on.and_then(super::On::only));
                    communicator.devices.extend(candidates);
                }
                None => candidates.into_iter().for_each(|d| blind(&mut devices, d, Blind::NoBirth)),
            }
        }
    }
    for communicator in communicators.values() {
        communicator.add_to(&mut devices);
    }
    devices.into_iter().map(|(index, device)| (index, device.finish())).collect()
}

fn blind(devices: &mut BTreeMap<u32, Device>, device: u32, why: Blind) {
    let slot = &mut devices.entry(device).or_default().blind;
    *slot = (*slot).max(Some(why));
}

impl Communicator {
    fn take(&mut self, thread: &Thread, call: &Collective, group: CollectiveGroup, device: Option<u32>) {
        self.ranks = self.ranks.max(group.ranks);
        self.unplaced |= device.is_none();
        let launch = Launch { at: call.entry, rank: group.rank, pid: thread.pid, device };
        self.operations.entry(call.sequence).or_default().push(launch);
    }

    fn add_to(&self, devices: &mut BTreeMap<u32, Device>) {
        let launches = || self.operations.values().flatten();
        let seen: BTreeSet<u32> = launches().map(|l| l.rank).collect();
        let all = u32::try_from(seen.len()).is_ok_and(|n| n >= self.ranks);
        let why = match (all, self.unplaced) {
            (false, _) => Some(Blind::RanksElsewhere),
            (true, true) => Some(Blind::NoDevice),
            (true, false) => None,
        };
        if let Some(why) = why {
            return self.devices.iter().for_each(|&d| blind(devices, d, why));
        }
        for operation in self.operations.values() {
            self.add_operation(operation, devices);
        }
    }

    /// One that not every rank was seen to launch lies at an end of the recording, or was lost in part.
    fn add_operation(&self, operation: &[Launch], devices: &mut BTreeMap<u32, Device>) {
        let ranks: BTreeSet<u32> = operation.iter().map(|l| l.rank).collect();
        let whole = ranks.len() == operation.len() && u32::try_from(ranks.len()) == Ok(self.ranks);
        let first = operation.iter().map(|l| l.at).min();
        let last = operation.iter().max_by_key(|l| (l.at, std::cmp::Reverse(l.rank)));
        let (true, Some(first), Some(last)) = (whole, first, last) else { return };
        let mut on: BTreeSet<u32> = BTreeSet::new();
        for launch in operation {
            let Some(device) = launch.device else { continue };
            let slot = devices.entry(device).or_default();
            slot.waits.push(Span::new(launch.at, last.at));
            if on.insert(device) {
                slot.operations += 1;
                // Launches of one instant have no last.
                if last.at > first {
                    let late = slot.last.entry((last.rank, last.pid)).or_default();
                    *late = (late.0 + 1, late.1.saturating_add(last.at - first));
                }
            }
        }
    }
}

impl Device {
    fn finish(self) -> DeviceCollectives {
        let mut last: Vec<Latecomer> = self
            .last
            .into_iter()
            .map(|((rank, pid), (count, behind_ns))| Latecomer { rank, pid, count, behind_ns })
            .collect();
        last.sort_by_key(|l| (std::cmp::Reverse((l.count, l.behind_ns)), l.rank, l.pid));
        let waits = self.blind.map_or_else(|| Ok(union(self.waits)), Err);
        DeviceCollectives { waits, operations: self.operations, last }
    }
}
