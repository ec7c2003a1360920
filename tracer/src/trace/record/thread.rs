//! Who the threads are.

use serde::{Deserialize, Serialize};

use super::time::{Ns, ThreadKey};

/// How a thread came to be among the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TargetKind {
    /// Named on the command line, in a cgroup named there, or listed by NVML.
    Named,
    /// Child process or new thread of a target.
    Inherited,
    /// Not of the job, but it woke a target often.
    Adopted,
    /// No target: named here only because it woke a target or ran instead of one.
    Bystander,
}

/// A thread's identity. Written once when it is first seen and again on rename or adoption; the last holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadSeen {
    pub at: Ns,
    pub key: ThreadKey,
    /// Process id (`tgid`): not the same thing as a thread id.
    pub pid: u32,
    /// Parent process, 0 if not known.
    pub ppid: u32,
    /// The kernel's `comm`, lossily decoded; may hold anything, so escape it before showing it.
    pub comm: String,
    /// The thread's creator, where its birth was seen.
    pub creator: Option<ThreadKey>,
    /// Time of birth where it was seen (`task_newtask`).
    pub born: Option<Ns>,
    pub kind: TargetKind,
    pub kernel_thread: bool,
    /// `(controller, path)` lines of `/proc/<pid>/cgroup`, empty where not read.
    pub cgroups: Vec<(String, String)>,
    /// Command line of the process, empty where not read.
    pub cmdline: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadExec {
    pub at: Ns,
    pub key: ThreadKey,
    pub pid: u32,
    /// Of the program that begins, as [`super::Stack::image`].
    pub image: u32,
    pub comm: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadExit {
    pub at: Ns,
    pub key: ThreadKey,
    pub pid: u32,
}
