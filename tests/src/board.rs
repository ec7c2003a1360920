//! Words that a test and the processes it forks share.

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 64;

/// Zeros until set. Stays mapped for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct Board(&'static [AtomicU64; WORDS]);

impl Board {
    #[expect(clippy::new_without_default, reason = "it maps memory")]
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: a fresh shared mapping of zeros, which is valid for atomics; never unmapped.
        unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                size_of::<[AtomicU64; WORDS]>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(address, libc::MAP_FAILED);
            Self(&*address.cast())
        }
    }

    pub fn set(&self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::SeqCst);
    }

    #[must_use]
    pub fn get(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::SeqCst)
    }
}
