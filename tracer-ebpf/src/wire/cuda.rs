//! CUDA driver calls: runs of submits, and calls that synchronised or were long.

/// `trace::CudaFamily` by position, as cookies carry it.
pub mod family {
    pub const LAUNCH: u32 = 0;
    pub const GRAPH_LAUNCH: u32 = 1;
    pub const COPY: u32 = 2;
    pub const MEMSET: u32 = 3;
    pub const SYNCHRONIZE: u32 = 4;
    pub const EVENT_QUERY: u32 = 5;
    pub const ALLOCATE: u32 = 6;
    pub const FREE: u32 = 7;
    pub const HOST_ALLOCATE: u32 = 8;
    pub const LOAD: u32 = 9;
    pub const SET_CONTEXT: u32 = 10;
    pub const EVENT_RECORD: u32 = 11;
    pub const COLLECTIVE: u32 = 12;
}

/// Parts of a probe's cookie; the low half is `EntryPoint::id`.
pub mod cookie {
    pub const FAMILY_SHIFT: u32 = 32;
    pub const FAMILY_MASK: u64 = 0xffff;
    /// Its return is wanted but not probed: the thread's next entry ends the call.
    pub const NO_RETURN: u64 = 1 << 63;
}

/// Where an entry point's arguments lie, for the `CALLS` map: a word per `EntryPoint::id`. Each place is a
/// nibble, 1 for the first argument, 0 for none; 7 and on lie on the stack.
pub mod layout {
    pub const STREAM: u32 = 0;
    /// Event, function, graph or communicator.
    pub const OBJECT: u32 = 4;
    pub const BYTES: u32 = 8;
    /// What the bytes are multiplied by: the height of a rectangle.
    pub const TIMES: u32 = 12;
    /// Host memory, or where the caller wants an address or a handle.
    pub const ADDRESS: u32 = 16;
    /// The other side of a copy whose name does not say which is the host's.
    pub const ADDRESS_TOO: u32 = 20;
    /// Three bits: one more than `trace::CopyDirection` by position.
    pub const DIRECTION: u32 = 24;
    /// Two bits: the logarithm of the width of what is counted instead of bytes.
    pub const WIDTH: u32 = 27;
    /// Five bits, one of `shape`.
    pub const SHAPE: u32 = 29;
    /// Some arguments lie on the stack.
    pub const ON_STACK: u64 = 1 << 34;
    /// A null stream is the thread's own.
    pub const PER_THREAD: u64 = 1 << 35;
    /// A call without a stream that uses the null stream.
    pub const NULL_STREAM: u64 = 1 << 36;

    /// Rows of the table.
    pub const ROWS: u32 = 256;
}

/// What is particular about an entry point.
pub mod shape {
    pub const PLAIN: u64 = 0;
    /// Arguments 2 to 4 are the grid.
    pub const GRID: u64 = 1;
    /// Argument 1 points to a `CUlaunchConfig`.
    pub const CONFIG: u64 = 2;
    /// Argument 1 points to a `CUDA_MEMCPY2D`, a `CUDA_MEMCPY3D`.
    pub const COPY_2D: u64 = 3;
    pub const COPY_3D: u64 = 4;
    pub const SET_CONTEXT: u64 = 5;
    pub const PUSH_CONTEXT: u64 = 6;
    pub const POP_CONTEXT: u64 = 7;
    /// A context whose handle is given at `ADDRESS`, on the device at `OBJECT`: it becomes current, or not.
    pub const CREATE_CONTEXT: u64 = 8;
    pub const RETAIN_CONTEXT: u64 = 9;
    /// The object is an event.
    pub const EVENT: u64 = 10;
    pub const RECORD: u64 = 11;
    /// Host memory whose address is given at `ADDRESS`, or is `ADDRESS`.
    pub const HOST_ALLOCATE: u64 = 12;
    pub const HOST_REGISTER: u64 = 13;
    pub const HOST_FREE: u64 = 14;
    /// From here on a collective library's: an operation on the communicator at `OBJECT`.
    pub const COLLECTIVE: u64 = 16;
    pub const GROUP_START: u64 = 17;
    pub const GROUP_END: u64 = 18;
    /// A communicator whose handle is given at `ADDRESS`, of `BYTES` ranks this one being `TIMES`; the id of
    /// the group lies on the stack by value, or at `OBJECT`.
    pub const BIRTH: u64 = 19;
    /// `BYTES` communicators in an array at `ADDRESS`.
    pub const BIRTH_OF_ALL: u64 = 20;
    pub const DEATH: u64 = 21;
}

