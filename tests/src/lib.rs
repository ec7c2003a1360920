//! Harness shared by the tests that need real processes, probes or the simulated device.

#![expect(
    clippy::macro_metavars_in_unsafe,
    reason = "`cuda_call!` passes its values to the call that is unsafe"
)]

pub mod binary;
pub mod board;
pub mod cuda;
pub mod device;
pub mod driver;
pub mod library;
pub mod privileged;
pub mod signal;
