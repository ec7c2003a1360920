//! Python threads of target processes: where each one's interpreter keeps its frame, for the kernel side to look
//! at when the thread leaves its processor.

mod interpreter;
mod layout;

use std::collections::HashMap;

use tracer_ebpf::wire::PythonThread;

use super::process;
use crate::trace::{Ns, Record, TargetKind};
use interpreter::Interpreter;

/// How long a process is looked at every tick after a thread was born or a program started: an interpreter
/// takes a while to start, and enters a thread in its list only once that runs.
const FRESH: Ns = 2_000_000_000;
/// Later a look this often finds what started by itself, such as an interpreter embedded in a program.
const EVERY: Ns = 10_000_000_000;

/// A thread whose place in its interpreter became known, changed, or is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) tid: u32,
    pub(super) thread: Option<PythonThread>,
}

impl Change {
    fn gone(tid: u32) -> Self {
        Self { tid, thread: None }
    }
}

#[derive(Debug, Default)]
struct Process {
    interpreter: Option<Interpreter>,
    threads: HashMap<u32, PythonThread>,
    fresh_until: Ns,
    next: Ns,
}

#[derive(Debug, Default)]
pub(super) struct Pythons {
    processes: HashMap<u32, Process>,
    gone: Vec<u32>,
}

impl Pythons {
    /// To be called with every record of a thread's life.
    pub(super) fn see(&mut self, now: Ns, record: &Record) {
        match record {
            Record::Thread(seen) if !seen.kernel_thread && seen.kind != TargetKind::Bystander => {
                self.fresh(now, seen.pid);
            }
            Record::ThreadExec(exec) => {
                if let Some(process) = self.processes.remove(&exec.pid) {
                    self.gone.extend(process.threads.into_keys());
                }
                self.fresh(now, exec.pid);
            }
            Record::ThreadExit(exit) => {
                if let Some(process) = self.processes.get_mut(&exit.pid)
                    && process.threads.remove(&exit.key.tid).is_some()
                {
                    self.gone.push(exit.key.tid);
                }
            }
            _ => {}
        }
    }

    fn fresh(&mut self, now: Ns, pid: u32) {
        let process = self.processes.entry(pid).or_default();
        (process.fresh_until, process.next) = (now + FRESH, now);
    }

    /// Looks at the processes whose turn it is; what changed since.
    pub(super) fn tick(&mut self, now: Ns) -> Vec<Change> {
        let mut changes: Vec<Change> = self.gone.drain(..).map(Change::gone).collect();
        self.processes.retain(|pid, process| {
            if now < process.next {
                return true;
            }
            process.next = if now < process.fresh_until { now } else { now + EVERY };
            process.look(*pid, &mut changes);
            // Kept while it lives, interpreter or not.
            process::started(*pid).is_some()
        });
        changes
    }
}

impl Process {
    /// One that has ended shows no threads any more.
    fn look(&mut self, pid: u32, changes: &mut Vec<Change>) {
        if self.interpreter.is_none() {
            self.interpreter = Interpreter::find(pid);
        }
        let Some(interpreter) = &self.interpreter else { return };
        let threads = interpreter.threads(pid);
        let gone = self.threads.keys().filter(|tid| !threads.contains_key(tid));
        changes.extend(gone.copied().map(Change::gone));
        let new = threads.iter().filter(|(tid, thread)| self.threads.get(tid) != Some(thread));
        changes.extend(new.map(|(tid, thread)| Change { tid: *tid, thread: Some(*thread) }));
        self.threads = threads;
    }
}
