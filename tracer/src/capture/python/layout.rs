//! Where CPython keeps its threads, their frames, and the code they run, by version. Numbers are `offsetof`
//! and `sizeof` on x86-64, from each version's headers; 3.13 and later tell them themselves.

use tracer_ebpf::wire::{NO_STEP, PythonLayout};

/// Byte offsets, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: (u8, u8),
    /// `_PyRuntimeState.interpreters.head`.
    pub(super) interpreters: u64,
    /// `PyInterpreterState.next`.
    pub(super) next_interpreter: u64,
    /// `PyInterpreterState.tstate_head`, `.threads.head`.
    pub(super) threads: u64,
    /// `PyThreadState.next`.
    pub(super) next_thread: u64,
    pub(super) id: ThreadId,
    /// `PyThreadState.thread_id`: a `pthread_t`.
    pub(super) pthread: u64,
    /// What the kernel side reads of threads and frames.
    pub(super) frames: PythonLayout,
    pub(super) runs: Runs,
    /// `PyObject.ob_type`.
    pub(super) type_of: u64,
    pub(super) code: Code,
    pub(super) text: Text,
    pub(super) bytes: Bytes,
}

/// How a thread state names its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadId {
    /// The kernel's id in the process's own namespace, at this offset (`native_thread_id`).
    Native(u64),
    /// By `thread_id` alone.
    Pthread,
}

/// How a frame's flag tells where a run of the evaluation loop, one native frame, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Each frame has its own.
    Frame,
    /// The flag is `is_entry`, set in a run's first frame.
    Entry,
    /// The flag is `owner`; with this and above the frame is no function's, and stands around a run.
    Shim(u8),
}

/// `PyCodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) filename: u64,
    /// `co_qualname`, before 3.11 `co_name`.
    pub(super) name: u64,
    pub(super) first_line: u64,
    pub(super) lines: Lines,
    /// `co_lnotab`, `co_linetable`.
    pub(super) line_table: u64,
    /// `co_code_adaptive`, which lies in the object; before 3.11 not needed.
    pub(super) instructions: u64,
    /// `co_tlbc`: the threads' own copies of the instructions, in free-threaded builds from 3.14.
    pub(super) copies: Option<u64>,
}

/// How lines are told (`Objects/lnotab_notes.txt`, `Objects/locations.md` of CPython), and instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// To 3.9. Instructions by `f_lasti`, in bytes.
    Lnotab,
    /// 3.10. Instructions by `f_lasti`, in units of two bytes.
    Linetable,
    /// From 3.11. Instructions by address.
    Locations,
}

/// `PyASCIIObject` and the two that begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) length: u64,
    pub(super) state: u64,
    /// First bit of `state.kind`; those of `compact` and `ascii` follow.
    pub(super) kind_bit: u32,
    /// Size of a `PyASCIIObject`.
    pub(super) ascii: u64,
    /// Size of a `PyCompactUnicodeObject`, and offset of `PyUnicodeObject.data`.
    pub(super) compact: u64,
}

/// `PyBytesObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) size: u64,
    pub(super) data: u64,
}

/// After the count of references; free-threaded builds have more before it.
pub(super) const TYPE_OF: u64 = 8;
const BYTES: Bytes = Bytes { size: 16, data: 32 };
/// To 3.11 with `wstr`.
const OLD_TEXT: Text = Text { length: 16, state: 32, kind_bit: 2, ascii: 48, compact: 72 };
const TEXT: Text = Text { ascii: 40, compact: 56, ..OLD_TEXT };

