//! What the kernel side walks user stacks by: which object lies where in a process, and each object's table of
//! unwind rules. Both lie in one pool of chunks, which is all the memory they ever take.

use super::stack::Stack;

/// Unwind rules, or mappings, of neighbours.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub words: [u64; CHUNK_WORDS],
}

pub const CHUNK_WORDS: usize = 32;
pub const CHUNK_ROWS: usize = CHUNK_WORDS;
pub const CHUNK_MAPPINGS: usize = CHUNK_WORDS / 4;
/// Chunks are made this many at a time.
pub const SEGMENT_CHUNKS: usize = 1 << 14;
/// 4 MiB each.
pub const SEGMENTS: usize = 64;
/// Executable mappings of one process, and objects of all.
pub const MAPPINGS: u32 = 1024;
pub const OBJECTS: u32 = 1 << 14;

/// From `pc` on, up to the next row's, `rule` holds. `pc` counts from the page of the object's lowest executable
/// byte, as the object numbers its addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub pc: u32,
    pub rule: u32,
}

/// An executable mapping; `address - bias` is the `pc` of a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub object: u32,
    pub pad: u32,
}

/// Where an object's rows lie; no chunks: it has no table, and will have none if `base` is `NEVER`. `base` of
/// `NO_OBJECT` counts how often anything that stacks are walked by has changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub base: u32,
    pub chunks: u32,
}

impl Table {
    /// Nothing tells how the object's stacks are unwound.
    pub const NEVER: Self = Self { base: u32::MAX, chunks: 0 };
}

/// Where a process's mappings lie, in the order of addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    pub base: u32,
    pub mappings: u32,
}

/// `Mapped::object` of executable memory that belongs to no file.
pub const NO_OBJECT: u32 = 0;

/// `Mapped::object` of where the kernel makes functions return to whose return it probes. Its mapping begins one byte
/// early, for return addresses are looked up one byte before.
pub const TRAMPOLINE: u32 = OBJECTS - 1;

/// Fields of a rule. The return address lies below the CFA, the frame's address.
pub mod rule {
    /// What the CFA is; the remaining bits are its offset in words, signed.
    pub const KIND: u32 = 7;
    /// Nothing is known.
    pub const NONE: u32 = 0;
    /// `rsp + offset`.
    pub const SP: u32 = 1;
    /// `rbp + offset`.
    pub const BP: u32 = 2;
    /// `*(rsp + offset) + add`.
    pub const AT_SP: u32 = 3;
    /// `*(rbp + offset) + add`.
    pub const AT_BP: u32 = 4;
    /// A stub of the procedure linkage table: `rsp + 8`, and 8 more from byte `offset` of its 16 on.
    pub const STUB: u32 = 5;
    /// Registers lie in the signal frame that `rsp` points to.
    pub const SIGNAL: u32 = 6;
    /// A thread starts here.
    pub const START: u32 = 7;

    /// Where the caller's `rbp` is.
    pub const FRAME_SHIFT: u32 = 3;
    pub const FRAME: u32 = 3 << FRAME_SHIFT;
    pub const FRAME_SAME: u32 = 0;
    /// Below the CFA, by so many words.
    pub const FRAME_BELOW: u32 = 1 << FRAME_SHIFT;
    /// At `*rbp`.
    pub const FRAME_AT_BP: u32 = 2 << FRAME_SHIFT;
    /// Lost.
    pub const FRAME_LOST: u32 = 3 << FRAME_SHIFT;

    pub const BELOW_SHIFT: u32 = 5;
    pub const BELOW: u32 = 0x3f;
    /// In words, for the kinds with `add`.
    pub const ADD_SHIFT: u32 = 11;
    pub const ADD: u32 = 3;
    pub const OFFSET_SHIFT: u32 = 13;
}

/// Why a walk ended: `Stack::end`.
pub mod end {
    /// A kernel stack, or not known.
    pub const UNKNOWN: u32 = 0;
    /// Where its thread starts.
    pub const START: u32 = 1;
    /// In an object without a table.
    pub const NO_TABLE: u32 = 2;
    /// At an address that no rule covers, or whose rule leads nowhere.
    pub const NO_RULE: u32 = 3;
    /// At an address outside all mappings that are known.
    pub const NO_MAPPING: u32 = 4;
    /// At stack memory that cannot be read.
    pub const UNREADABLE: u32 = 5;
    /// It is deeper than a record.
    pub const DEPTH: u32 = 6;
    /// Nothing is known of the process yet: by frame pointers alone.
    pub const FRAME_POINTERS: u32 = 7;
    /// Where its thread starts, but some frame was found by a frame pointer in code whose table is still to come.
    pub const GUESSED: u32 = 8;
}

/// One walk under way.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    pub layout: Layout,
    /// The mapping that `ip` lies in, when it was last looked for.
    pub mapping: Mapped,
    /// `ip` is where the thread was, not where a call returns to.
    pub exact: u32,
    /// The bounds of a search.
    pub low: u32,
    pub high: u32,
    pub has_table: u32,
    /// The table of the object that `ip` lies in is still to come.
    pub pending: u32,
    /// Some frame was found by a frame pointer in code whose table is still to come, and frames before it may be
    /// missing.
    pub guessed: u32,
    pub out: Stack,
}
