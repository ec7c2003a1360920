//! How much idle there was, where it lies, and how sure that is. Knows nothing of probes or files.
//!
//! The device says how much (`mass`), host edges say where (`edges`, `queue`), and `label` says how each
//! piece is known and whose submit ends it. `docs/placement.md` has the method and what it reaches.

mod collectives;
mod cost;
mod device_fit;
mod devices;
mod drain;
mod edges;
mod label;
mod mass;
mod model;
mod place;
mod queue;
#[cfg(test)]
mod recordings;
mod runs;
mod sides;
mod trim;
mod watch;

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod query_tests;
#[cfg(test)]
mod return_tests;
#[cfg(test)]
mod tests;

pub use collectives::{Blind, DeviceCollectives, Latecomer, collectives};
pub use devices::{DeviceMap, On, feeders};
pub use model::*;
pub use place::{Located, locate, place};
pub use sides::{Sides, sides};
