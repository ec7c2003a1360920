//! The simulated device's memory: a file mapped by every process that uses it (`docs/simulated-device.md`).
//!
//! `libsim_cuda.so` writes the work of its streams into it, `libsim_nvml.so` computes readings from it, and
//! `truth` reads back when the device was really busy. Times are nanoseconds on `CLOCK_MONOTONIC`.

pub mod clock;
pub mod identity;
pub mod interval;
mod lane;
mod layout;
mod map;
mod meeting;
mod process;
pub mod settings;
pub mod signal;
mod state;
pub mod truth;

pub use interval::Interval;
pub use lane::{Lane, OPEN, Work};
pub use layout::{DEVICES, RING};
pub use map::Timeline;
pub use meeting::{Key, Meeting};
pub use process::{Mps, Process, RunningProcess};
pub use state::{Event, State};
