//! A stand-in for `libnvidia-ml.so.1`: NVML's C ABI over the simulated device (`docs/simulated-device.md`).

mod abi;
mod device;
mod faults;
mod library;
mod load;
mod processes;
mod samples;
mod system;
