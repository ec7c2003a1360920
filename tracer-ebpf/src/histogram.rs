//! Latency histograms: bucket i counts latencies of `[2^i, 2^(i+1))` microseconds, those under 2 us in bucket 0.

use crate::atomic;

/// # Safety
/// `histogram` is the first of `BUCKETS` aligned words of a live map element.
#[inline(always)]
pub unsafe fn count<const BUCKETS: usize>(histogram: *mut [u64; BUCKETS], ns: u64) {
    let mut bucket = 0;
    let mut rest = ns / 2000;
    for _ in 0..BUCKETS - 1 {
        if rest == 0 {
            break;
        }
        rest >>= 1;
        bucket += 1;
    }
    if bucket < BUCKETS {
        // SAFETY: by contract, and the index is held below the length.
        unsafe { atomic::add(histogram.cast::<u64>().add(bucket), 1) };
    }
}
