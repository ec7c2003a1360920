//! Harness shared by the tests that need real processes, probes or the simulated device.

pub mod binary;
pub mod board;
pub mod calls;
pub mod cuda;
pub mod device;
pub mod driver;
pub mod library;
pub mod own;
pub mod privileged;
pub mod scenario;
pub mod signal;
