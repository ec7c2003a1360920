//! Stacks, what they lie in, and their names.

use serde::{Deserialize, Serialize};

use super::time::{Ns, StackId};

/// A file mapped executable by a process, so that addresses can be named after the process is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    pub at: Ns,
    pub pid: u32,
    /// As [`Stack::image`].
    pub image: u32,
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
    pub build_id: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackKind {
    Kernel,
    User,
}

/// Addresses from the innermost frame outward. User addresses belong to process `pid`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    pub id: StackId,
    pub kind: StackKind,
    pub pid: u32,
    /// Which of the process's programs it belongs to: `execve` begins another. 0 for kernel stacks, and where the
    /// kernel does not tell.
    pub image: u32,
    pub addresses: Vec<u64>,
    /// What is beyond the outermost frame of a user stack.
    pub end: StackEnd,
    /// Of the [`PythonStack`] that the thread had at the same time, 0: none.
    pub python: StackId,
}

/// Why a user stack has no more frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StackEnd {
    /// Not known.
    #[default]
    Unknown,
    /// Its thread starts there.
    Start,
    /// The outermost frame's object has no unwind table.
    NoTable,
    /// The outermost frame's object has no rule there, or one that leads nowhere.
    NoRule,
    /// Nothing is known to be mapped there.
    NoMapping,
    /// Stack memory could not be read.
    Unreadable,
    /// It is deeper than what is kept.
    Depth,
    /// It was walked by frame pointers alone, which may leave out frames and end anywhere.
    FramePointers,
    /// Its thread starts there, but some frame was found by a frame pointer in code whose unwind table was still to come:
    /// frames may be missing.
    Guessed,
}

/// The Python functions a thread was in, from the innermost outward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonStack {
    pub id: StackId,
    pub pid: u32,
    pub functions: Vec<PythonFunction>,
    /// The last one is the outermost; otherwise it was too deep, or could not be read further.
    pub whole: bool,
}

/// A Python function that was running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonFunction {
    /// `co_qualname`, before 3.11 `co_name`. Empty: it was gone before it could be read.
    pub name: String,
    /// `co_filename`.
    pub file: String,
    pub line: Option<u32>,
    /// The first function of a run of the evaluation loop, which is one native frame.
    pub ends_run: bool,
}

/// One line of the name table, written when recording ends. `frames` run innermost first: more than one
/// where functions were inlined. Empty `frames` means unresolved, and `reason` says why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    pub kind: StackKind,
    /// 0 for kernel addresses.
    pub pid: u32,
    /// As [`Stack::image`].
    pub image: u32,
    pub address: u64,
    pub frames: Vec<Frame>,
    /// File the address lies in (base name or path), `[kernel]`, or empty.
    pub module: String,
    /// Offset into the file, for later naming on another machine.
    pub file_offset: u64,
    pub build_id: Vec<u8>,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}