/// `pystate.h`, `frameobject.h`, `code.h`, `pycore_pystate.h`.
const V3_8: Layout = Layout {
    version: (3, 8),
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    id: ThreadId::Pthread,
    pthread: 176,
    frames: PythonLayout {
        thread: 176,
        cframe: NO_STEP,
        current: 24,
        span: 112,
        previous: 24,
        code: 32,
        instruction: 104,
        flag: 0,
        // `co_code` to `co_lnotab`.
        identity: 48,
        pad: 0,
    },
    runs: Runs::Frame,
    type_of: TYPE_OF,
    code: Code {
        filename: 104,
        name: 112,
        first_line: 40,
        lines: Lines::Lnotab,
        line_table: 120,
        instructions: 0,
        copies: None,
    },
    text: OLD_TEXT,
    bytes: BYTES,
};
const V3_9: Layout = Layout { version: (3, 9), ..V3_8 };
const V3_10: Layout = Layout {
    version: (3, 10),
    frames: PythonLayout { instruction: 96, span: 104, ..V3_8.frames },
    code: Code { lines: Lines::Linetable, ..V3_8.code },
    ..V3_8
};
/// `pycore_runtime.h`, `pycore_interp.h`, `cpython/pystate.h`, `pycore_frame.h`, `cpython/code.h`.
const V3_11: Layout = Layout {
    version: (3, 11),
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    id: ThreadId::Native(160),
    pthread: 152,
    frames: PythonLayout {
        thread: 160,
        cframe: 56,
        current: 8,
        span: 72,
        previous: 48,
        code: 32,
        instruction: 56,
        flag: 68,
        // `co_kwonlyargcount` to `co_linetable`.
        identity: 64,
        pad: 0,
    },
    runs: Runs::Entry,
    type_of: TYPE_OF,
    code: Code {
        filename: 112,
        name: 128,
        first_line: 72,
        lines: Lines::Locations,
        line_table: 136,
        instructions: 184,
        copies: None,
    },
    text: OLD_TEXT,
    bytes: BYTES,
};
const V3_12: Layout = Layout {
    version: (3, 12),
    threads: 72,
    id: ThreadId::Native(144),
    pthread: 136,
    frames: PythonLayout { thread: 144, current: 0, previous: 8, code: 0, flag: 70, ..V3_11.frames },
    runs: Runs::Shim(FRAME_OWNED_BY_CSTACK),
    code: Code { first_line: 68, instructions: 192, ..V3_11.code },
    text: TEXT,
    ..V3_11
};

/// In 3.12 and 3.13. 3.14 calls it `FRAME_OWNED_BY_INTERPRETER`, and the next is no function's either.
const FRAME_OWNED_BY_CSTACK: u8 = 3;

/// The layout of a version that does not tell it itself.
#[must_use]
pub(super) fn of(major: u8, minor: u8) -> Option<Layout> {
    [V3_8, V3_9, V3_10, V3_11, V3_12].into_iter().find(|layout| layout.version == (major, minor))
}

/// Bytes of `_Py_DebugOffsets` that are looked at.
pub(super) const DEBUG_OFFSETS: usize = 96 * 8;

/// Places of words in `_Py_DebugOffsets` (`pycore_runtime.h` of 3.13, `pycore_debug_offsets.h` of 3.14 and
/// 3.15): a version may put new ones in the midst of its parts.
struct Places {
    minor: u8,
    thread_state: usize,
    native_id: usize,
    interpreter_frame: usize,
    code: usize,
    /// `co_tlbc`, after `co_code_adaptive`.
    copies: bool,
    /// Its free-threaded build was tried: what a program says of itself is what is read of it.
    free_threaded: bool,
    type_of: usize,
    bytes: usize,
    text: usize,
}

const PLACES: [Places; 3] = [
    Places {
        minor: 13,
        thread_state: 19,
        native_id: 25,
        interpreter_frame: 28,
        code: 34,
        copies: false,
        free_threaded: true,
        type_of: 45,
        bytes: 64,
        text: 67,
    },
    Places {
        minor: 14,
        thread_state: 22,
        native_id: 28,
        interpreter_frame: 31,
        code: 39,
        copies: true,
        free_threaded: false,
        type_of: 51,
        bytes: 74,
        text: 77,
    },
    Places {
        minor: 15,
        thread_state: 22,
        native_id: 31,
        interpreter_frame: 39,
        code: 47,
        copies: true,
        free_threaded: false,
        type_of: 59,
        bytes: 86,
        text: 89,
    },
];

/// The version in the `_Py_DebugOffsets` at the start of a `_PyRuntime`, and whether it is free-threaded.
#[must_use]
pub(super) fn version(bytes: &[u8; DEBUG_OFFSETS]) -> Option<((u8, u8), bool)> {
    let version = word(bytes, 1)?;
    let known = bytes.starts_with(b"xdebugpy") && version >> 32 == 0;
    known.then_some((((version >> 24) as u8, (version >> 16) as u8), word(bytes, 2)? != 0))
}

