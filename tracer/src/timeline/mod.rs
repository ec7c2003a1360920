//! What each thread did, as intervals that partition its life within the recording.
//!
//! Pure: records in, [`Timeline`] out. No clock, no file system.

mod model;

pub use model::*;
