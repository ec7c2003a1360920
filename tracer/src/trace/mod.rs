//! The recording: append-only, framed, checksummed, compressed, versioned (`docs/format.md`).
//!
//! `writer` appends records in frames; `reader` streams them back and says what is missing. Neither looks
//! inside a record.

pub mod record;

pub use record::*;
