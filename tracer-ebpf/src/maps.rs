//! All maps. Sizes marked "set at load" are placeholders.

use aya_ebpf::btf_maps::{self, ArrayOfMaps};
use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use tracer_ebpf::wire;
use tracer_ebpf::wire::cuda::{Handle, Recorded, layout};
use tracer_ebpf::wire::unwind::{CHUNK_WORDS, OBJECTS as MAX_OBJECTS, SEGMENT_CHUNKS, SEGMENTS};
use tracer_ebpf::wire::{
    BlockStats, CollectiveState, Communicator, CpuWait, CudaState, InReclaim, IoctlKey, IoctlStart,
    IoctlValue, Layout, PythonKept, PythonLayout, PythonThread, RanKey, RanValue, ReadKey, ReadValue,
    Reading, ReclaimKey, ReclaimValue, RunState, Table, ThreadState, TotalKey, TotalValue, Walk, call,
    control, loss,
};

/// `BPF_F_MMAPABLE`: userspace sets single bytes, which an element-wise update could not do without a race.
const MMAPABLE: u32 = 1024;

/// A byte a thread id (`pid_bits`), up to the kernel's largest id, 2^22.
#[map]
pub static PIDS: Array<[u8; 8]> = Array::with_max_entries((1 << 22) / 8, MMAPABLE);

#[map]
pub static THREADS: HashMap<u32, ThreadState> = HashMap::with_max_entries(16_384, 0);

/// A state of zeros: too big to be built on the stack.
#[map]
pub static BLANK: Array<ThreadState> = Array::with_max_entries(1, 0);

#[map]
pub static BLANK_CUDA: Array<CudaState> = Array::with_max_entries(1, 0);

#[map]
pub static CUDA: HashMap<u32, CudaState> = HashMap::with_max_entries(4096, 0);

#[map]
pub static BLANK_RUN: Array<RunState> = Array::with_max_entries(1, 0);

/// By thread and context, see `probes::cuda::thread::run_key`.
#[map]
pub static RUNS: HashMap<u32, RunState> = HashMap::with_max_entries(2048, 0);

/// `wire::cuda::layout`, by `EntryPoint::id`.
#[map]
pub static CALLS: Array<u64> = Array::with_max_entries(layout::ROWS, 0);

/// Where and when events were last recorded.
#[map]
pub static EVENTS: LruHashMap<Handle, Recorded> = LruHashMap::with_max_entries(8192, 0);

/// Ordinal of the device that a context is on.
#[map]
pub static DEVICES: LruHashMap<Handle, u32> = LruHashMap::with_max_entries(1024, 0);

#[map]
pub static BLANK_COLLECTIVE: Array<CollectiveState> = Array::with_max_entries(1, 0);

#[map]
pub static COLLECTIVES: HashMap<u32, CollectiveState> = HashMap::with_max_entries(1024, 0);

#[map]
pub static COMMUNICATORS: LruHashMap<Handle, Communicator> = LruHashMap::with_max_entries(1024, 0);

#[map]
pub static TOTALS: HashMap<TotalKey, TotalValue> = HashMap::with_max_entries(32_768, 0);

/// What userspace changes while programs run, see `wire::control`.
#[map]
pub static CONTROL: Array<u64> = Array::with_max_entries(control::ROWS, 0);

/// Ticks of the clock in targets, for `control::SAMPLE_EVERY`.
#[map]
pub static TICKS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Set at load: one row a processor.
#[map]
pub static WAITING: Array<CpuWait> = Array::with_max_entries(1, 0);

#[map]
pub static RAN: HashMap<RanKey, RanValue> = HashMap::with_max_entries(8192, 0);

/// Set at load.
#[map]
pub static RING: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

#[map]
pub static LIFECYCLE: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

#[map]
pub static LOSSES: PerCpuArray<loss::Lost> = PerCpuArray::with_max_entries(loss::CLASSES * loss::CAUSES, 0);

#[map]
pub static STACKS_SENT: LruHashMap<u64, u8> = LruHashMap::with_max_entries(65_536, 0);

#[map]
pub static FILES_SENT: LruHashMap<u64, u8> = LruHashMap::with_max_entries(65_536, 0);

/// `wire::call`, by system-call number.
#[map]
pub static SYSCALLS: Array<u8> = Array::with_max_entries(call::ROWS, 0);

/// 1 for the character-device majors taken as the NVIDIA driver's.
#[map]
pub static MAJORS: Array<u8> = Array::with_max_entries(4096, 0);

