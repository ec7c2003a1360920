//! Time, and the keys that other records refer to.

use serde::{Deserialize, Serialize};

/// A point in time, nanoseconds on `CLOCK_MONOTONIC`.
pub type Ns = u64;

/// A half-open stretch of time, `start <= end`, nanoseconds on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    pub start: Ns,
    pub end: Ns,
}

impl Span {
    #[must_use]
    pub fn new(start: Ns, end: Ns) -> Self {
        Self { start, end: end.max(start) }
    }

    /// Length in nanoseconds.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end == self.start
    }

    /// The common part, `None` where there is none or it is empty.
    #[must_use]
    pub fn intersect(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    #[must_use]
    pub fn contains(self, at: Ns) -> bool {
        self.start <= at && at < self.end
    }
}

/// Names one thread for good. Thread ids are reused, so the key carries the start time: the thread's
/// `start_boottime` in units of 10 ms, which is what both the kernel side and field 22 of
/// `/proc/<pid>/task/<tid>/stat` (in `USER_HZ`) can give. The idle task (tid 0) has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    pub tid: u32,
    pub start_ticks: u64,
}

/// 64-bit content hash of a stack's addresses; 0 means "none was taken".
pub type StackId = u64;

/// Names a file: `(s_dev, i_ino)` of its inode, plus the hash of its dentry names so that an inode number
/// used again under another name is another file. Resolved by [`Record::File`].
pub type FileId = u64;
