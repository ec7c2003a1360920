//! Meetings: work of several streams, perhaps of several processes, that ends together some time after the
//! last of it has begun. A collective operation is one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::map::Timeline;

/// Names a meeting: who meets, and for which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub group: u64,
    pub sequence: u64,
}

impl Key {
    /// Never 0, which marks a free slot.
    fn word(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() | 1
    }
}

/// One party's arrival at a meeting.
#[derive(Debug)]
pub struct Meeting {
    slot: usize,
    parties: u32,
}

impl Timeline {
    /// Arrives at a meeting of `parties`, ready for it from `at` on.
    ///
    /// # Errors
    /// Too many are under way, or the file cannot be locked.
    pub fn arrive(&self, key: Key, parties: u32, at: u64) -> std::io::Result<Meeting> {
        let key = key.word();
        let slot = self.exclusively(|shared| {
            let with = |wanted: u64| shared.meetings.iter().position(|m| m.key.load(Relaxed) == wanted);
            let slot = with(key).or_else(|| with(0))?;
            let meeting = &shared.meetings[slot];
            meeting.key.store(key, Relaxed);
            meeting.latest.fetch_max(at, Relaxed);
            meeting.arrived.fetch_add(1, Release);
            Some(slot)
        })?;
        let slot = slot.ok_or_else(|| std::io::Error::other("too many meetings"))?;
        self.shared().arrivals.fetch_add(1, Release);
        // SAFETY: a word of the mapping, which outlives the call.
        unsafe {
            libc::syscall(libc::SYS_futex, self.shared().arrivals.as_ptr(), libc::FUTEX_WAKE, i32::MAX)
        };
        Ok(Meeting { slot, parties })
    }

    /// When the last party was ready, once all have arrived.
    #[must_use]
    pub fn met(&self, meeting: &Meeting) -> Option<u64> {
        let slot = &self.shared().meetings[meeting.slot];
        (slot.arrived.load(Acquire) >= meeting.parties).then(|| slot.latest.load(Acquire))
    }

    /// Goes from a meeting that has been; the last to go makes room.
    pub fn part(&self, meeting: Meeting) {
        let slot = &self.shared().meetings[meeting.slot];
        if slot.parted.fetch_add(1, Relaxed) + 1 == meeting.parties {
            slot.latest.store(0, Relaxed);
            slot.parted.store(0, Relaxed);
            slot.arrived.store(0, Relaxed);
            slot.key.store(0, Release);
        }
    }

    /// Arrivals so far at any meeting, for [`Self::wait_for_arrival`].
    #[must_use]
    pub fn arrivals(&self) -> u32 {
        self.shared().arrivals.load(Acquire)
    }

    /// Sleeps until there were more than `seen` arrivals, at most for `timeout`.
    pub fn wait_for_arrival(&self, seen: u32, timeout: Duration) {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: a word of the mapping and a valid time; every way to return is one to look again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.shared().arrivals.as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                &raw const timeout,
            )
        };
    }
}
