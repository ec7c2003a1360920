//! Calls of a collective library.

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Collective {
    pub kind: u32,
    /// `EntryPoint::id`.
    pub id: u32,
    pub tid: u32,
    pub pid: u32,
    pub start_boottime: u64,
    pub entry: u64,
    /// 0: not seen.
    pub exit: u64,
    pub communicator: u64,
    pub sequence: u64,
    /// 0: its birth was not seen.
    pub group: u64,
    pub rank: u32,
    pub ranks: u32,
    pub stream: u64,
    pub user_stack: u64,
}

/// A communicator of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Communicator {
    /// Hash of its unique id, 0: its birth was not seen.
    pub group: u64,
    pub rank: u32,
    pub ranks: u32,
    /// Operations so far.
    pub sequence: u64,
}

/// Operations of one group that are held back until it ends; the others go out at once.
pub const HELD: usize = 16;

/// Words of a `ncclUniqueId`.
pub const ID_WORDS: usize = 16;

/// One thread between two hits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollectiveState {
    pub start_boottime: u64,
    pub tid: u32,
    pub pid: u32,
    /// Of the outermost call under way, 0 if none.
    pub sp: u64,
    pub entry: u64,
    pub shape: u64,
    /// Groups begun and not ended.
    pub depth: u32,
    pub held: u32,
    /// Where a birth gives its handle, and its group, rank and ranks.
    pub address: u64,
    pub born: Communicator,
    /// The operation under way.
    pub operation: Collective,
    pub operations: [Collective; HELD],
    pub arguments: [u64; 16],
    pub id_words: [u64; ID_WORDS],
}
