//! Adds to the kernel side's records what only userspace knows: command lines, groups, paths, disk names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::mounts::Mounts;
use super::polled;
use super::process::{self, ProcessFacts};
use crate::trace::{BlockTotal, File, OffCpu, Polled, Record, TargetKind, ThreadExec, ThreadKey, ThreadSeen};

/// Processes and leaders remembered; past it the oldest ids are forgotten and read again.
const CAP: usize = 8192;
/// Epoll descriptors looked at: each costs a look at all connections.
const EPOLLS: usize = 256;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

/// Everything it remembers is bounded by what runs now, not by how long the recording runs.
#[derive(Debug)]
pub struct Enricher {
    own: Mounts,
    /// Mounts of targets in another mount namespace, by process.
    others: BTreeMap<u32, Mounts>,
    processes: BTreeMap<u32, ProcessFacts>,
    /// What was last said of each process's first thread, to be said again when it runs another program.
    leaders: BTreeMap<u32, ThreadSeen>,
    disks: BTreeMap<u32, String>,
    /// Epoll descriptors that were looked at, by process.
    polled: BTreeSet<(u32, u32)>,
    /// File systems nobody could place, so that mounts are read once a tick at most.
    reread: bool,
}

impl Enricher {
    #[must_use]
    pub fn new() -> Self {
        Self {
            own: Mounts::of("self"),
            others: BTreeMap::new(),
            processes: BTreeMap::new(),
            leaders: BTreeMap::new(),
            disks: BTreeMap::new(),
            polled: BTreeSet::new(),
            reread: true,
        }
    }

    /// Completes one record; an `exec` brings a second one with the new command line.
    pub fn enrich(&mut self, mut record: Record) -> (Record, Option<Record>) {
        let mut more = None;
        match &mut record {
            Record::Thread(thread) => self.thread(thread),
            Record::ThreadExec(exec) => more = self.exec(exec).map(Record::Thread),
            Record::ThreadExit(exit) if exit.key.tid == exit.pid => self.forget(exit.pid),
            Record::File(file) => self.file(file),
            Record::Block(block) => self.block(block),
            Record::OffCpu(off) => more = self.polled(off).map(Record::Polled),
            _ => {}
        }
        (record, more)
    }

    /// Once a tick: mounts may be read again, processes that ended are forgotten.
    pub fn tick(&mut self) {
        self.reread = true;
        if self.processes.len() > CAP / 2 || self.others.len() > CAP / 64 {
            self.processes.retain(|pid, facts| process::started(*pid) == Some(facts.key.start_ticks));
            let alive = &self.processes;
            self.others.retain(|pid, _| alive.contains_key(pid));
            self.leaders.retain(|pid, _| alive.contains_key(pid));
        }
    }

    fn thread(&mut self, thread: &mut ThreadSeen) {
        if thread.kind == TargetKind::Bystander {
            return;
        }
        if let Some(facts) = self.process(thread.pid) {
            if thread.ppid == 0 {
                thread.ppid = facts.ppid;
            }
            thread.kernel_thread |= facts.kernel_thread;
            thread.cgroups.clone_from(&facts.cgroups);
            thread.cmdline.clone_from(&facts.cmdline);
        }
        if thread.key.tid == thread.pid && self.leaders.len() < CAP {
            self.leaders.insert(thread.pid, thread.clone());
        }
    }

    fn exec(&mut self, exec: &ThreadExec) -> Option<ThreadSeen> {
        self.processes.remove(&exec.pid);
        let facts = self.process(exec.pid)?.clone();
        if facts.cmdline.is_empty() {
            // The new program's arguments are not in place yet: its threads' records ask again.
            self.processes.remove(&exec.pid);
        }
        // A thread that is not the first takes the first one's id when it runs another program.
        let leader = self.leaders.get_mut(&exec.pid)?;
        leader.at = exec.at;
        leader.comm.clone_from(&exec.comm);
        leader.key = ThreadKey { tid: exec.pid, ..leader.key };
        leader.cmdline = facts.cmdline;
        leader.cgroups = facts.cgroups;
        Some(leader.clone())
    }

    /// What a thread waits on by epoll, once for each descriptor.
    fn polled(&mut self, off: &OffCpu) -> Option<Polled> {
        let call = off.syscall.as_ref().filter(|c| Polled::CALLS.contains(&i64::from(c.nr)))?;
        let fd = u32::try_from(call.args[0]).ok()?;
        if self.polled.len() >= EPOLLS || !self.polled.insert((off.pid, fd)) {
            return None;
        }
        polled::read(off.left, off.pid, fd)
    }

    fn forget(&mut self, pid: u32) {
        self.polled.retain(|(of, _)| *of != pid);
        self.processes.remove(&pid);
        self.leaders.remove(&pid);
        self.others.remove(&pid);
    }

    fn process(&mut self, pid: u32) -> Option<&ProcessFacts> {
        if !self.processes.contains_key(&pid) {
            let facts = process::read(pid)?;
            if self.processes.len() >= CAP {
                self.processes.pop_first();
            }
            self.processes.insert(pid, facts);
        }
        self.processes.get(&pid)
    }

