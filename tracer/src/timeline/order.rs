//! Puts records in an order that does not depend on the order they came in.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::trace::{Ns, Reading, Span};

/// Sorts by time, then by content, and drops exact duplicates.
pub(super) fn order<T: Serialize>(records: &mut Vec<T>, at: impl Fn(&T) -> Ns) {
    records.sort_by(|a, b| at(a).cmp(&at(b)).then_with(|| content(a).cmp(&content(b))));
    records.dedup_by(|a, b| at(a) == at(b) && content(a) == content(b));
}

/// A record's bytes: unlike `==`, the same for a NaN and itself.
pub(super) fn content<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_stdvec(record).unwrap_or_default()
}

/// Keeps the larger content, so that which of two contradictory records came first does not matter.
pub(super) fn keep<T: Serialize>(slot: &mut Option<T>, record: T) {
    if slot.as_ref().is_none_or(|kept| content(kept) < content(&record)) {
        *slot = Some(record);
    }
}

/// As [`keep`], in a map.
pub(super) fn keep_in<K: Ord, T: Serialize>(map: &mut BTreeMap<K, T>, key: K, record: T) {
    match map.get_mut(&key) {
        Some(kept) if content(kept) >= content(&record) => {}
        Some(kept) => *kept = record,
        None => {
            map.insert(key, record);
        }
    }
}

/// Device windows in order; one that overlaps the one ahead begins at its end.
pub(super) fn in_order(mut readings: Vec<Reading>) -> Vec<Reading> {
    order(&mut readings, |r| r.span.start);
    let mut cursor = 0;
    readings.retain_mut(|r| {
        r.span = Span::new(r.span.start.max(cursor), r.span.end.max(cursor));
        cursor = cursor.max(r.span.end);
        !r.span.is_empty()
    });
    readings
}
