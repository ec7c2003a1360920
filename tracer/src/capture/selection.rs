//! Which processes are watched: what the user named, looked up again while recording.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::process::{self, Id};
use super::{cgroup, holders};

/// How targets are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    Pids(Vec<u32>),
    /// A group's folder under `/sys/fs/cgroup`.
    Cgroup(PathBuf),
    /// Whatever NVML lists and whoever holds an NVIDIA device node.
    GpuProcesses,
    /// Every thread on the host.
    All,
    /// A command started for it, added when it runs.
    Command,
}

/// Why nothing can be watched. Each has its own exit status (`cli::exit`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("no process {0}: it has ended, or never was; `ps -e` lists those that run")]
    NoProcess(u32),
    #[error("{tid} is a thread of process {pid} ({comm}), not a process: use --pid {pid}")]
    Thread { tid: u32, pid: u32, comm: String },
    #[error("process {0} is whyidle itself, which is never traced: name another")]
    Own(u32),
    #[error(
        "{0}: no control group: name its folder under /sys/fs/cgroup, or its path as in /proc/PID/cgroup"
    )]
    NoCgroup(PathBuf),
    #[error(
        "no process uses a GPU here (NVML lists none, nobody holds /dev/nvidia*): start the job first, \
         or use `whyidle run -- COMMAND` or `whyidle record --pid PID`"
    )]
    NoGpuProcess,
}

/// The processes watched so far.
#[derive(Debug)]
pub struct Targets {
    selection: Selection,
    majors: Vec<u32>,
    /// Start time by process id, so that an id used again is another process.
    known: BTreeMap<u32, u64>,
}

impl Selection {
    /// Finds what the selection means now.
    ///
    /// # Errors
    /// A named process or group that is not there. GPU processes are not looked for here: see
    /// [`Targets::new_processes`].
    pub fn check(&self) -> Result<Self, TargetError> {
        match self {
            Self::Pids(pids) => {
                pids.iter().try_for_each(|pid| check_pid(*pid))?;
                Ok(self.clone())
            }
            Self::Cgroup(path) => find_cgroup(path).map(Self::Cgroup),
            Self::GpuProcesses | Self::All | Self::Command => Ok(self.clone()),
        }
    }

    /// As the user would write it.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Pids(pids) => pids.iter().map(|p| format!("--pid {p}")).collect::<Vec<_>>().join(" "),
            Self::Cgroup(path) => format!("--cgroup {}", path.display()),
            Self::GpuProcesses => "--gpu-procs".into(),
            Self::All => "--all".into(),
            Self::Command => "run".into(),
        }
    }
}

impl Targets {
    #[must_use]
    pub fn new(selection: Selection, majors: Vec<u32>) -> Self {
        Self { selection, majors, known: BTreeMap::new() }
    }

    /// Processes that belong to the selection and are not watched yet; `listed` are those of NVML's list.
    pub fn new_processes(&mut self, listed: &[u32]) -> Vec<u32> {
        let now = match &self.selection {
            Selection::Pids(pids) => pids.clone(),
            Selection::Cgroup(folder) => cgroup::members(folder),
            Selection::GpuProcesses => {
                let mut found = holders::find(&self.majors);
                found.extend(listed);
                found
            }
            Selection::All | Selection::Command => Vec::new(),
        };
        let own = std::process::id();
        now.into_iter().filter(|pid| *pid != own && self.watch(*pid)).collect()
    }

    /// Takes note of a process that is watched, a target's child for one. True if it is new.
    pub fn watch(&mut self, pid: u32) -> bool {
        // A named process has one life: its id, used again, is another's.
        let named = matches!(self.selection, Selection::Pids(_));
        match process::started(pid) {
            Some(start) if self.known.get(&pid) == Some(&start) => false,
            Some(_) if named && self.known.contains_key(&pid) => false,
            Some(start) => {
                self.known.insert(pid, start);
                true
            }
            None => false,
        }
    }

