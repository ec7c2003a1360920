//! Python threads: where an interpreter keeps their frames, and the stacks read there.

/// Offset of a step this version of the interpreter does not need.
pub const NO_STEP: u32 = u32::MAX;
/// Frames of a stack, from the innermost.
pub const MAX_PYTHON_FRAMES: usize = 64;
/// Layouts known at a time.
pub const PYTHON_LAYOUTS: u32 = 64;
/// Words of a frame that are read.
pub const FRAME_WORDS: usize = 16;
/// Words of a code object that together tell it from every other: [`PythonLayout::identity`].
pub const IDENTITY_WORDS: usize = 10;

/// One build of the interpreter. Offsets are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PythonLayout {
    /// In a thread state, the word that names its thread.
    pub thread: u32,
    /// There, the pointer to a `_PyCFrame` that holds the frame (3.11, 3.12), else [`NO_STEP`].
    pub cframe: u32,
    /// There, the pointer to the current frame.
    pub current: u32,
    /// Bytes of a frame that hold what follows, under `FRAME_WORDS` words.
    pub span: u32,
    /// In a frame, a multiple of eight each: the frame that called, the code object, the instruction.
    pub previous: u32,
    pub code: u32,
    pub instruction: u32,
    /// In a frame, the byte that tells where a run of the evaluation loop ends.
    pub flag: u32,
    /// In a code object, the words that tell it from others.
    pub identity: u32,
    pub pad: u32,
}

/// One thread, by its id.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonThread {
    /// Address of its `PyThreadState`, not looked at with `local`.
    pub state: u64,
    /// What the word that names the thread must be, 0: not known.
    pub thread: u64,
    /// Where a thread keeps that address itself, from its `fs` base on; 0: not known.
    pub local: i32,
    /// Row of its [`PythonLayout`].
    pub layout: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of the code object; the flag is the topmost byte.
    pub code: u64,
    /// The word that tells the instruction.
    pub instruction: u64,
    /// [`identity`] of the code object, 0 where it could not be read.
    pub identity: u64,
}

/// Sent once per id, ahead of the first stack that names it, at its true length.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PythonStack {
    pub kind: u32,
    pub pid: u32,
    pub id: u64,
    pub frames: u32,
    pub layout: u32,
    /// One of `python_end`.
    pub end: u32,
    pub pad: u32,
    pub entries: [PythonFrame; MAX_PYTHON_FRAMES],
}

/// The last stack of a thread, and room to walk. The thread stands still while a program of its own runs, so
/// programs that interrupt one another write the same.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PythonKept {
    pub stack: PythonStack,
    pub frame: [u64; FRAME_WORDS],
    pub code: [u64; IDENTITY_WORDS],
}

/// How a walk ended.
pub mod python_end {
    /// At the outermost frame.
    pub const WHOLE: u32 = 0;
    pub const TOO_DEEP: u32 = 1;
    /// A frame could not be read.
    pub const UNREADABLE: u32 = 2;
}

const K: u64 = 0xff51_afd7_ed55_8ccd;

#[must_use]
#[inline(always)]
pub fn mix(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(K);
    h ^ (h >> 32)
}

/// Of the words of a code object; never 0.
#[must_use]
pub fn identity(words: &[u64; IDENTITY_WORDS]) -> u64 {
    words.iter().fold(K, |h, word| mix(h, *word)) | 1
}
