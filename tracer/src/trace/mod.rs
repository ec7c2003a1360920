//! The recording: append-only, framed, checksummed, compressed, versioned (`docs/format.md`).
//!
//! `writer` appends records in frames; `reader` streams them back and says what is missing. Neither looks
//! inside a record.

mod codec;
mod damage;
mod error;
mod frame;
mod reader;
pub mod record;
mod scan;
#[doc(hidden)]
pub mod testing;
mod window;
mod writer;

#[cfg(test)]
mod tests;

pub use damage::{Damage, DamageKind};
pub use error::TraceError;
pub use frame::VERSION;
pub use reader::Reader;
pub use record::*;
pub use writer::Writer;
