//! What the tracer does about Python: tells the kernel side where interpreters are, and names the stacks it sends.

use tracer_ebpf::wire::kind;

use super::tracer::Tracer;
use crate::capture::python::{Change, Pythons};
use crate::trace::{Ns, Record};

impl Tracer {
    /// Tells the kernel side where the interpreters of Python threads are.
    pub(super) fn look_at_pythons(&mut self, at: Ns) {
        if !self.python_wanted {
            return;
        }
        let changes = self.python.tick(at);
        for (row, layout) in (0u32..).zip(self.python.layouts()).skip(self.python_known) {
            if let Err(error) = self.python_layouts.set(row, layout, 0) {
                tracing::debug!(%error, row, "a layout of Python frames");
            }
        }
        self.python_known = self.python.layouts().len();
        for Change { tid, thread } in changes {
            let has = match thread {
                // A full table leaves the thread to its native addresses alone.
                Some(row) => self.python_threads.insert(tid, row, 0).is_ok(),
                None => false,
            };
            self.pids.set_python(tid, has);
            if !has && let Err(error) = self.python_threads.remove(&tid) {
                tracing::debug!(%error, tid, "a thread without Python");
            }
        }
    }

    /// What the kernel side last took for the Python frame and instruction of a thread that is off its
    /// processor; 0 without Python, `None` for a thread it has not seen.
    #[must_use]
    pub fn python_place(&self, tid: u32) -> Option<u64> {
        self.threads.get(&tid, 0).ok().map(|state| state.key_python)
    }
}

/// A Python stack is named at once, while the process still has what it needs.
pub(super) fn named(python: &mut Pythons, bytes: &[u8]) -> Option<Record> {
    let is_one = bytes.starts_with(&kind::PYTHON_STACK.to_ne_bytes());
    is_one.then(|| python.stack(bytes)).flatten().map(Record::PythonStack)
}
