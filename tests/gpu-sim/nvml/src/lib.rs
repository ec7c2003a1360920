//! A stand-in for `libnvidia-ml.so.1`: NVML's C ABI over the simulated device (`docs/simulated-device.md`).
#![expect(clippy::missing_safety_doc, reason = "the contract of each entry point is NVML's")]

mod abi;
mod device;
mod faults;
mod library;
mod load;
mod processes;
mod samples;
mod system;