    fn file(&mut self, file: &mut File) {
        if !self.own.knows(file.dev) && self.reread {
            self.reread = false;
            self.own = Mounts::of("self");
            self.read_other_namespaces();
        }
        let all = std::iter::once(&self.own).chain(self.others.values());
        if let Some((mount, path)) = all.filter_map(|m| m.place(file.dev, &file.names)).next() {
            file.fs_type = Some(mount.fs_type.clone());
            file.mount = Some(mount.point.clone());
            // No names at all is the root of a file system, or a file whose names could not be read.
            if !file.names.is_empty() || file.mode & S_IFMT == S_IFDIR {
                file.path = path;
            }
        }
    }

    /// Containers see mounts that this process does not.
    fn read_other_namespaces(&mut self) {
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let mut seen = vec![namespace("self")];
        self.others.clear();
        for pid in self.processes.keys().take(CAP / 64) {
            let its = namespace(&pid.to_string());
            if its.is_some() && !seen.contains(&its) {
                seen.push(its);
                self.others.insert(*pid, Mounts::of(&pid.to_string()));
            }
        }
    }

    fn block(&mut self, block: &mut BlockTotal) {
        if block.name.is_empty() {
            block.name.clone_from(self.disks.entry(block.dev).or_insert_with(|| disk_name(block.dev)));
        }
    }
}

impl Default for Enricher {
    fn default() -> Self {
        Self::new()
    }
}

/// The kernel's name of a block device, empty if it has none.
fn disk_name(dev: u32) -> String {
    fs::read_link(format!("/sys/dev/block/{}:{}", dev >> 20, dev & 0xf_ffff))
        .ok()
        .and_then(|to| Some(to.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::fs::MetadataExt;

    fn seen(pid: u32, kind: TargetKind) -> ThreadSeen {
        ThreadSeen {
            at: 1,
            key: ThreadKey { tid: pid, start_ticks: 7 },
            pid,
            ppid: 0,
            comm: "x".into(),
            creator: None,
            born: None,
            kind,
            kernel_thread: false,
            cgroups: vec![],
            cmdline: vec![],
        }
    }

    fn thread(record: Record) -> ThreadSeen {
        match record {
            Record::Thread(t) => t,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn targets_get_their_command_line_and_bystanders_do_not() {
        let own = std::process::id();
        let mut enricher = Enricher::new();
        let t = thread(enricher.enrich(Record::Thread(seen(own, TargetKind::Named))).0);
        assert_eq!(t.ppid, rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs());
        assert!(t.cmdline[0].contains("whyidle"), "{t:?}");
        assert!(!t.cgroups.is_empty());
        let b = thread(enricher.enrich(Record::Thread(seen(own, TargetKind::Bystander))).0);
        assert_eq!(b, seen(own, TargetKind::Bystander));
    }

    #[test]
    fn exec_says_the_leader_again_with_its_new_name() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let mut enricher = Enricher::new();
        enricher.enrich(Record::Thread(seen(pid, TargetKind::Inherited)));
        let key = ThreadKey { tid: pid, start_ticks: 7 };
        let exec = ThreadExec { at: 9, key, pid, image: 1, comm: "sleep".into() };
        // `spawn` returns when the descriptors are closed, a moment before the arguments are in place.
        while process::read(pid).unwrap().cmdline.is_empty() {
            std::thread::yield_now();
        }
        let (_, more) = enricher.enrich(Record::ThreadExec(exec));
        child.kill().unwrap();
        child.wait().unwrap();
        let t = thread(more.expect("a second record"));
        assert_eq!((t.at, t.key, t.comm.as_str(), t.kind), (9, key, "sleep", TargetKind::Inherited));
        assert_eq!(t.cmdline, ["sleep", "60"]);
    }

    #[test]
    fn files_get_their_path_and_file_system() {
        let meta = fs::metadata("/proc/self/status").unwrap();
        let dev = rustix::fs::major(meta.st_dev()) << 20 | rustix::fs::minor(meta.st_dev());
        let names = ["status", "1"].map(str::to_owned).to_vec();
        let file = File { dev, names, ..File::default() };
        let (record, _) = Enricher::new().enrich(Record::File(file));
        let Record::File(file) = record else { panic!("{record:?}") };
        assert_eq!(file.path.as_deref(), Some("/proc/1/status"));
        assert_eq!(file.fs_type.as_deref(), Some("proc"));
    }

    #[test]
    fn an_unknown_disk_has_no_name() {
        assert_eq!(disk_name(0xfff << 20), "");
        let disks = fs::read_dir("/sys/dev/block").unwrap().flatten().next();
        if let Some(disk) = disks {
            let number = disk.file_name().into_string().unwrap();
            let (major, minor) = number.split_once(':').unwrap();
            let dev = major.parse::<u32>().unwrap() << 20 | minor.parse::<u32>().unwrap();
            assert!(!disk_name(dev).is_empty(), "{number}");
        }
    }
}
