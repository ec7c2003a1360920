//! How a host thread waits for the device, by the context's scheduling flags.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use gpu_sim_timeline::clock;
use libc::c_uint;

/// `CU_CTX_SCHED_MASK` and two of its values; automatic and unknown ones spin.
const SCHEDULE: c_uint = 7;
const YIELD: c_uint = 2;
const BLOCKING: c_uint = 4;

/// Returns once the device's clock has reached `end`.
pub(crate) fn wait_until(end: u64, flags: c_uint) {
    match flags & SCHEDULE {
        BLOCKING => block_until(end),
        YIELD => {
            while clock::now() < end {
                std::thread::yield_now();
            }
        }
        _ => {
            while clock::now() < end {
                std::hint::spin_loop();
            }
        }
    }
}

thread_local! {
    static TIMER: Option<OwnedFd> = timer();
}

fn timer() -> Option<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    // SAFETY: a descriptor just opened, owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sleeps in `poll` on a descriptor that an interrupt makes readable, which is what a blocking synchronise
/// looks like from outside.
fn block_until(end: u64) {
    TIMER.with(|timer| {
        let Some(timer) = timer else { return wait_until(end, YIELD) };
        let at = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: (end / 1_000_000_000).cast_signed(),
                tv_nsec: (end % 1_000_000_000).cast_signed(),
            },
        };
        while clock::now() < end {
            // SAFETY: an open timer and a valid time; the old value is not asked for.
            unsafe {
                libc::timerfd_settime(
                    timer.as_raw_fd(),
                    libc::TFD_TIMER_ABSTIME,
                    &raw const at,
                    std::ptr::null_mut(),
                )
            };
            let mut poll = libc::pollfd { fd: timer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&raw mut poll, 1, -1) };
        }
    });
}