/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: i32 = 600;

/// Rows that say what they are, and the rest as one for each of the four families that submit.
pub const GROUPS: usize = 32;
pub const REST: usize = 4;

/// Calls of one run that are alike in all but time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    pub stream: u64,
    pub function: u64,
    pub count: u64,
    pub first: u64,
    pub last: u64,
    pub bytes: u64,
    pub timed: u64,
    pub call_ns: u64,
    pub grid: [u32; 3],
    /// Family, one more than the direction in the second byte.
    pub what: u32,
}

/// A run of submits without a silence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// 0: no submit; copies alone begin no run.
    pub first: u64,
    pub last: u64,
    pub launches: u64,
    pub graph_launches: u64,
    pub memsets: u64,
    pub copies: u64,
    pub user_stack: u64,
}

/// Sent up to the last group in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Submits {
    pub kind: u32,
    /// `GROUPS + REST` once there is a rest.
    pub groups: u32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    pub context: u64,
    pub run: Run,
    pub rows: [Group; GROUPS + REST],
}

/// Of one thread and context, between two hits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RunState {
    pub out: Submits,
    /// First call of any kind since the last record, 0: none.
    pub begun: u64,
    /// Hashes of the rows' keys.
    pub keys: [u64; GROUPS],
    /// The row of the last call.
    pub row: u32,
    pub pad: u32,
}

/// Bits of `CudaCall::flags`.
pub mod call_flags {
    pub const STREAM: u32 = 1;
    pub const RESULT: u32 = 2;
    pub const BY_NEXT: u32 = 4;
}

/// What a call is about, from its arguments.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct What {
    pub family: u32,
    pub id: u32,
    pub layout: u64,
    pub stream: u64,
    pub object: u64,
    pub bytes: u64,
    pub address: u64,
    pub address_too: u64,
    pub grid: [u32; 3],
    /// One more than the direction.
    pub direction: u32,
    pub flags: u32,
    pub pad: u32,
    /// Last record of the event.
    pub recorded_at: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudaCall {
    pub kind: u32,
    pub result: i32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    pub entry: u64,
    /// 0: not returned yet.
    pub exit: u64,
    pub user_stack: u64,
    pub context: u64,
    pub repeats: u64,
    pub what: What,
}

/// Results of a query in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// Event, or stream with the highest bit set; 0: none.
    pub key: u64,
    /// When it was last in a record.
    pub said: u64,
    pub repeats: u32,
    pub result: i32,
}

pub const QUERIES: usize = 8;
/// Contexts a thread changes between without its runs being cut.
pub const CONTEXTS: usize = 8;
pub const PUSHED: usize = 4;

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
    pub call_stack: u64,
    /// Calls from inside the one under way.
    pub nested: u32,
    /// The one under way ends with the next entry.
    pub by_next: u32,
    /// `RunState::begun` of the run that the call under way is counted in.
    pub run_begun: u64,
    pub what: What,
    pub contexts: [u64; CONTEXTS],
    /// Of the current context, and the next to be given away.
    pub slot: u32,
    pub next_slot: u32,
    pub pushed: [u64; PUSHED],
    pub depth: u32,
    pub next_query: u32,
    /// When a query last made a record.
    pub queried: u64,
    pub queries: [Query; QUERIES],
    /// 1 to 6 from registers, 7 to 11 from the stack.
    pub arguments: [u64; 16],
    pub pad: u32,
    /// An index on its way from a search, where the verifier does not follow its value.
    pub found: u32,
    /// A structure that an argument points to.
    pub scratch: [u64; 32],
}

/// Names an event, or a communicator, of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    pub handle: u64,
    pub pid: u64,
}

/// Where and when an event was last recorded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    pub at: u64,
    pub stream: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudaContext {
    pub kind: u32,
    pub ordinal: u32,
    pub at: u64,
    pub context: u64,
    pub pid: u32,
    pub pad: u32,
}
