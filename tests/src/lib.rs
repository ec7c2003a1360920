//! Harness shared by the tests that need real processes, probes or the simulated device.

pub mod binary;
pub mod board;
pub mod calls;
pub mod case;
pub mod cuda;
pub mod device;
pub mod driver;
pub mod library;
pub mod live;
pub mod own;
pub mod packages;
pub mod perf;
pub mod privileged;
pub mod python;
pub mod scenario;
pub mod signal;
pub mod stacks;
pub mod training;
pub mod truth;
