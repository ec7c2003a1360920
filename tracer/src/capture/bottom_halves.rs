//! Kernel threads of the NVIDIA memory manager that serve page faults of a GPU: their run time is the sign of
//! managed memory that moves back and forth, since such faults are no system calls.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::trace::{Counter, Ns};

/// Between two looks for new ones.
const LOOK: Ns = 1_000_000_000;
/// `kthreadd`, the parent of kernel threads.
const KTHREADD: u32 = 2;

/// The threads found so far. Counters are named as the threads are, with their run time since they were born.
#[derive(Debug)]
pub struct BottomHalves {
    proc: PathBuf,
    ns_per_tick: u64,
    /// By thread id.
    found: BTreeMap<u32, Found>,
    /// Kernel threads that are none.
    others: HashSet<u32>,
    looked: Option<Ns>,
}

#[derive(Debug)]
struct Found {
    comm: String,
    ran_ns: Option<u64>,
}

impl Default for BottomHalves {
    fn default() -> Self {
        Self::new(Path::new("/proc"))
    }
}

impl BottomHalves {
    fn new(proc: &Path) -> Self {
        let ns_per_tick = 1_000_000_000u64.checked_div(rustix::param::clock_ticks_per_second());
        Self {
            proc: proc.to_owned(),
            ns_per_tick: ns_per_tick.unwrap_or(10_000_000),
            found: BTreeMap::new(),
            others: HashSet::new(),
            looked: None,
        }
    }

    /// Call every tick: the run time of each that is new or has run since the last time.
    pub fn tick(&mut self, at: Ns) -> Vec<Counter> {
        if self.looked.is_none_or(|looked| at >= looked.saturating_add(LOOK)) {
            self.looked = Some(at);
            self.look();
        }
        let mut counters = Vec::new();
        let (proc, ns_per_tick) = (&self.proc, self.ns_per_tick);
        self.found.retain(|tid, thread| {
            let Some(ran) = ran_ns(proc, *tid, ns_per_tick) else { return false };
            if thread.ran_ns != Some(ran) {
                thread.ran_ns = Some(ran);
                counters.push(Counter { at, name: thread.comm.clone(), value: ran });
            }
            true
        });
        counters
    }

    fn look(&mut self) {
        // Without the memory manager there is none to look for.
        let devices = fs::read_to_string(self.proc.join("devices")).unwrap_or_default();
        if !devices.lines().any(|l| l.trim().ends_with(" nvidia-uvm")) {
            return;
        }
        let children = self.proc.join(format!("{KTHREADD}/task/{KTHREADD}/children"));
        let threads: HashSet<u32> = match fs::read_to_string(children) {
            Ok(list) => list.split_ascii_whitespace().filter_map(|tid| tid.parse().ok()).collect(),
            // Kernels without that file: every process is looked at once.
            Err(_) => fs::read_dir(&self.proc)
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .collect(),
        };
        self.others.retain(|tid| threads.contains(tid));
        for tid in threads {
            if self.others.contains(&tid) || self.found.contains_key(&tid) {
                continue;
            }
            let comm = fs::read_to_string(self.proc.join(format!("{tid}/comm"))).unwrap_or_default();
            let comm = comm.trim_end().to_owned();
            if comm.starts_with("UVM GPU") && comm.ends_with(" BH") {
                self.found.insert(tid, Found { comm, ran_ns: None });
            } else {
                self.others.insert(tid);
            }
        }
    }
}

/// Time on a processor; `None` once it is gone. To the nanosecond where the kernel keeps scheduling statistics,
/// else in clock ticks.
fn ran_ns(proc: &Path, tid: u32, ns_per_tick: u64) -> Option<u64> {
    let exact = fs::read_to_string(proc.join(format!("{tid}/schedstat"))).unwrap_or_default();
    if let Some(ns) =
        exact.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).filter(|ns| *ns > 0)
    {
        return Some(ns);
    }
    let stat = fs::read_to_string(proc.join(format!("{tid}/stat"))).ok()?;
    // The name may hold anything; behind its last parenthesis come the state (field 3) and numbers.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user.saturating_add(system).saturating_mul(ns_per_tick))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(proc: &Path, tid: u32, comm: &str, ticks: u64) {
        let folder = proc.join(tid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        let stat = format!("{tid} ({comm}) S 2 0 0 0 -1 2129984 0 0 0 0 1 {ticks} 0 0 20 0 1 0 7 0 0");
        fs::write(folder.join("stat"), stat).unwrap();
    }

    #[test]
    fn bottom_halves_are_found_by_name_and_told_when_they_ran() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        fs::write(proc.join("devices"), "Character devices:\n195 nvidia\n511 nvidia-uvm\n").unwrap();
        thread(proc, 50, "UVM GPU1 BH", 3);
        thread(proc, 51, "UVM GPU1 KC", 9);
        thread(proc, 52, "a) R 1", 9);
        let mut halves = BottomHalves::new(proc);
        let values = |counters: Vec<Counter>| -> Vec<(String, u64)> {
            counters.into_iter().map(|c| (c.name, c.value / halves_tick())).collect()
        };
        assert_eq!(values(halves.tick(0)), [("UVM GPU1 BH".to_owned(), 4)]);
        assert_eq!(values(halves.tick(1)), [], "it has not run since");
        thread(proc, 50, "UVM GPU1 BH", 8);
        thread(proc, 60, "UVM GPU2 BH", 1);
        assert_eq!(values(halves.tick(2)), [("UVM GPU1 BH".to_owned(), 9)], "not looked yet");
        assert_eq!(values(halves.tick(2 + LOOK)), [("UVM GPU2 BH".to_owned(), 2)]);
        fs::remove_dir_all(proc.join("50")).unwrap();
        assert_eq!(values(halves.tick(3 + LOOK)), []);
    }

    fn halves_tick() -> u64 {
        1_000_000_000 / rustix::param::clock_ticks_per_second()
    }

    #[test]
    fn without_the_memory_manager_nothing_is_read() {
        let proc = tempfile::tempdir().unwrap();
        thread(proc.path(), 50, "UVM GPU1 BH", 3);
        assert_eq!(BottomHalves::new(proc.path()).tick(0), []);
    }
}
