//! One rule, packed as the kernel side takes it (`wire::unwind::rule`).

use tracer_ebpf::wire::unwind::rule;

/// What a frame's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// The stack pointer and so many bytes.
    Sp(i64),
    /// The frame pointer and so many bytes.
    Bp(i64),
    /// The word so many bytes from the stack pointer, and bytes on top.
    AtSp(i64, i64),
    /// The word so many bytes from the frame pointer, and bytes on top.
    AtBp(i64, i64),
    /// A stub of the procedure linkage table that has pushed a word from this byte of its 16 on.
    Stub(u64),
    Signal,
    Start,
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Same,
    /// So many bytes below the CFA.
    Below(i64),
    /// Where the frame pointer points to.
    AtBp,
    Lost,
}

/// `NONE` for what does not fit.
pub(super) fn packed(cfa: Cfa, frame: Frame) -> u32 {
    let parts = || {
        let (kind, offset, add) = match cfa {
            Cfa::Sp(offset) => (rule::SP, words(offset)?, 0),
            Cfa::Bp(offset) => (rule::BP, words(offset)?, 0),
            Cfa::AtSp(offset, add) => (rule::AT_SP, words(offset)?, words(add)?),
            Cfa::AtBp(offset, add) => (rule::AT_BP, words(offset)?, words(add)?),
            Cfa::Stub(from) => (rule::STUB, i32::try_from(from).ok().filter(|from| *from < 16)?, 0),
            Cfa::Signal => (rule::SIGNAL, 0, 0),
            Cfa::Start => (rule::START, 0, 0),
        };
        let add = u32::try_from(add).ok().filter(|add| *add <= rule::ADD)?;
        let frame = match frame {
            Frame::Same => rule::FRAME_SAME,
            Frame::Below(bytes) => {
                let below = u32::try_from(words(bytes)?).ok().filter(|below| *below <= rule::BELOW)?;
                rule::FRAME_BELOW | below << rule::BELOW_SHIFT
            }
            Frame::AtBp => rule::FRAME_AT_BP,
            Frame::Lost => rule::FRAME_LOST,
        };
        Some(kind | frame | add << rule::ADD_SHIFT | offset.cast_unsigned() << rule::OFFSET_SHIFT)
    };
    parts().unwrap_or(rule::NONE)
}

/// Bytes as words, where they are whole and few enough.
fn words(bytes: i64) -> Option<i32> {
    const MOST: i64 = 1 << (31 - rule::OFFSET_SHIFT);
    let words = bytes / 8;
    (bytes % 8 == 0 && (-MOST..MOST).contains(&words)).then(|| i32::try_from(words).ok()).flatten()
}
