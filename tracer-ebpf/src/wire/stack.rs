//! Stacks, and the two records of the perf events: CPU samples and major faults.

/// What the kernel's own walk gives at most.
pub const MAX_FRAMES: usize = 127;

/// Sent once per id, ahead of the first record that names it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    pub kind: u32,
    /// `wire::KERNEL` or `wire::USER`.
    pub user: u32,
    pub id: u64,
    pub pid: u32,
    pub frames: u32,
    /// Why the walk ended, one of `unwind::end`.
    pub end: u32,
    /// Which of its programs the process ran then, see `Exec::image`.
    pub image: u32,
    /// Id of the Python stack that belongs to it, 0: none.
    pub python: u64,
    pub addresses: [u64; MAX_FRAMES],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub kind: u32,
    pub cpu: u32,
    pub at: u64,
    pub start_boottime: u64,
    pub tid: u32,
    pub pid: u32,
    pub kernel_stack: u64,
    pub user_stack: u64,
    /// Periods of the clock that it stands for.
    pub periods: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: u32,
    pub cpu: u32,
    pub at: u64,
    pub start_boottime: u64,
    pub tid: u32,
    pub pid: u32,
    pub address: u64,
    /// 0: not known.
    pub file: u64,
    /// Page index, meaningful with `file`.
    pub index: u64,
}
