//! What `/proc` tells of a process: who it is, since when, and its threads.

use std::fs;
use std::path::PathBuf;

use procfs::process::Process;

use crate::trace::ThreadKey;

/// The kernel's flag for its own threads (`PF_KTHREAD`).
const PF_KTHREAD: u32 = 0x0020_0000;
/// Arguments kept of a command line, and bytes of each: a launcher may pass thousands.
const ARGUMENTS: usize = 64;
const ARGUMENT_BYTES: usize = 256;

/// A process as it is now. Processes end at any moment, so every reader gives `None` for one that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The process's own key: that of its first thread.
    pub key: ThreadKey,
    pub ppid: u32,
    pub comm: String,
    pub kernel_thread: bool,
    pub zombie: bool,
    /// `(controllers, path)` as in `/proc/<pid>/cgroup`; the unified hierarchy has empty controllers.
    pub cgroups: Vec<(String, String)>,
    pub cmdline: Vec<String>,
}

/// What a number given as a process id turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    Process,
    /// A thread of another process.
    ThreadOf {
        pid: u32,
        comm: String,
    },
    /// Ended, but its parent has not collected it yet.
    Zombie,
    Nothing,
}

#[must_use]
pub fn read(pid: u32) -> Option<ProcessFacts> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    Some(ProcessFacts {
        key: ThreadKey { tid: pid, start_ticks: stat.starttime },
        ppid: u32::try_from(stat.ppid).unwrap_or(0),
        kernel_thread: stat.flags & PF_KTHREAD != 0,
        zombie: ended(pid, stat.state),
        comm: stat.comm,
        cgroups: cgroups(pid),
        cmdline: cmdline(pid),
    })
}

/// Start time of a process, `None` once it ended (a zombie has ended, unless other threads go on).
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
    (!ended(pid, stat.state)).then_some(stat.starttime)
}

/// Whether a thread in this state, by its letter in `/proc`, has ended.
#[must_use]
pub fn dead(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

/// Whether a process has, given the state of its main thread. One that ends before the others stays as a
/// zombie; its process lives.
fn ended(pid: u32, state: char) -> bool {
    dead(state) && {
        let tasks = Process::new(i32::try_from(pid).unwrap_or(0)).and_then(|p| p.tasks());
        !tasks.is_ok_and(|mut tasks| tasks.any(|t| t.and_then(|t| t.stat()).is_ok_and(|s| !dead(s.state))))
    }
}

/// Tells a process id from a thread id: `/proc/<tid>` can be opened although it is not listed.
#[must_use]
pub fn identify(id: u32) -> Id {
    // Not by a UTF-8 parser: the name in this file holds whatever bytes the process chose.
    let status = fs::read(format!("/proc/{id}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let Some(pid) = field("Tgid:").and_then(|t| t.parse::<u32>().ok()) else { return Id::Nothing };
    if pid != id {
        let comm = read(pid).map(|p| p.comm).unwrap_or_default();
        return Id::ThreadOf { pid, comm };
    }
    let state = field("State:").and_then(|s| s.chars().next());
    if state.is_some_and(|s| ended(id, s)) { Id::Zombie } else { Id::Process }
}

/// Processes whose parent is one of these, own process excepted: it may have been started by a target.
#[must_use]
pub fn children(parents: &[u32]) -> Vec<u32> {
    let parent = |pid: u32| {
        let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
        u32::try_from(stat.ppid).ok()
    };
    let own = std::process::id();
    all()
        .into_iter()
        .filter(|pid| *pid != own && parent(*pid).is_some_and(|p| parents.contains(&p)))
        .collect()
}

/// All process ids now in `/proc`.
#[must_use]
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

fn cgroups(pid: u32) -> Vec<(String, String)> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    parse_cgroups(&String::from_utf8_lossy(&text))
}

fn parse_cgroups(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        })
        .collect()
}

fn cmdline(pid: u32) -> Vec<String> {
    parse_cmdline(&fs::read(PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default())
}

fn parse_cmdline(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|&b| b == 0)
        .take(ARGUMENTS)
        .map(|a| String::from_utf8_lossy(&a[..a.len().min(ARGUMENT_BYTES)]).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_a_process_and_its_threads_are_not() {
        let pid = std::process::id();
        assert_eq!(identify(pid), Id::Process);
        let tid = std::thread::spawn(|| {
            let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            identify(tid)
        })
        .join()
        .unwrap();
        assert!(matches!(tid, Id::ThreadOf { pid: p, .. } if p == pid), "{tid:?}");
    }

    #[test]
    fn an_ended_process_is_a_zombie_then_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while identify(pid) == Id::Process {
            std::thread::yield_now();
        }
        assert_eq!(identify(pid), Id::Zombie);
        assert_eq!(started(pid), None);
        child.wait().unwrap();
        assert_eq!(identify(pid), Id::Nothing);
        assert_eq!(identify(u32::MAX), Id::Nothing);
    }

    #[test]
    fn a_child_is_its_parents_alone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, others) = (children(&[std::process::id()]), children(&[child.id()]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own.contains(&child.id()));
        assert_eq!(others, Vec::<u32>::new());
    }

    #[test]
    fn command_lines_are_cut_and_never_fail_on_bytes() {
        assert_eq!(parse_cmdline(b"python\0train.py\0\xff\0"), ["python", "train.py", "\u{fffd}"]);
        assert_eq!(parse_cmdline(b""), Vec::<String>::new());
        assert_eq!(parse_cmdline(b"a\0\0b\0"), ["a", "", "b"]);
        let long = vec![b'x'; 10_000];
        assert_eq!(parse_cmdline(&long)[0].len(), ARGUMENT_BYTES);
        assert_eq!(parse_cmdline(&b"x\0".repeat(1000)).len(), ARGUMENTS);
    }

    #[test]
    fn cgroup_lines_keep_colons_in_paths() {
        let lines = parse_cgroups("4:cpu,cpuacct:/a:b\n0::/user.slice\nbroken\n");
        assert_eq!(lines, [("cpu,cpuacct".into(), "/a:b".into()), (String::new(), "/user.slice".into())]);
    }
}
