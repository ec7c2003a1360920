//! Where CPython keeps its threads and their frames, by version. Facts from each version's headers; 3.13 tells
//! them itself.

/// Byte offsets on 64-bit machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// `_PyRuntimeState.interpreters.head`.
    pub(super) interpreters: u64,
    /// `PyInterpreterState.next`.
    pub(super) next_interpreter: u64,
    /// `PyInterpreterState.tstate_head`, `.threads.head`.
    pub(super) threads: u64,
    /// `PyThreadState.next`.
    pub(super) next_thread: u64,
    pub(super) id: ThreadId,
    /// `PyThreadState.cframe`, where there is one.
    pub(super) cframe: Option<u32>,
    /// `.current_frame` of the cframe, else of the thread state; before 3.11 `.frame`.
    pub(super) frame: u32,
    /// `f_lasti`, `prev_instr`, `instr_ptr` of the frame.
    pub(super) instruction: u32,
}

/// How a thread state names its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadId {
    /// The kernel's id, at this offset (`native_thread_id`).
    Native(u64),
    /// A `pthread_t` at this offset (`thread_id`).
    Pthread(u64),
}

const OLD: Layout = Layout {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    id: ThreadId::Pthread(176),
    cframe: None,
    frame: 24,
    instruction: 104,
};
const V3_10: Layout = Layout { instruction: 96, ..OLD };
const V3_11: Layout = Layout {
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    id: ThreadId::Native(160),
    cframe: Some(56),
    frame: 8,
    instruction: 56,
};
const V3_12: Layout = Layout { threads: 72, id: ThreadId::Native(144), frame: 0, ..V3_11 };

/// The layout of a version that does not tell it itself.
#[must_use]
pub(super) fn of(major: u8, minor: u8) -> Option<Layout> {
    match (major, minor) {
        (3, 8 | 9) => Some(OLD),
        (3, 10) => Some(V3_10),
        (3, 11) => Some(V3_11),
        (3, 12) => Some(V3_12),
        _ => None,
    }
}

/// Bytes of `_Py_DebugOffsets` that are looked at.
pub(super) const DEBUG_OFFSETS: usize = 32 * 8;

/// The layout in the `_Py_DebugOffsets` at the start of 3.13's `_PyRuntime`. `None` for anything else, and for
/// a build without the interpreter lock, whose threads are kept otherwise.
#[must_use]
pub(super) fn told(bytes: &[u8; DEBUG_OFFSETS]) -> Option<Layout> {
    let word = |i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
        u64::from_le_bytes(word)
    };
    let small = |i: usize| u32::try_from(word(i)).ok();
    let (version, free_threaded) = (word(1), word(2));
    if &bytes[..8] != b"xdebugpy" || version >> 16 != 0x30d || free_threaded != 0 {
        return None;
    }
    Some(Layout {
        interpreters: word(5),
        next_interpreter: word(8),
        threads: word(9),
        next_thread: word(21),
        id: ThreadId::Native(word(25)),
        cframe: None,
        frame: small(23)?,
        instruction: small(31)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(version: u64, free_threaded: u64) -> [u8; DEBUG_OFFSETS] {
        let mut bytes = [0; DEBUG_OFFSETS];
        for i in 0..32u64 {
            let word = match i {
                0 => u64::from_le_bytes(*b"xdebugpy"),
                1 => version << 16,
                2 => free_threaded,
                _ => i * 100,
            };
            bytes[i as usize * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn what_an_interpreter_tells_is_taken() {
        let layout = told(&offsets(0x30d, 0)).unwrap();
        assert_eq!((layout.interpreters, layout.threads, layout.id), (500, 900, ThreadId::Native(2500)));
        assert_eq!((layout.cframe, layout.frame, layout.instruction), (None, 2300, 3100));
    }

    #[test]
    fn other_versions_and_builds_are_not_guessed_at() {
        assert_eq!(told(&offsets(0x30e, 0)), None);
        assert_eq!(told(&offsets(0x30d, 1)), None);
        assert_eq!(told(&[0; DEBUG_OFFSETS]), None);
        for (major, minor) in [(2, 7), (3, 7), (3, 13), (4, 8)] {
            assert_eq!(of(major, minor), None);
        }
        assert!((8..=12).all(|minor| of(3, minor).is_some()));
    }
}
