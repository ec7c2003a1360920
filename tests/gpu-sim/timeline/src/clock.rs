//! The clocks a driver may stamp its samples with.

/// Reads a clock in nanoseconds.
#[must_use]
pub fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    assert!(!failed, "clock {clock} cannot be read");
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Now on `CLOCK_MONOTONIC`, the clock of every time in the shared file.
#[must_use]
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// What must be added to a `CLOCK_MONOTONIC` time to have it on `clock`.
#[must_use]
pub fn offset_from_monotonic(clock: libc::clockid_t) -> i64 {
    if clock == libc::CLOCK_MONOTONIC {
        return 0;
    }
    // The tightest of a few brackets, so that being preempted in between does not count.
    (0..8)
        .map(|_| {
            let before = now();
            let there = read(clock);
            let after = now();
            (after - before, there.wrapping_sub(before + (after - before) / 2).cast_signed())
        })
        .min()
        .map_or(0, |(_, offset)| offset)
}
