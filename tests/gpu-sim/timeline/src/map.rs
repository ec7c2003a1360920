//! Opens, makes and maps the shared file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

use crate::clock;
use crate::layout::{DEVICES, MAGIC, Shared};

/// The mapped file. Several may map the same one, in one process or in many.
#[derive(Debug)]
pub struct Timeline {
    shared: NonNull<Shared>,
    file: File,
    /// `flock` does not exclude threads that share a descriptor.
    threads: Mutex<()>,
}

// SAFETY: everything behind the pointer is an atomic, and the mapping lives as long as the value.
unsafe impl Send for Timeline {}
// SAFETY: as above.
unsafe impl Sync for Timeline {}

impl Timeline {
    /// Maps `path`, making it with `devices` devices where it is missing or empty.
    ///
    /// # Errors
    /// It cannot be opened or mapped, or holds something else.
    pub fn open(path: &Path, devices: u32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let held = Flock::exclusive(&file)?;
        let size = size_of::<Shared>() as u64;
        match file.metadata()?.len() {
            0 => file.set_len(size)?,
            found if found == size => {}
            found => return Err(io::Error::other(format!("{} bytes, not a simulated device", found))),
        }
        let timeline = Self { shared: map(&file)?, file: file.try_clone()?, threads: Mutex::new(()) };
        let shared = timeline.shared();
        match shared.magic.load(Acquire) {
            MAGIC => {}
            0 => {
                shared.devices.store(devices.clamp(1, DEVICES as u32), Relaxed);
                shared.created.store(clock::now(), Relaxed);
                shared.realtime_offset.store(clock::offset_from_monotonic(libc::CLOCK_REALTIME), Relaxed);
                shared.boottime_offset.store(clock::offset_from_monotonic(libc::CLOCK_BOOTTIME), Relaxed);
                shared.magic.store(MAGIC, Release);
            }
            _ => return Err(io::Error::other("not a simulated device, or of another version")),
        }
        drop(held);
        Ok(timeline)
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: mapped for the life of `self`, of this size, and every field is an atomic.
        unsafe { self.shared.as_ref() }
    }

    #[must_use]
    pub fn devices(&self) -> u32 {
        self.shared().devices.load(Relaxed).min(DEVICES as u32)
    }

    /// When the file was made.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.shared().created.load(Relaxed)
    }

    /// Moves a monotonic time onto `clock` by the offset found when the file was made.
    #[must_use]
    pub fn on_clock(&self, clock: libc::clockid_t, monotonic: u64) -> u64 {
        let offset = match clock {
            libc::CLOCK_REALTIME => self.shared().realtime_offset.load(Relaxed),
            libc::CLOCK_BOOTTIME => self.shared().boottime_offset.load(Relaxed),
            _ => 0,
        };
        monotonic.saturating_add_signed(offset)
    }

    /// Runs `change` while no other process or thread changes who owns what. The kernel lets go of the
    /// lock when its holder is killed.
    pub(crate) fn exclusively<T>(&self, change: impl FnOnce(&Shared) -> T) -> io::Result<T> {
        let _threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let _processes = Flock::exclusive(&self.file)?;
        Ok(change(self.shared()))
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), size_of::<Shared>()) };
    }
}

fn map(file: &File) -> io::Result<NonNull<Shared>> {
    // SAFETY: a fresh shared mapping of a file that has this size; the kernel chooses the address.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

struct Flock<'file>(&'file File);

impl<'file> Flock<'file> {
    fn exclusive(file: &'file File) -> io::Result<Self> {
        loop {
            // SAFETY: a plain system call on an open descriptor.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0 {
                return Ok(Self(file));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Flock<'_> {
    fn drop(&mut self) {
        // SAFETY: a plain system call on an open descriptor.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}
