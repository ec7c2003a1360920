//! Atomic addition without the old value: the one atomic that kernels before 5.12 have, and that `core` does
//! not offer for this target.

/// # Safety
/// `counter` is an aligned word of a live map element.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, by: u64) {
    // SAFETY: by contract.
    unsafe {
        core::arch::asm!("lock *(u64 *)({counter} + 0) += {by}", counter = in(reg) counter, by = in(reg) by);
    }
}