/// The layout told there. `None` for a version whose words are not known.
#[must_use]
pub(super) fn told(bytes: &[u8; DEBUG_OFFSETS]) -> Option<Layout> {
    let (version, free_threaded) = version(bytes)?;
    let places = PLACES.iter().find(|places| (3, places.minor) == version)?;
    if free_threaded && !places.free_threaded {
        return None;
    }
    let at = |i: usize| word(bytes, i).filter(|offset| *offset < 1 << 20);
    let small = |i: usize| Some(at(i)? as u32);
    let (thread, frame, code) = (places.thread_state, places.interpreter_frame, places.code);
    let (filename, ascii) = (at(code + 1)?, at(places.text + 3)?);
    let (instruction, flag) = (small(frame + 3)?, small(frame + 5)?);
    Some(Layout {
        version,
        interpreters: at(5)?,
        next_interpreter: at(8)?,
        threads: at(9)?,
        next_thread: at(thread + 2)?,
        id: ThreadId::Native(at(places.native_id)?),
        // `thread_id` stands before.
        pthread: at(places.native_id - 1)?,
        frames: PythonLayout {
            thread: small(places.native_id)?,
            cframe: NO_STEP,
            current: small(thread + 4)?,
            span: instruction.max(flag) / 8 * 8 + 8,
            previous: small(frame + 1)?,
            code: small(frame + 2)?,
            instruction,
            flag,
            // `co_stacksize` to `co_linetable`.
            identity: u32::try_from(filename).ok()?.checked_sub(48)?,
            pad: 0,
        },
        runs: Runs::Shim(FRAME_OWNED_BY_CSTACK),
        type_of: at(places.type_of)?,
        code: Code {
            filename,
            name: at(code + 3)?,
            first_line: at(code + 5)?,
            lines: Lines::Locations,
            line_table: at(code + 4)?,
            instructions: at(code + 9)?,
            copies: if places.copies && free_threaded { Some(at(code + 10)?) } else { None },
        },
        text: Text {
            length: at(places.text + 2)?,
            state: at(places.text + 1)?,
            // 3.14 gives `interned` a byte of its own in free-threaded builds.
            kind_bit: if free_threaded && places.minor >= 14 { 8 } else { 2 },
            ascii,
            // `utf8_length` and `utf8` more.
            compact: ascii + 16,
        },
        bytes: Bytes { size: at(places.bytes + 1)?, data: at(places.bytes + 2)? },
    })
}

fn word(bytes: &[u8; DEBUG_OFFSETS], i: usize) -> Option<u64> {
    bytes.as_chunks().0.get(i).map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(version: u64, free_threaded: u64) -> [u8; DEBUG_OFFSETS] {
        let mut bytes = [0; DEBUG_OFFSETS];
        for i in 0..(DEBUG_OFFSETS / 8) as u64 {
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
        assert_eq!((layout.frames.cframe, layout.frames.current), (NO_STEP, 2300));
        assert_eq!((layout.frames.instruction, layout.frames.flag), (3100, 3300));
        assert_eq!((layout.code.filename, layout.code.name, layout.code.copies), (3500, 3700, None));
        assert_eq!((layout.text.state, layout.text.ascii, layout.text.kind_bit), (6800, 7000, 2));
        let layout = told(&offsets(0x30f, 0)).unwrap();
        assert_eq!((layout.id, layout.frames.current), (ThreadId::Native(3100), 2600));
        assert_eq!((layout.code.filename, layout.bytes.data, layout.code.copies), (4800, 8800, None));
    }

    #[test]
    fn free_threaded_builds_are_taken_where_they_were_tried() {
        let layout = told(&offsets(0x30d, 1)).unwrap();
        assert_eq!((layout.type_of, layout.code.copies, layout.text.kind_bit), (4500, None, 2));
        for version in [0x30e, 0x30f] {
            assert_eq!(told(&offsets(version, 1)), None);
        }
    }

    #[test]
    fn other_versions_are_not_guessed_at() {
        assert_eq!(told(&offsets(0x310, 0)), None);
        assert_eq!(version(&offsets(0x310, 0)), Some(((3, 16), false)));
        assert_eq!(version(&offsets(0x30e, 1)), Some(((3, 14), true)));
        assert_eq!(told(&[0; DEBUG_OFFSETS]), None);
        assert_eq!(version(&[0; DEBUG_OFFSETS]), None);
        for (major, minor) in [(2, 7), (3, 7), (3, 13), (4, 8)] {
            assert_eq!(of(major, minor), None);
        }
        assert!((8..=12).all(|minor| of(3, minor).is_some()));
    }

    #[test]
    fn what_the_kernel_side_reads_lies_in_what_it_reads() {
        for layout in (8..=12).filter_map(|minor| of(3, minor)) {
            let PythonLayout { span, previous, code, instruction, flag, .. } = layout.frames;
            assert!(span < 128 && span % 8 == 0);
            assert!([previous, code, instruction].iter().all(|at| at % 8 == 0 && at + 8 <= span));
            assert!(flag < span);
        }
    }
}
