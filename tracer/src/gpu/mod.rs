//! Device signals behind one trait, read on a thread of its own with a deadline.

mod buffer;
mod check;
mod clock;
mod describe;
mod events;
mod garbage;
mod gpm;
mod instances;
mod library;
mod nvml;
mod poll;
mod rows;
mod state;
mod thread;
mod told;
mod window;

pub use nvml::NvmlSignal;
pub use thread::GpuThread;

use crate::trace::{Device, DeviceProcess, Reading, Record};

/// What one poll of a device library brought.
#[derive(Debug, Default)]
pub struct Polled {
    /// New windows only, in order, on CLOCK_MONOTONIC.
    pub readings: Vec<Reading>,
    pub processes: Vec<DeviceProcess>,
    /// What else was learned, as the trace holds it: activity, states, events, clocks, garbage counted, and
    /// probe rows that say which signals work.
    pub others: Vec<Record>,
}

/// A source of device readings. Implementations may block; callers run them on a thread of their own.
pub trait DeviceSignal: Send {
    /// The devices, in NVML index order, and behind them MIG instances.
    ///
    /// # Errors
    /// When the library answers for no device at all.
    fn devices(&mut self) -> Result<Vec<Device>, GpuError>;

    /// Everything new since the last poll.
    ///
    /// # Errors
    /// When the library failed as a whole; one device's silence is a reading without a value instead.
    fn poll(&mut self) -> Result<Polled, GpuError>;
}

#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    #[error("{path}: not an NVML library: {source}")]
    NotNvml { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("no NVML library found ({tried}); GPU idle time cannot be measured, name one with --nvml PATH")]
    NoLibrary { tried: String },
    #[error("NVML call {call} failed: {source}")]
    Call { call: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the NVML library did not answer within {} s; GPU idle time cannot be measured", .within.as_secs_f64())]
    NoAnswer { within: std::time::Duration },
    #[error("cannot start a thread for the NVML library: {0}")]
    NoThread(std::io::Error),
}
