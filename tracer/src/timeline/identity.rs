//! Who a thread is, from everything that names it.

use std::collections::BTreeMap;

use super::order::order;
use crate::trace::{Ns, TargetKind, ThreadExec, ThreadExit, ThreadKey, ThreadSeen};

/// All that names one thread.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub seen: Vec<ThreadSeen>,
    pub execs: Vec<ThreadExec>,
    pub exits: Vec<ThreadExit>,
    /// Process id as other records of the thread give it.
    pub pid: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Identity {
    pub pid: u32,
    pub ppid: u32,
    pub comm: String,
    pub kind: TargetKind,
    pub kernel_thread: bool,
    pub creator: Option<ThreadKey>,
    pub born: Option<Ns>,
    pub exited: Option<Ns>,
    pub execs: Vec<Ns>,
    pub cgroups: Vec<(String, String)>,
    pub cmdline: Vec<String>,
    /// Since when it was a target, where a record says so.
    pub target_since: Option<Ns>,
}

impl Names {
    pub(super) fn resolve(&mut self) -> Identity {
        order(&mut self.seen, |s| s.at);
        order(&mut self.execs, |e| e.at);
        order(&mut self.exits, |e| e.at);
        let last = |has: &dyn Fn(&&ThreadSeen) -> bool| self.seen.iter().rev().find(has);
        let target = |s: &&ThreadSeen| s.kind != TargetKind::Bystander;
        let named = self.seen.iter().map(|s| (s.at, &s.comm));
        let comm = named.chain(self.execs.iter().map(|e| (e.at, &e.comm))).max();
        Identity {
            pid: last(&|_| true)
                .map(|s| s.pid)
                .or(self.pid)
                .or(self.execs.last().map(|e| e.pid))
                .or(self.exits.last().map(|e| e.pid))
                .unwrap_or(0),
            ppid: last(&|s| s.ppid != 0).map_or(0, |s| s.ppid),
            comm: comm.map(|(_, comm)| comm.clone()).unwrap_or_default(),
            kind: last(&target).map_or(TargetKind::Bystander, |s| s.kind),
            kernel_thread: self.seen.iter().any(|s| s.kernel_thread),
            creator: last(&|s| s.creator.is_some()).and_then(|s| s.creator),
            born: self.seen.iter().filter_map(|s| s.born).min(),
            exited: self.exits.iter().map(|e| e.at).min(),
            execs: self.execs.iter().map(|e| e.at).collect(),
            cgroups: last(&|s| !s.cgroups.is_empty()).map(|s| s.cgroups.clone()).unwrap_or_default(),
            cmdline: last(&|s| !s.cmdline.is_empty()).map(|s| s.cmdline.clone()).unwrap_or_default(),
            target_since: self.seen.iter().find(target).map(|s| s.at),
        }
    }
}

/// Gives every thread what only some thread of its process told: parent, cgroups, command line. The main
/// thread's word goes before the others'.
pub(super) fn share_process(identities: &mut BTreeMap<ThreadKey, Identity>) {
    let mut known: BTreeMap<u32, (u32, Vec<_>, Vec<_>)> = BTreeMap::new();
    let is_main = |(key, id): &(&ThreadKey, &Identity)| key.tid == id.pid;
    let (main, others): (Vec<_>, Vec<_>) = identities.iter().partition(is_main);
    for (_, id) in main.into_iter().rev().chain(others) {
        let process = known.entry(id.pid).or_default();
        if process.0 == 0 {
            process.0 = id.ppid;
        }
        if process.1.is_empty() {
            process.1.clone_from(&id.cgroups);
        }
        if process.2.is_empty() {
            process.2.clone_from(&id.cmdline);
        }
    }
    for id in identities.values_mut() {
        let Some(process) = known.get(&id.pid) else { continue };
        if id.ppid == 0 {
            id.ppid = process.0;
        }
        if id.cgroups.is_empty() {
            id.cgroups.clone_from(&process.1);
        }
        if id.cmdline.is_empty() {
            id.cmdline.clone_from(&process.2);
        }
    }
}
