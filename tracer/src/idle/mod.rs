//! How much idle there was, where it lies, and how sure that is. Knows nothing of probes or files.

mod model;

pub use model::*;