/// Requests in flight: the request's address to its issue time.
#[map]
pub static IN_FLIGHT: HashMap<u64, u64> = HashMap::with_max_entries(16_384, 0);

#[map]
pub static DISKS: HashMap<u32, BlockStats> = HashMap::with_max_entries(256, 0);

/// ioctls under way on the NVIDIA driver's nodes, by thread.
#[map]
pub static IOCTLS_OPEN: HashMap<u32, IoctlStart> = HashMap::with_max_entries(8192, 0);

#[map]
pub static IOCTLS: HashMap<IoctlKey, IoctlValue> = HashMap::with_max_entries(4096, 0);

/// Threads whose interpreter userspace has found, by thread id.
#[map]
pub static PYTHON: HashMap<u32, PythonThread> = HashMap::with_max_entries(16_384, 0);

/// By `PythonThread::layout`.
#[map]
pub static PYTHON_LAYOUTS: Array<PythonLayout> = Array::with_max_entries(wire::python::PYTHON_LAYOUTS, 0);

#[map]
pub static BLANK_PYTHON: Array<PythonKept> = Array::with_max_entries(1, 0);

/// By thread id.
#[map]
pub static PYTHON_KEPT: HashMap<u32, PythonKept> = HashMap::with_max_entries(4096, 0);

#[map]
pub static PYTHON_SENT: LruHashMap<u64, u8> = LruHashMap::with_max_entries(32_768, 0);

/// Code objects in the stacks that were sent, by `PythonFrame::identity`.
#[map]
pub static PYTHON_CODE: LruHashMap<u64, u8> = LruHashMap::with_max_entries(16_384, 0);

/// By thread id. An evicted row costs the count of one read.
#[map]
pub static READING: LruHashMap<u32, Reading> = LruHashMap::with_max_entries(16_384, 0);

#[map]
pub static READS: HashMap<ReadKey, ReadValue> = HashMap::with_max_entries(8192, 0);

/// Reclaim and compaction under way, by thread and kind.
#[map]
pub static IN_RECLAIM: HashMap<ReclaimKey, InReclaim> = HashMap::with_max_entries(4096, 0);

#[map]
pub static RECLAIMED: HashMap<ReclaimKey, ReclaimValue> = HashMap::with_max_entries(8192, 0);

/// What stacks are walked by, see `wire::unwind::Chunk`. Userspace adds segments as they are needed, which have no types;
/// from 5.15 to 6.1 the kernel takes them only where the type here is no structure.
#[btf_map]
pub static POOL: ArrayOfMaps<
    btf_maps::Array<[u64; CHUNK_WORDS], SEGMENT_CHUNKS, { MMAPABLE as usize }>,
    SEGMENTS,
> = ArrayOfMaps::new();

/// By `Mapped::object`.
#[map]
pub static TABLES: Array<Table> = Array::with_max_entries(MAX_OBJECTS, 0);

/// By process id.
#[map]
pub static LAYOUTS: HashMap<u32, Layout> = HashMap::with_max_entries(16_384, 0);

#[map]
pub static BLANK_WALK: Array<Walk> = Array::with_max_entries(1, 0);

/// Walks of programs that may be preempted, by thread id.
#[map]
pub static WALKS: HashMap<u32, Walk> = HashMap::with_max_entries(4096, 0);

#[inline(always)]
pub fn epoch() -> u32 {
    CONTROL.get(control::EPOCH).copied().unwrap_or(0) as u32
}

/// Stays shorter than this are only added up.
#[inline(always)]
pub fn threshold_ns() -> u64 {
    CONTROL.get(control::THRESHOLD_NS).copied().unwrap_or(0)
}

/// Of so many ticks of the clock one makes a sample.
#[inline(always)]
pub fn sample_every() -> u64 {
    CONTROL.get(control::SAMPLE_EVERY).copied().unwrap_or(0).max(1)
}

/// Of so many stays that follow a short one the user stack of one is walked.
#[inline(always)]
pub fn stack_every() -> u64 {
    CONTROL.get(control::STACK_EVERY).copied().unwrap_or(0)
}

/// The row of a system call, 0 for none.
#[inline(always)]
pub fn call_row(nr: i32) -> u8 {
    if nr < 0 || nr as u32 >= call::ROWS {
        return 0;
    }
    SYSCALLS.get(nr as u32).copied().unwrap_or(0)
}
