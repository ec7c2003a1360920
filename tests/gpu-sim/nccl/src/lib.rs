//! A stand-in for `libnccl.so.2`: its exported names, each a launch of a kernel that spins on the simulated
//! device until all ranks have begun theirs (`docs/simulated-device.md`). No data is moved.

mod abi;
mod collective;
mod communicator;
mod driver;
mod group;