    /// Forgets processes that ended, except named ones, and says how many still run.
    pub fn running(&mut self) -> usize {
        let named = match &self.selection {
            Selection::Pids(pids) => pids.clone(),
            _ => Vec::new(),
        };
        let mut running = 0;
        self.known.retain(|pid, start| {
            let runs = process::started(*pid) == Some(*start);
            running += usize::from(runs);
            runs || named.contains(pid)
        });
        running
    }

    /// Process ids now watched.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.known.keys().copied()
    }

    /// Whether the recording is over once nothing watched runs: a group that is there, and `--all`, may get new
    /// members.
    #[must_use]
    pub fn can_run_out(&self) -> bool {
        matches!(self.selection, Selection::Pids(_) | Selection::GpuProcesses) || self.group_is_gone()
    }

    /// The group that was named has been removed. Members that moved elsewhere before are watched on.
    #[must_use]
    pub fn group_is_gone(&self) -> bool {
        matches!(&self.selection, Selection::Cgroup(folder) if !folder.exists())
    }
}

fn check_pid(pid: u32) -> Result<(), TargetError> {
    if pid == std::process::id() {
        return Err(TargetError::Own(pid));
    }
    match process::identify(pid) {
        Id::Process => Ok(()),
        Id::ThreadOf { pid: of, comm } => Err(TargetError::Thread { tid: pid, pid: of, comm }),
        Id::Zombie | Id::Nothing => Err(TargetError::NoProcess(pid)),
    }
}

/// Accepts a folder, or a path as in `/proc/PID/cgroup` under any hierarchy.
fn find_cgroup(path: &std::path::Path) -> Result<PathBuf, TargetError> {
    let is_group = |p: &PathBuf| p.join("cgroup.procs").is_file();
    let below = path.strip_prefix("/").unwrap_or(path);
    let root = PathBuf::from("/sys/fs/cgroup");
    let mut hierarchies = vec![root.clone()];
    if let Ok(entries) = std::fs::read_dir(&root) {
        hierarchies.extend(entries.flatten().map(|e| e.path()).filter(|p| p.join("cgroup.procs").is_file()));
    }
    hierarchies.sort();
    std::iter::once(path.to_path_buf())
        .chain(hierarchies.into_iter().map(|h| h.join(below)))
        .find(is_group)
        .ok_or_else(|| TargetError::NoCgroup(path.to_path_buf()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_threads_and_ended_processes_are_refused_by_name() {
        let own = std::process::id();
        assert_eq!(Selection::Pids(vec![own]).check(), Err(TargetError::Own(own)));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        Selection::Pids(vec![pid]).check().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Selection::Pids(vec![pid]).check(), Err(TargetError::NoProcess(pid)));
    }

    #[test]
    fn a_named_process_is_handed_out_once_and_counted_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut targets = Targets::new(Selection::Pids(vec![child.id()]), vec![195]);
        assert_eq!(targets.new_processes(&[]), [child.id()]);
        assert_eq!(targets.new_processes(&[]), Vec::<u32>::new());
        assert_eq!(targets.running(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(targets.running(), 0);
        assert!(targets.can_run_out());
    }

    #[test]
    fn processes_listed_by_the_device_are_targets() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut targets = Targets::new(Selection::GpuProcesses, vec![195]);
        assert!(targets.new_processes(&[child.id(), std::process::id()]).contains(&child.id()));
        assert!(!targets.pids().any(|p| p == std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!targets.new_processes(&[child.id()]).contains(&child.id()));
    }

    #[test]
    fn a_group_can_run_out_once_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("group");
        std::fs::create_dir(&group).unwrap();
        let mut targets = Targets::new(Selection::Cgroup(group.clone()), vec![195]);
        let own = std::process::id();
        assert!(targets.watch(own) && !targets.can_run_out());
        std::fs::remove_dir(&group).unwrap();
        assert!(targets.group_is_gone() && targets.can_run_out());
        assert_eq!(targets.running(), 1, "a member that moved elsewhere runs on");
    }

    #[test]
    fn a_group_that_is_not_there_is_refused() {
        let nowhere = PathBuf::from("/no/such/group");
        assert_eq!(Selection::Cgroup(nowhere.clone()).check(), Err(TargetError::NoCgroup(nowhere)));
    }
}
