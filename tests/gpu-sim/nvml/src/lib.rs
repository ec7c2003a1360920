//! A stand-in for `libnvidia-ml.so.1`: NVML's C ABI over the simulated device (`docs/simulated-device.md`).

mod abi;
mod device;
mod events;
mod faults;
mod gpm;
mod library;
mod link;
mod load;
mod mig;
mod objects;
mod processes;
mod samples;
mod system;
