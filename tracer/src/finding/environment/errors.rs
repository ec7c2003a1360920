//! Did the device report errors?

use std::collections::BTreeMap;

use crate::cause::seconds;
use crate::timeline::DeviceTrack;
use crate::trace::{DeviceEventKind, Ns};

/// What the driver's error numbers mean, in NVIDIA's catalogue of them; the others are given by number.
const XIDS: &[(u64, &str, &str)] = &[
    (13, "an error in a kernel", "run it under compute-sanitizer"),
    (31, "a kernel used an address that is not mapped", "run it under compute-sanitizer"),
    (43, "the driver stopped a program's work after an error", "look at the program's own error"),
    (45, "work was dropped when its program ended", "look for an error before it"),
    (48, "an uncorrectable memory error", "reset the device; replace it if it comes again"),
    (63, "a memory row is being replaced", "reset the device when it is free"),
    (64, "a memory row could not be replaced", "reset the device; replace it if it comes again"),
    (74, "an NVLink error", "check the link's counters and its bridge"),
    (79, "the device has fallen off the bus", "look at power, cooling and the slot, and reboot"),
    (92, "many correctable memory errors", "have the device checked"),
    (94, "a contained memory error", "restart the program it hit"),
    (95, "a memory error that was not contained", "reset the device"),
    (119, "the device's own processor did not answer", "reset the device; update driver and firmware"),
    (120, "an error of the device's own processor", "reset the device; update driver and firmware"),
];

pub(super) fn words(track: &DeviceTrack, start: Ns) -> Vec<String> {
    let mut words = xids(track, start);
    let events = |kind| track.events.iter().filter(|event| event.kind == kind).count();
    let (single, double) = (events(DeviceEventKind::EccSingleBit), events(DeviceEventKind::EccDoubleBit));
    let first = track.states.iter().find(|state| state.ecc_uncorrected.is_some());
    let last = track.states.iter().rev().find(|state| state.ecc_uncorrected.is_some());
    if let Some((first, last)) = first.zip(last) {
        let grown = |of: fn(&crate::trace::DeviceState) -> Option<u64>| {
            (of(last).unwrap_or(0), of(last).unwrap_or(0).saturating_sub(of(first).unwrap_or(0)))
        };
        let (uncorrected, new) = grown(|state| state.ecc_uncorrected);
        if uncorrected > 0 {
            words.push(format!(
                "{uncorrected} uncorrected memory errors since the driver was loaded, {new} of them in this recording \
                 (reset the device; replace it if they come again)"
            ));
        }
        let (_, new) = grown(|state| state.ecc_corrected);
        if new > 0 {
            words.push(format!(
                "{new} corrected memory errors in this recording (they cost little; watch them)"
            ));
        }
    } else if single + double > 0 {
        words.push(format!("{double} uncorrected and {single} corrected memory errors in this recording"));
    }
    words
}

/// Each number once, with how often and when first.
fn xids(track: &DeviceTrack, start: Ns) -> Vec<String> {
    let mut seen: BTreeMap<u64, (usize, Ns)> = BTreeMap::new();
    for event in track.events.iter().filter(|event| event.kind == DeviceEventKind::Xid) {
        let slot = seen.entry(event.value).or_insert((0, event.at));
        slot.0 += 1;
        slot.1 = slot.1.min(event.at);
    }
    seen.into_iter()
        .map(|(number, (count, at))| {
            let known = XIDS.iter().find(|row| row.0 == number);
            let (meaning, remedy) = known
                .map_or(("see NVIDIA's list of Xid errors", "look in the kernel log"), |row| (row.1, row.2));
            let times = if count == 1 { String::new() } else { format!("{count} times, first ") };
            let after = seconds(at.saturating_sub(start));
            format!("Xid {number} {times}after {after}: {meaning} ({remedy})")
        })
        .collect()
}
