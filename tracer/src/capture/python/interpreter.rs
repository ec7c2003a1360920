//! The Python interpreter in one process: its threads, read from the process's memory.

use std::collections::HashMap;

use tracer_ebpf::wire::PythonThread;

use super::code::Types;
use super::layout::{Layout, ThreadId};
use super::memory::{Memory, ProcessMemory};
use super::namespace;
use super::slot::Slot;
use crate::capture::kernel::targets;

/// Offset of the kernel's thread id in glibc's `struct pthread`, the same since 2.4 on x86-64.
const PTHREAD_TID: u64 = 720;
/// Lists of a process that writes on may have no end.
const INTERPRETERS: usize = 64;
const THREADS: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Interpreter {
    /// Address of `_PyRuntime`.
    runtime: u64,
    pub(super) types: Types,
    pub(super) layout: Layout,
    slot: Slot,
}

/// A thread state in the interpreter's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    address: u64,
    /// The word that names its thread.
    names: u64,
    /// The thread's id, as the process itself knows it.
    tid: u32,
}

impl Interpreter {
    pub(super) fn new(runtime: u64, types: Types, layout: Layout) -> Self {
        Self { runtime, types, layout, slot: Slot::default() }
    }

    /// New threads are found without looking.
    pub(super) fn finds_threads_itself(&self) -> bool {
        self.slot.place().is_some()
    }

    /// Its threads by the kernel's ids. Whatever does not hang together is left out.
    pub(super) fn threads(&mut self, pid: u32, layout: u32) -> HashMap<u32, PythonThread> {
        let Some(memory) = ProcessMemory::open(pid) else { return HashMap::new() };
        let states = self.threads_in(&memory);
        match self.slot.place() {
            // Any thread may get a state, and lose it, at any time.
            Some(local) => targets::threads(pid)
                .into_iter()
                .map(|tid| (tid, PythonThread { state: 0, thread: 0, local, layout }))
                .collect(),
            None => {
                let found = states.iter().map(|State { address, names, tid }| {
                    (*tid, PythonThread { state: *address, thread: *names, local: 0, layout })
                });
                namespace::outside(pid, &found.collect())
            }
        }
    }

    /// Looks at every thread's state, and for where threads keep them.
    pub(super) fn threads_in(&mut self, memory: &impl Memory) -> Vec<State> {
        let states = self.states(memory);
        let threads = states
            .iter()
            .filter_map(|state| Some((memory.pointer(state.address, self.layout.pthread)?, state.address)));
        self.slot.look(memory, &threads.collect::<Vec<_>>());
        states
    }

    /// Every thread's state, those of the main interpreter last.
    fn states(&self, memory: &impl Memory) -> Vec<State> {
        let layout = &self.layout;
        let mut states = Vec::new();
        let mut interpreter = memory.pointer(self.runtime, layout.interpreters);
        let mut left = THREADS;
        for _ in 0..INTERPRETERS {
            let Some(here) = interpreter else { break };
            let mut state = memory.pointer(here, layout.threads);
            while let Some(address) = state.filter(|_| left > 0) {
                left -= 1;
                let named = match layout.id {
                    ThreadId::Native(offset) => memory.pointer(address, offset).map(|id| (id, id)),
                    ThreadId::Pthread => memory
                        .pointer(address, layout.pthread)
                        .and_then(|thread| Some((thread, memory.int(thread, PTHREAD_TID)?.into()))),
                };
                if let Some((names, id)) = named
                    && let Ok(tid) = u32::try_from(id)
                    && tid != 0
                {
                    states.push(State { address, names, tid });
                }
                state = memory.pointer(address, layout.next_thread);
            }
            interpreter = memory.pointer(here, layout.next_interpreter);
        }
        states
    }
}
