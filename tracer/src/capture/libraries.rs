//! When to look through a target's mappings for CUDA driver libraries: most load one late, if at all.

use std::collections::BTreeMap;

use crate::trace::Ns;

const FIRST: Ns = 200_000_000;
/// Reading a process's mappings takes a lock its own threads need, so quiet ones are asked seldom.
const SLOWEST: Ns = 8_000_000_000;

/// Processes to look at, each with its own pace: soon after its start, then half as often every time.
#[derive(Debug, Default)]
pub struct Libraries {
    paces: BTreeMap<u32, Pace>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    due: Ns,
    wait: Ns,
}

impl Libraries {
    /// A process that is new, or runs another program now.
    pub fn look_at(&mut self, pid: u32) {
        self.paces.insert(pid, Pace::default());
    }

    pub fn forget(&mut self, pid: u32) {
        self.paces.remove(&pid);
    }

    /// Processes whose mappings should be read now.
    pub fn due(&mut self, now: Ns) -> Vec<u32> {
        let mut due = Vec::new();
        for (pid, pace) in &mut self.paces {
            if pace.due <= now {
                pace.wait = (pace.wait * 2).clamp(FIRST, SLOWEST);
                pace.due = now + pace.wait;
                due.push(*pid);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_looked_at_soon_then_ever_more_seldom() {
        let mut libraries = Libraries::default();
        libraries.look_at(1);
        let looked: Vec<Ns> =
            (0..600).map(|t| t * 166_000_000).filter(|now| !libraries.due(*now).is_empty()).collect();
        assert_eq!(looked[0], 0);
        assert!(looked[1] <= 2 * FIRST);
        let gaps: Vec<Ns> = looked.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.is_sorted(), "{gaps:?}");
        assert!(*gaps.last().unwrap() <= SLOWEST + 166_000_000);
    }

    #[test]
    fn another_program_starts_over_and_a_gone_process_is_left_alone() {
        let mut libraries = Libraries::default();
        libraries.look_at(1);
        assert_eq!(libraries.due(0), [1]);
        assert_eq!(libraries.due(1), Vec::<u32>::new());
        libraries.look_at(1);
        assert_eq!(libraries.due(2), [1]);
        libraries.forget(1);
        assert_eq!(libraries.due(Ns::MAX / 2), Vec::<u32>::new());
    }
}
