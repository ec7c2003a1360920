//! Wire records, one file per probe family. All are `repr(C)` without implicit padding, so that every byte
//! of a record is written and userspace can read it as plain data.

pub mod block;
pub mod collective;
pub mod cuda;
pub mod fields;
pub mod file;
pub mod ioctl;
pub mod memory;
pub mod process;
pub mod python;
pub mod reads;
pub mod sched;
pub mod settings;
pub mod stack;
pub mod unwind;

/// Of a latency histogram: `[2^i, 2^(i+1))` microseconds, under 2 us in the first.
pub const BUCKETS: usize = 24;

pub use block::BlockStats;
pub use collective::{Collective, CollectiveState, Communicator};
pub use cuda::{CudaCall, CudaContext, CudaState, RunState, Submits};
pub use fields::{FIELDS, Field, MISSING, Offsets};
pub use file::{FileInfo, NAME_BYTES, NAMES};
pub use ioctl::{IoctlKey, IoctlStart, IoctlValue};
pub use memory::{InReclaim, Reclaim, ReclaimKey, ReclaimValue};
pub use process::{Exec, Exit, Thread};
pub use python::{
    MAX_PYTHON_FRAMES, NO_STEP, PythonFrame, PythonKept, PythonLayout, PythonStack, PythonThread,
};
pub use reads::{ReadKey, ReadValue, Reading};
pub use sched::{
    CpuWait, OffCpu, OffCpuPath, PATH_BYTES, RanKey, RanValue, ThreadState, TotalKey, TotalValue, flags,
};
pub use settings::Settings;
pub use stack::{Fault, MAX_FRAMES, Sample, Stack};
pub use unwind::{Chunk, Layout, Mapped, Row, Table, Walk};

/// First word of every ring record.
pub mod kind {
    pub const OFF_CPU: u32 = 1;
    pub const OFF_CPU_PATH: u32 = 2;
    pub const STACK: u32 = 3;
    pub const FILE: u32 = 4;
    pub const SAMPLE: u32 = 5;
    pub const FAULT: u32 = 6;
    pub const SUBMITS: u32 = 7;
    pub const CUDA_CALL: u32 = 8;
    pub const THREAD: u32 = 9;
    pub const EXEC: u32 = 10;
    pub const EXIT: u32 = 11;
    pub const CUDA_CONTEXT: u32 = 20;
    pub const COLLECTIVE: u32 = 21;
    pub const RECLAIM: u32 = 22;
    pub const PYTHON_STACK: u32 = 23;
}

/// Rows of the loss counters: `LOSSES[class * CAUSES + cause]`, one table per processor. `capture` says which
/// class and cause of the trace each is.
pub mod loss {
    pub const OFF_CPU: u32 = 0;
    pub const WAIT_TOTAL: u32 = 1;
    pub const LIFECYCLE: u32 = 2;
    pub const SAMPLE: u32 = 3;
    pub const STACK: u32 = 4;
    pub const FILE: u32 = 5;
    pub const CUDA: u32 = 6;
    pub const BLOCK: u32 = 7;
    pub const FAULT: u32 = 8;
    pub const IOCTL: u32 = 9;
    pub const CLASSES: u32 = 10;

    pub const RING_FULL: u32 = 0;
    pub const MAP_FULL: u32 = 1;
    pub const RECURSION: u32 = 2;
    pub const TIME_TRAVEL: u32 = 3;
    pub const READ_FAULT: u32 = 4;
    /// The kernel did not announce a switch: see `LossCause::Unannounced`.
    pub const UNANNOUNCED: u32 = 5;
    pub const CAUSES: u32 = 6;

    /// Count and nanoseconds at risk.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Lost {
        pub count: u64,
        pub ns_at_risk: u64,
    }
}

/// Rows of the `CONTROL` map.
pub mod control {
    /// Which half of `TOTALS` and `RAN` is being filled.
    pub const EPOCH: u32 = 0;
    /// Stays off the processor, and calls, shorter than this make no record.
    pub const THRESHOLD_NS: u32 = 1;
    /// One CPU sample in so many is taken; 0 and 1: each.
    pub const SAMPLE_EVERY: u32 = 2;
    /// After a stay shorter than the threshold the user stack of one in so many is walked; 0 and 1: each.
    pub const STACK_EVERY: u32 = 3;
    pub const ROWS: u32 = 4;
}

/// Bits of a thread's byte in the `PIDS` map.
pub mod pid_bits {
    pub const TARGET: u8 = 1;
    /// Its identity was already sent.
    pub const NAMED: u8 = 2;
    /// It has a row in `PYTHON`.
    pub const PYTHON: u8 = 4;
}

/// What a system call's arguments hold, by call number, for the `SYSCALLS` map: the low nibble is one more
/// than the index of the descriptor argument (0: none), the high nibble one of these.
pub mod call {
    pub const FD_MASK: u8 = 0x0f;
    pub const KIND_MASK: u8 = 0xf0;
    pub const PATH_0: u8 = 0x10;
    pub const PATH_1: u8 = 0x20;
    pub const FUTEX: u8 = 0x30;
    pub const IOCTL: u8 = 0x40;
    /// `poll`, `ppoll`: an array of `struct pollfd` at the first argument.
    pub const POLL: u8 = 0x50;
    /// Rows of the table; system calls above have no row.
    pub const ROWS: u32 = 512;
}

/// Stack and other kinds of `wire::stack::Stack::user`.
pub const KERNEL: u32 = 0;
pub const USER: u32 = 1;

/// A silence: this long without a submit of the thread ends a run of submits.
pub const SILENCE_NS: u64 = 200_000;

#[cfg(feature = "user")]
mod pod {
    macro_rules! pod {
        ($($t:ty),* $(,)?) => {$(
            // SAFETY: `repr(C)`, integers and arrays of integers only, no padding, any bytes are valid.
            unsafe impl aya::Pod for $t {}
        )*};
    }
    pod!(
        super::BlockStats,
        super::CudaState,
        super::CpuWait,
        super::RanKey,
        super::RanValue,
        super::ThreadState,
        super::TotalKey,
        super::TotalValue,
        super::Settings,
        super::OffCpu,
        super::OffCpuPath,
        super::Stack,
        super::FileInfo,
        super::IoctlKey,
        super::IoctlStart,
        super::IoctlValue,
        super::Sample,
        super::Fault,
        super::Submits,
        super::CudaCall,
        super::CudaContext,
        super::RunState,
        super::Collective,
        super::cuda::Group,
        super::Thread,
        super::Exec,
        super::Exit,
        super::Reclaim,
        super::InReclaim,
        super::ReclaimKey,
        super::ReclaimValue,
        super::PythonThread,
        super::PythonLayout,
        super::PythonStack,
        super::PythonKept,
        super::Reading,
        super::ReadKey,
        super::ReadValue,
        super::loss::Lost,
        super::Chunk,
        super::Layout,
        super::Mapped,
        super::Row,
        super::Table,
        super::Walk,
    );
}
