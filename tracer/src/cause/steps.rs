//! Steps of a job: the period in which its feeding thread waits for the device.

use crate::timeline::Thread;
use crate::trace::{CudaFamily, Ns, Span, StackId};

/// Synchronise calls that one step may have.
const MOST_CALLS: usize = 16;
/// Share of the calls, in percent, that have to repeat what stood one period before.
const REPEATED_PERCENT: usize = 90;
/// Fewer calls than this many periods show none.
const LEAST_PERIODS: usize = 3;

/// When each step of `thread` first waited for the device, in order; empty where no period is seen. A step may
/// synchronise several times, from different places: what repeats is the sequence of places.
pub(crate) fn steps(thread: &Thread, window: Span) -> Vec<Ns> {
    let inside = |at: Ns| window.start <= at && at < window.end;
    let calls = thread.calls.iter().filter(|c| c.family == CudaFamily::Synchronize && inside(c.entry));
    let (times, places): (Vec<Ns>, Vec<StackId>) = calls.map(|c| (c.entry, c.user_stack)).unzip();
    match period(&places) {
        Some(period) => times.into_iter().step_by(period).collect(),
        None => Vec::new(),
    }
}

/// The smallest distance at which a sequence repeats itself.
fn period(places: &[StackId]) -> Option<usize> {
    (1..=MOST_CALLS.min(places.len() / LEAST_PERIODS)).find(|&p| {
        let same = places.iter().zip(&places[p..]).filter(|(a, b)| a == b).count();
        same * 100 >= (places.len() - p) * REPEATED_PERCENT
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn calls_from_one_place_are_a_step_each() {
        assert_eq!(period(&[7; 9]), Some(1));
        assert_eq!(period(&[7, 7]), None);
    }

    #[test]
    fn places_in_turn_are_one_step() {
        assert_eq!(period(&[1, 2, 3, 1, 2, 3, 1, 2, 3]), Some(3));
        assert_eq!(period(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), None);
    }

    #[test]
    fn an_odd_one_out_does_not_hide_it() {
        let mut places: Vec<StackId> = [1, 2].repeat(30);
        places[20] = 9;
        assert_eq!(period(&places), Some(2));
    }

    proptest! {
        #[test]
        fn what_repeats_is_found(step in proptest::collection::vec(0..4_u64, 1..10), times in 3..20_usize) {
            let places = step.repeat(times);
            let found = period(&places).unwrap();
            prop_assert!(found <= step.len());
        }
    }
}
