//! Lifecycle records, on a ring of their own so that a flood of waits cannot drop them.

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub kind: u32,
    /// 1: seen at its birth (`at` is the time); 0: a rename, or a bystander named for the first time.
    pub born: u32,
    pub at: u64,
    pub start_boottime: u64,
    pub creator_start: u64,
    pub tid: u32,
    pub pid: u32,
    pub ppid: u32,
    /// 0: not known.
    pub creator_tid: u32,
    /// `task->flags` (`PF_*`).
    pub task_flags: u32,
    pub target: u32,
    pub comm: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exec {
    pub kind: u32,
    pub pid: u32,
    pub at: u64,
    pub start_boottime: u64,
    pub tid: u32,
    pub old_tid: u32,
    /// Counts the process's programs: one more than before (`task->self_exec_id`, low half); 0 where the kernel does
    /// not tell.
    pub image: u32,
    pub pad: u32,
    pub comm: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub kind: u32,
    pub pid: u32,
    pub at: u64,
    pub start_boottime: u64,
    pub tid: u32,
    pub pad: u32,
    /// The thread's own page faults, 0 where the kernel does not tell.
    pub minor_faults: u64,
    pub major_faults: u64,
}
