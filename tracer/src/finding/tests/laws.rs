//! What holds of any report.

use proptest::prelude::*;

use super::*;
use crate::idle::{DeviceMap, feeders, place};
use crate::timeline::arbitrary::records;

proptest! {
    #[test]
    fn parts_never_exceed_what_they_are_parts_of(records in records()) {
        let timeline = build(records);
        let devices: Vec<_> = place(&timeline, None)
            .into_iter()
            .map(|idle| {
                let ledger = attribute(&timeline, &idle);
                (idle, ledger)
            })
            .collect();
        for gpu in report(&timeline, &devices).gpus {
            prop_assert_eq!(gpu.causes.iter().map(|c| c.ns).sum::<u64>(), gpu.idle_ns);
            prop_assert!(gpu.collective_ns.is_none_or(|ns| ns <= gpu.busy_ns));
            prop_assert_eq!(gpu.collective_ns.is_some(),
                gpu.collectives.as_ref().is_some_and(|c| c.unknown_reason.is_none()));
            let unwatched = gpu.unwatched;
            prop_assert!(unwatched.no_calls_ns + unwatched.no_launches_ns + unwatched.extrapolated_ns <= gpu.idle_ns);
            if let Some(told) = gpu.launches {
                prop_assert!(told.watched_ns <= gpu.window_ns);
                prop_assert!(told.silences.iter().map(|s| s.ns).sum::<u64>() <= told.watched_ns);
                prop_assert!(told.host_ahead_ns.is_none_or(|ns| ns <= gpu.window_ns));
            }
            if let Some(told) = gpu.copies {
                prop_assert!(told.with_compute_ns <= told.in_calls_ns && told.in_calls_ns <= gpu.window_ns);
                prop_assert!(told.mean_gap_ns <= told.longest_gap_ns);
            }
        }
    }

    #[test]
    fn what_is_known_of_a_threads_devices_splits_its_launches_without_loss(records in records()) {
        let timeline = build(records);
        let map = DeviceMap::new(&timeline);
        let sum = |submits: &[crate::trace::Submits]| {
            submits.iter().fold(0_u64, |n, s| n.saturating_add(s.launches))
        };
        for thread in timeline.threads.values() {
            let Some(on) = map.of_thread(thread).filter(|on| !on.inferred && !on.devices.is_empty()) else { continue };
            let parts: Vec<_> = on.devices.iter().flat_map(|&d| feeders(&timeline, &map, d).0).collect();
            let parts = parts.iter().filter(|t| t.key == thread.key);
            let split = parts.fold(0_u64, |n, t| n.saturating_add(sum(&t.submits)));
            prop_assert_eq!(split, sum(&thread.submits));
        }
    }
}
