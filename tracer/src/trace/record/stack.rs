//! Stacks, what they lie in, and their names.

use serde::{Deserialize, Serialize};

use super::time::{Ns, StackId};

/// A file mapped executable by a process, so that addresses can be named after the process is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    pub at: Ns,
    pub pid: u32,
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
    pub addresses: Vec<u64>,
}

/// One line of the name table, written when recording ends. `frames` run innermost first: more than one
/// where functions were inlined. Empty `frames` means unresolved, and `reason` says why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    pub kind: StackKind,
    /// 0 for kernel addresses.
    pub pid: u32,
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
