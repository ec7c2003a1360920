//! What callers allocate: GPM samples and event sets, by number.

use std::collections::BTreeMap;

use crate::events::EventSet;
use crate::gpm::Taken;

#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Empty until one is taken.
    pub(crate) samples: BTreeMap<usize, Option<Taken>>,
    pub(crate) sets: BTreeMap<usize, EventSet>,
    last: usize,
}

impl Objects {
    fn number(&mut self) -> usize {
        self.last += 1;
        // Numbers that no pointer has, so that a wrong one is an error.
        0x6700 + self.last
    }

    pub(crate) fn add_sample(&mut self) -> usize {
        let number = self.number();
        self.samples.insert(number, None);
        number
    }

    pub(crate) fn add_set(&mut self) -> usize {
        let number = self.number();
        self.sets.insert(number, EventSet::new());
        number
    }
}
