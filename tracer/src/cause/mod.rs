//! Why: wait chains from each placed gap to the leaf, the taxonomy, the ledger and the gain. Pure.

mod model;

pub use model::*;
