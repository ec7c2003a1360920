//! The device signal as the recorder sees it: readings come by themselves, and never keep it waiting.

use std::time::Duration;

use crate::gpu::Polled;
use crate::trace::Device;

/// Readings from a thread of their own.
pub trait Feed {
    /// In NVML index order; empty where no device answers.
    fn devices(&self) -> Vec<Device>;

    /// Processes that any device lists now, in the host's pid namespace.
    fn processes(&self) -> Vec<u32>;

    /// Everything that came since the last call, without waiting.
    fn take(&mut self) -> Vec<Polled>;

    /// The last readings: waits for the windows now open, at most `deadline`.
    fn last(&mut self, deadline: Duration) -> Vec<Polled>;

    /// Why there are no readings, or for some time were none; `None` while all is well.
    fn trouble(&self) -> Option<String>;
}

/// No device library: off-CPU analysis goes on without readings.
#[derive(Clone, Debug)]
pub struct NoDevices {
    pub reason: String,
}

impl Feed for NoDevices {
    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn take(&mut self) -> Vec<Polled> {
        Vec::new()
    }

    fn last(&mut self, _deadline: Duration) -> Vec<Polled> {
        Vec::new()
    }

    fn trouble(&self) -> Option<String> {
        Some(self.reason.clone())
    }
}
