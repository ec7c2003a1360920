//! Counts what a device gave that cannot be: by class, for the trace.

use crate::trace::{Counter, Ns, Record};

/// How many so far of each class. Their time is unknown, never idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Garbage {
    /// Percentages below 0 or above 100.
    pub(super) over: u64,
    /// Stamps behind an earlier one.
    pub(super) backward: u64,
    /// Stamps later than the driver's clock.
    pub(super) future: u64,
    /// Stamps that came before.
    pub(super) duplicate: u64,
}

impl Garbage {
    /// Counters of the classes that grew since `before`.
    pub(super) fn counters(self, before: Self, device: u32, at: Ns) -> Vec<Record> {
        [
            ("not_a_percentage", self.over, before.over),
            ("stamp_backward", self.backward, before.backward),
            ("stamp_in_the_future", self.future, before.future),
            ("stamp_twice", self.duplicate, before.duplicate),
        ]
        .into_iter()
        .filter(|(_, now, before)| now > before)
        .map(|(class, value, _)| {
            Record::Counter(Counter { at, name: format!("gpu{device}_samples_{class}"), value })
        })
        .collect()
    }
}

/// The percentage, if it is one.
pub(super) fn percent(value: f64, over: &mut u64) -> Option<f64> {
    let fits = (0.0..=100.0).contains(&value);
    *over += u64::from(!fits);
    fits.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_grew_is_written() {
        let before = Garbage { over: 2, future: 1, ..Garbage::default() };
        let now = Garbage { over: 3, future: 1, duplicate: 1, ..Garbage::default() };
        let records = now.counters(before, 4, 9);
        let names: Vec<_> = records
            .iter()
            .map(|record| match record {
                Record::Counter(counter) => (counter.name.as_str(), counter.value, counter.at),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, [("gpu4_samples_not_a_percentage", 3, 9), ("gpu4_samples_stamp_twice", 1, 9)]);
    }

    #[test]
    fn what_is_no_percentage_has_no_value_and_is_counted() {
        let mut over = 0;
        let given = [0.0, 100.0, -1.0, 100.5, f64::NAN, f64::INFINITY];
        let values: Vec<_> = given.into_iter().map(|value| percent(value, &mut over)).collect();
        assert_eq!(values, [Some(0.0), Some(100.0), None, None, None, None]);
        assert_eq!(over, 4);
    }
}
