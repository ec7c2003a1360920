//! How a host thread waits for the device, by the context's scheduling flags.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use gpu_sim_timeline::clock;
use libc::c_uint;

use crate::driver::Driver;
use crate::queue::{Mark, settle};

/// `CU_CTX_SCHED_MASK` and two of its values; automatic and unknown ones spin.
const SCHEDULE: c_uint = 7;
const YIELD: c_uint = 2;
const BLOCKING: c_uint = 4;

/// Returns once the device's clock has reached `end`.
pub(crate) fn wait_until(end: u64, flags: c_uint) {
    match flags & SCHEDULE {
        BLOCKING => TIMER.with(|timer| match timer {
            Some(timer) => {
                while clock::now() < end {
                    arm(timer, end);
                    sleep(timer);
                }
            }
            None => wait_until(end, YIELD),
        }),
        schedule => {
            while clock::now() < end {
                pause(schedule);
            }
        }
    }
}

/// Returns once the mark is reached.
pub(crate) fn wait_for(driver: &'static Driver, mark: &Mark, flags: c_uint) {
    loop {
        if let Some(&end) = mark.get() {
            return wait_until(end, flags);
        }
        match (flags & SCHEDULE, TIMER.with(Clone::clone)) {
            (BLOCKING, Some(timer)) => {
                arm(&timer, 0);
                let mut objects = driver.objects();
                // What goes wrong here is for the submits to report.
                settle(driver, &mut objects).ok();
                if mark.get().is_none() {
                    objects.waiters.push(Waiter { mark: Arc::clone(mark), timer: Arc::clone(&timer) });
                    drop(objects);
                    sleep(&timer);
                }
            }
            (schedule, _) => {
                settle(driver, &mut driver.objects()).ok();
                pause(schedule);
            }
        }
    }
}

fn pause(schedule: c_uint) {
    if schedule == YIELD {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// A thread that sleeps until a mark is reached whose time is not known yet.
#[derive(Debug)]
pub(crate) struct Waiter {
    mark: Mark,
    timer: Arc<OwnedFd>,
}

impl Waiter {
    /// Has an interrupt wake it in time, if the time is known.
    pub(crate) fn wake(&self) -> bool {
        let Some(&end) = self.mark.get() else { return false };
        arm(&self.timer, end.max(1));
        true
    }
}

thread_local! {
    static TIMER: Option<Arc<OwnedFd>> = timer().map(Arc::new);
}

fn timer() -> Option<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    // SAFETY: a descriptor just opened, owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// 0: never.
fn arm(timer: &OwnedFd, end: u64) {
    let at = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec {
            tv_sec: (end / 1_000_000_000).cast_signed(),
            tv_nsec: (end % 1_000_000_000).cast_signed(),
        },
    };
    // SAFETY: an open timer and a valid time; the old value is not asked for.
    unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &raw const at, std::ptr::null_mut())
    };
}

/// Sleeps in `poll` on a descriptor that an interrupt makes readable, which is what a blocking synchronise
/// looks like from outside.
fn sleep(timer: &OwnedFd) {
    let mut poll = libc::pollfd { fd: timer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
}
