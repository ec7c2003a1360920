//! The target set: one byte a thread id, shared with the kernel side through mapped memory.

use std::fs;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use aya::Ebpf;
use aya::maps::Map;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tracer_ebpf::wire::pid_bits;

use super::CaptureError;
use super::rings::missing;
use crate::trace::{Ns, TargetKind, ThreadKey, ThreadSeen};

/// One more than the largest thread id of any kernel.
pub const IDS: usize = 1 << 22;

/// The `PIDS` map. Writing single bytes leaves neighbours alone, which an update by element would not.
#[derive(Debug)]
pub struct Pids {
    bytes: NonNull<AtomicU8>,
    // Keeps the map, and with it the memory, alive.
    _map: Map,
}

// SAFETY: the memory is shared with the kernel and only touched through atomics.
unsafe impl Send for Pids {}

impl Pids {
    /// # Errors
    /// The object has no such map, or it cannot be mapped.
    pub fn new(ebpf: &mut Ebpf) -> Result<Self, CaptureError> {
        let map = ebpf.take_map("PIDS").ok_or_else(|| missing("PIDS"))?;
        let Map::Array(data) = &map else { return Err(missing("PIDS")) };
        // SAFETY: a new mapping of the map's own size, chosen by the kernel.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                IDS,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                data.fd().as_fd(),
                0,
            )
        };
        let address = address.map_err(|e| CaptureError::Kernel {
            what: "mapping PIDS".into(),
            source: Box::new(std::io::Error::from(e)),
        })?;
        let bytes = NonNull::new(address.cast()).ok_or_else(|| missing("PIDS"))?;
        Ok(Self { bytes, _map: map })
    }

    fn byte(&self, tid: u32) -> Option<&AtomicU8> {
        // SAFETY: below the mapping's length, which lives as long as `self`.
        ((tid as usize) < IDS).then(|| unsafe { self.bytes.add(tid as usize).as_ref() })
    }

    /// Makes a thread a target; `false` if it was one.
    #[must_use]
    pub fn add(&self, tid: u32) -> bool {
        let bits = pid_bits::TARGET | pid_bits::NAMED;
        self.byte(tid).is_some_and(|b| b.fetch_or(bits, Ordering::Relaxed) & pid_bits::TARGET == 0)
    }

    /// Whether the thread has a row in the kernel side's table of Python threads.
    pub fn set_python(&self, tid: u32, has: bool) {
        if let Some(byte) = self.byte(tid) {
            if has {
                byte.fetch_or(pid_bits::PYTHON, Ordering::Relaxed);
            } else {
                byte.fetch_and(!pid_bits::PYTHON, Ordering::Relaxed);
            }
        }
    }

    #[must_use]
    pub fn contains(&self, tid: u32) -> bool {
        self.byte(tid).is_some_and(|b| b.load(Ordering::Relaxed) & pid_bits::TARGET != 0)
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nothing borrows it any more.
        if let Err(e) = unsafe { munmap(self.bytes.as_ptr().cast(), IDS) } {
            tracing::warn!(error = %e, "munmap");
        }
    }
}

/// What `/proc/<pid>/task/<tid>/stat` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub comm: String,
    pub state: char,
    pub ppid: u32,
    pub flags: u32,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub start_ticks: u64,
    pub cpu: u32,
}

impl Stat {
    /// Whether its saved registers are its own: not so for kernel threads (`PF_KTHREAD`) and for io_uring's and
    /// vhost's workers, which show their creator's system call.
    #[must_use]
    pub fn has_user(&self) -> bool {
        self.flags & (0x0020_0000 | 0x10 | 0x4000) == 0
    }
}

/// Parses a `stat` line. `comm` may hold blanks and parentheses, so it ends at the last one.
#[must_use]
pub fn parse_stat(line: &str) -> Option<Stat> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let comm = line.get(open + 1..close)?.to_owned();
    let rest: Vec<&str> = line.get(close + 1..)?.split_ascii_whitespace().collect();
    Some(Stat {
        comm,
        state: rest.first()?.chars().next()?,
        ppid: rest.get(1)?.parse().ok()?,
        flags: rest.get(6)?.parse().ok()?,
        minor_faults: rest.get(7)?.parse().ok()?,
        major_faults: rest.get(9)?.parse().ok()?,
        start_ticks: rest.get(19)?.parse().ok()?,
        cpu: rest.get(36).and_then(|c| c.parse().ok()).unwrap_or(0),
    })
}

#[must_use]
pub fn stat(pid: u32, tid: u32) -> Option<Stat> {
    let bytes = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// Likewise for the process: the state of its first thread, the faults of all, ended ones too.
#[must_use]
pub fn process_stat(pid: u32) -> Option<Stat> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Threads of a process, empty if it is gone.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut tids: Vec<u32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    tids
}

/// All processes.
#[must_use]
pub fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<u32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// The identity of a thread that is already there.
#[must_use]
pub fn identity(at: Ns, pid: u32, tid: u32, kind: TargetKind) -> Option<ThreadSeen> {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let stat = stat(pid, tid)?;
    Some(ThreadSeen {
        at,
        key: ThreadKey { tid, start_ticks: stat.start_ticks },
        pid,
        ppid: stat.ppid,
        comm: stat.comm,
        creator: None,
        born: None,
        kind,
        kernel_thread: stat.flags & PF_KTHREAD != 0,
        cgroups: Vec::new(),
        cmdline: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comm_may_hold_anything() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 17 1 0";
        let stat = parse_stat(line).expect("a stat line");
        assert_eq!(
            (stat.comm.as_str(), stat.state, stat.ppid, stat.start_ticks),
            ("a) b (c)", 'S', 7, 12345)
        );
        assert_eq!((stat.flags, stat.minor_faults, stat.major_faults), (4_194_560, 1, 3));
    }

    #[test]
    fn cut_lines_are_nothing() {
        for cut in ["", "1", "1 (x", "1 (x) S", ")(", "1 (x) S 7 42 42 0 -1"] {
            assert_eq!(parse_stat(cut), None, "{cut:?}");
        }
    }

    #[test]
    fn own_thread_is_found() {
        let pid = std::process::id();
        assert!(threads(pid).contains(&pid));
        assert!(processes().contains(&pid));
        let me = identity(5, pid, pid, TargetKind::Named).expect("own identity");
        assert_eq!((me.pid, me.key.tid, me.kernel_thread, me.at), (pid, pid, false, 5));
    }
}
