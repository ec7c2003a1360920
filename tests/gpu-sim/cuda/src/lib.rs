//! A stand-in for `libcuda.so.1`: the driver's exported names, with a simulated device behind them
//! (`docs/simulated-device.md`). A kernel does nothing but last as long as its name or its grid says.

mod abi;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod graph;
mod launch;
mod memory;
mod memset;
mod module;
mod objects;
mod queue;
mod stream;
mod wait;
