//! CUDA driver calls: runs of submits, and calls that synchronised or were long.

use super::stack::MAX_FRAMES;

/// `trace::CudaFamily` by position, as cookies carry it.
pub mod family {
    pub const LAUNCH: u32 = 0;
    pub const GRAPH_LAUNCH: u32 = 1;
    pub const COPY: u32 = 2;
    pub const MEMSET: u32 = 3;
    pub const SYNCHRONIZE: u32 = 4;
}

/// Parts of a probe's cookie; the low half is `EntryPoint::id`.
pub mod cookie {
    pub const FAMILY_SHIFT: u32 = 32;
    pub const FAMILY_MASK: u64 = 0xffff;
    /// Its return is wanted but not probed: the thread's next entry ends the call.
    pub const NO_RETURN: u64 = 1 << 63;
}

/// A run of submits without a silence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// 0: no run.
    pub first: u64,
    pub last: u64,
    pub launches: u64,
    pub graph_launches: u64,
    pub memsets: u64,
    pub copies: u64,
    pub user_stack: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Submits {
    pub kind: u32,
    pub pad: u32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    pub run: Run,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudaCall {
    pub kind: u32,
    pub family: u32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    pub entry: u64,
    /// 0: not returned yet.
    pub exit: u64,
    pub id: u32,
    pub pad: u32,
    pub user_stack: u64,
}

/// One thread between two hits. `sp` of the outermost call under way, 0 if none: a nested call has a lower
/// one, and a call that was left without returning is overtaken by the next at the same height or above.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudaState {
    pub start_boottime: u64,
    pub tid: u32,
    pub pid: u32,
    pub sp: u64,
    pub entry: u64,
    pub family: u32,
    pub id: u32,
    pub run: Run,
    pub call_stack: u64,
    pub frames: u32,
    pub pad: u32,
    pub stack: [u64; MAX_FRAMES],
}
