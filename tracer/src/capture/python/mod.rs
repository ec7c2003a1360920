//! Python threads of target processes: where each one's interpreter keeps its frames, for the kernel side to
//! walk, and which functions the stacks are that it walked.

mod code;
mod find;
mod functions;
mod interpreter;
mod layout;
mod lines;
mod memory;
mod namespace;
mod slot;
pub mod testing;

use std::collections::{BTreeSet, HashMap};

use tracer_ebpf::wire::{self, PythonFrame, PythonLayout, PythonThread};

use super::process;
use crate::trace::{Loss, LossCause, LossClass, Ns, ProbeStatus, PythonStack, Record, TargetKind};
use find::{Files, Found, Unknown};
use functions::Functions;
use interpreter::Interpreter;
use layout::Layout;

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
    files: Files,
    functions: Functions,
    gone: Vec<u32>,
    /// By the row the kernel side knows them by.
    layouts: Vec<Layout>,
    unknown: BTreeSet<Unknown>,
    unsaid: Vec<Unknown>,
}

impl Pythons {
    /// To be called with every record of a thread's life.
    pub(super) fn see(&mut self, now: Ns, record: &Record) {
        match record {
            Record::Thread(seen) if !seen.kernel_thread && seen.kind != TargetKind::Bystander => {
                if seen.key.tid == seen.pid && seen.born.is_some() {
                    self.functions.born(seen.pid, seen.ppid);
                }
                let known = self.processes.get(&seen.pid).and_then(|p| p.interpreter.as_ref());
                // The kernel side tells new threads by their creators then.
                if !known.is_some_and(Interpreter::finds_threads_itself) {
                    self.fresh(now, seen.pid);
                }
            }
            Record::ThreadExec(exec) => {
                if let Some(process) = self.processes.remove(&exec.pid) {
                    self.gone.extend(process.threads.into_keys());
                }
                self.functions.exec(exec.pid);
                self.fresh(now, exec.pid);
            }
            Record::ThreadExit(exit) => {
                if exit.key.tid == exit.pid {
                    self.functions.exit(exit.pid);
                }
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
        let Self { processes, files, layouts, unknown, unsaid, .. } = self;
        processes.retain(|pid, process| {
            if now < process.next {
                return true;
            }
            process.next = if now < process.fresh_until { now } else { now + EVERY };
            if let Some(found) = process.look(*pid, files, layouts, &mut changes)
                && unknown.insert(found)
            {
                unsaid.push(found);
            }
            // Kept while it lives, interpreter or not.
            process::started(*pid).is_some()
        });
        changes
    }

    /// Rows for the kernel side, all that there are so far.
    pub(super) fn layouts(&self) -> impl ExactSizeIterator<Item = &PythonLayout> {
        self.layouts.iter().map(|layout| &layout.frames)
    }

    /// Names the functions of a stack that the kernel side sent. `None` for bytes that are no such record.
    pub(super) fn stack(&mut self, bytes: &[u8]) -> Option<PythonStack> {
        const HEADER: usize =
            size_of::<wire::PythonStack>() - wire::MAX_PYTHON_FRAMES * size_of::<PythonFrame>();
        let mut whole = [0u8; size_of::<wire::PythonStack>()];
        let n = bytes.len().min(whole.len());
        whole[..n].copy_from_slice(&bytes[..n]);
        let stack: wire::PythonStack = super::kernel::decode::read(&whole).ok()?;
        let frames = (stack.frames as usize).min(n.checked_sub(HEADER)? / size_of::<PythonFrame>());
        let layout = *self.layouts.get(stack.layout as usize)?;
        let interpreter = self.processes.get(&stack.pid).and_then(|p| p.interpreter.as_ref());
        Some(self.functions.name(&stack, &stack.entries[..frames], interpreter, &layout))
    }

    /// Versions that are not known, and functions that could not be named, since it was last asked.
    pub(super) fn lost(&mut self, at: Ns) -> Vec<Record> {
        let unknown = self.unsaid.drain(..).map(|unknown| {
            let reason = format!(
                "{unknown} keeps its frames in a way that is not known here: stacks of its \
                 threads show native functions only, not Python's"
            );
            Record::Probe(ProbeStatus { name: "python".into(), attached: false, reason })
        });
        let mut records: Vec<Record> = unknown.collect();
        let count = self.functions.take_unnamed();
        if count > 0 {
            let (class, cause) = (LossClass::Stack, LossCause::Userspace);
            records.push(Record::Loss(Loss { at, class, cpu: None, cause, count, ns_at_risk: 0 }));
        }
        records
    }
}

impl Process {
    /// One that has ended shows no threads any more. Gives an interpreter that is not known.
    fn look(
        &mut self,
        pid: u32,
        files: &mut Files,
        layouts: &mut Vec<Layout>,
        changes: &mut Vec<Change>,
    ) -> Option<Unknown> {
        if self.interpreter.is_none() {
            match files.look(pid) {
                Found::Nothing => {}
                Found::Unknown(unknown) => return Some(unknown),
                Found::Known(interpreter) => self.interpreter = Some(*interpreter),
            }
        }
        let interpreter = self.interpreter.as_mut()?;
        let threads = match row(layouts, &interpreter.layout) {
            Some(row) => interpreter.threads(pid, row),
            None => HashMap::new(),
        };
        let gone = self.threads.keys().filter(|tid| !threads.contains_key(tid));
        changes.extend(gone.copied().map(Change::gone));
        let new = threads.iter().filter(|(tid, thread)| self.threads.get(tid) != Some(thread));
        changes.extend(new.map(|(tid, thread)| Change { tid: *tid, thread: Some(*thread) }));
        self.threads = threads;
        None
    }
}

/// `None` when there are more kinds of interpreters than the kernel side has rows.
fn row(layouts: &mut Vec<Layout>, layout: &Layout) -> Option<u32> {
    let known = layouts.iter().position(|l| l == layout);
    let row = known.unwrap_or(layouts.len());
    if row >= wire::python::PYTHON_LAYOUTS as usize {
        return None;
    }
    if known.is_none() {
        layouts.push(*layout);
    }
    u32::try_from(row).ok()
}
