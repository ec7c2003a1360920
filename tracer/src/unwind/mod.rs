//! Tables of unwind rules, made of what compilers leave for exception handling (`.eh_frame`, `.debug_frame`), and of the
//! instructions where they left nothing: bytes in, rows for the kernel side out. Nothing in the bytes is believed, and nothing in them makes this panic.

mod assembly;
mod expression;
mod image;
mod rows;
mod rule;
pub mod testing;

pub(crate) use image::{Code, Image};
pub(crate) use rows::rows;

/// Why an object has no table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnwindError {
    #[error("damaged ELF file: {0}")]
    Damaged(#[from] object::read::Error),
    #[error("its file is gone")]
    Gone,
    #[error("no executable segment")]
    NoCode,
    #[error("not for x86-64")]
    OtherMachine,
    #[error("neither .eh_frame nor .debug_frame")]
    NoFrames,
    #[error("damaged unwind information: {0}")]
    Frames(gimli::Error),
    #[error("more than {0} rules")]
    TooMany(usize),
}

#[cfg(test)]
mod tests;
