//! Which mapping holds an address.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::trace::Mapping;

/// The mappings of one process. Where several held an address one after the other, the last holds.
#[derive(Debug, Default)]
pub(super) struct Ranges<'a> {
    /// By start: the end, and whose part this is. No two overlap.
    parts: BTreeMap<u64, (u64, &'a Mapping)>,
}

impl<'a> Ranges<'a> {
    pub(super) fn insert(&mut self, mapping: &'a Mapping) {
        if mapping.start >= mapping.end {
            return;
        }
        let below = self.parts.range(..mapping.start).next_back().map(|(start, _)| *start);
        let first = below.unwrap_or(mapping.start);
        let touched: Vec<_> = self.parts.range(first..mapping.end).map(|(s, (e, m))| (*s, *e, *m)).collect();
        for (start, end, old) in touched.into_iter().filter(|(_, end, _)| *end > mapping.start) {
            self.parts.remove(&start);
            if start < mapping.start {
                self.parts.insert(start, (mapping.start, old));
            }
            if end > mapping.end {
                self.parts.insert(mapping.end, (end, old));
            }
        }
        self.parts.insert(mapping.start, (mapping.end, mapping));
    }

    pub(super) fn find(&self, address: u64) -> Option<&'a Mapping> {
        let (_, (end, mapping)) =
            self.parts.range((Bound::Unbounded, Bound::Included(address))).next_back()?;
        (address < *end).then_some(*mapping)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_mapping_that_holds_an_address_is_found(spans in vec((0u64..40, 0u64..40), 0..12)) {
            let mappings: Vec<_> = spans
                .iter()
                .map(|(start, end)| Mapping {
                    image: 0,
                    at: 0,
                    pid: 1,
                    start: *start,
                    end: *end,
                    offset: 0,
                    path: String::new(),
                    build_id: Vec::new(),
                })
                .collect();
            let mut ranges = Ranges::default();
            mappings.iter().for_each(|m| ranges.insert(m));
            for address in 0..41 {
                let expected = mappings.iter().rfind(|m| (m.start..m.end).contains(&address));
                let found = ranges.find(address);
                prop_assert_eq!(found.map(std::ptr::from_ref), expected.map(std::ptr::from_ref));
            }
        }
    }
}
