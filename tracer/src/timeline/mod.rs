//! What each thread did, as intervals that partition its life within the recording.
//!
//! Pure: records in, [`Timeline`] out. No clock, no file system.

mod apportion;
#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod arbitrary_cuda;
mod build;
mod frames;
mod identity;
mod lag;
#[cfg(test)]
mod laws;
mod model;
mod order;
mod shorts;
mod slices;
mod spans;
#[doc(hidden)]
pub mod testing;
mod waits;

#[cfg(test)]
mod tests;

pub use apportion::{apportion, prefix_share};
pub use build::build;
pub use lag::{Lag, lag, work};
pub use model::*;
pub use spans::{total, union, without};
pub use waits::{WaitObject, wait_object};
