//! Rules that turn the ledger into root causes with evidence, gain and remedy, and the report's model.

mod model;

pub use model::*;
