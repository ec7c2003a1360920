//! Names of the functions in Python stacks, read while the process still has them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tracer_ebpf::wire::{self, PythonFrame, python::python_end};

use super::code::{self, Code, Types};
use super::interpreter::Interpreter;
use super::layout::{Layout, Runs};
use super::memory::ProcessMemory;
use crate::trace::{PythonFunction, PythonStack};

/// Code objects kept of one process; beyond, all are read anew.
const CODES: usize = 1 << 16;
/// Processes that ended are remembered, because their last stacks may still come.
const ENDED: usize = 256;

/// Both the name and the file of the code that the interpreter puts around a specialised `__init__`
/// (`_Py_InitCleanup`), which is no function's.
const INTERNAL: &str = "__init__";

#[derive(Debug, Default)]
struct Process {
    /// By address and identity.
    codes: HashMap<(u64, u64), Arc<Code>>,
    memory: Option<ProcessMemory>,
    /// It has this one's code as it was at its birth.
    parent: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Functions {
    processes: HashMap<u32, Process>,
    ended: VecDeque<u32>,
    /// Frames whose function could not be read since it was last asked.
    unnamed: u64,
}

impl Functions {
    pub(super) fn born(&mut self, pid: u32, parent: u32) {
        self.processes.insert(pid, Process { parent: Some(parent), ..Process::default() });
    }

    pub(super) fn exec(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    pub(super) fn exit(&mut self, pid: u32) {
        if self.processes.contains_key(&pid) {
            self.ended.push_back(pid);
        }
        while self.ended.len() > ENDED {
            self.ended.pop_front().map(|oldest| self.processes.remove(&oldest));
        }
    }

    /// Frames that stayed without a name since this was last asked.
    pub(super) fn take_unnamed(&mut self) -> u64 {
        std::mem::take(&mut self.unnamed)
    }

    /// Names every frame of a stack that was just taken.
    pub(super) fn name(
        &mut self,
        stack: &wire::PythonStack,
        frames: &[PythonFrame],
        interpreter: Option<&Interpreter>,
        layout: &Layout,
    ) -> PythonStack {
        let types = interpreter.map(|i| i.types).unwrap_or_default();
        let mut functions: Vec<PythonFunction> = Vec::with_capacity(frames.len());
        for frame in frames {
            let (_, flag) = code::parts(frame);
            let ends = match layout.runs {
                Runs::Frame => true,
                Runs::Entry => flag != 0,
                Runs::Shim(owner) if flag >= owner => {
                    if let Some(last) = functions.last_mut() {
                        last.ends_run = true;
                    }
                    continue;
                }
                Runs::Shim(_) => false,
            };
            let mut function = self.function(stack.pid, frame, types, layout).unwrap_or_default();
            if function.file == INTERNAL {
                continue;
            }
            self.unnamed += u64::from(function.name.is_empty());
            function.ends_run = ends;
            functions.push(function);
        }
        let whole = stack.end == python_end::WHOLE;
        PythonStack { id: stack.id, pid: stack.pid, functions, whole }
    }

    fn function(
        &mut self,
        pid: u32,
        frame: &PythonFrame,
        types: Types,
        layout: &Layout,
    ) -> Option<PythonFunction> {
        let code = self.code(pid, frame, types, layout)?;
        let memory = self.processes.get(&pid)?.memory.as_ref()?;
        let line = code.line(memory, layout, frame.instruction);
        Some(PythonFunction { name: code.name.clone(), file: code.file.clone(), line, ends_run: false })
    }

    fn code(&mut self, pid: u32, frame: &PythonFrame, types: Types, layout: &Layout) -> Option<Arc<Code>> {
        if frame.identity == 0 {
            return None;
        }
        let (address, _) = code::parts(frame);
        let key = (address, frame.identity);
        let inherited = self.known(pid, &key);
        let process = self.processes.entry(pid).or_default();
        if process.memory.is_none() {
            process.memory = ProcessMemory::open(pid);
        }
        if let Some(code) = inherited {
            return Some(code);
        }
        let memory = process.memory.as_ref()?;
        let code = Arc::new(Code::read(memory, layout, address, frame.identity, types)?);
        if process.codes.len() >= CODES {
            process.codes.clear();
        }
        process.codes.insert(key, Arc::clone(&code));
        Some(code)
    }

    /// A code object of the process, or of those it was forked from.
    fn known(&self, pid: u32, key: &(u64, u64)) -> Option<Arc<Code>> {
        let mut process = self.processes.get(&pid);
        for _ in 0..8 {
            if let Some(code) = process?.codes.get(key) {
                return Some(Arc::clone(code));
            }
            process = self.processes.get(&process?.parent?);
        }
        None
    }
}
