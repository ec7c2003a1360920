//! Readings from NVML: sample buffers where the device has them, else the rates at each poll.

use std::path::Path;

use nvml_wrapper::Nvml;

use super::clock::Clocks;
use super::describe::describe;
use super::library::{failed, load};
use super::poll::DevicePoll;
use super::{DeviceSignal, GpuError, Polled};
use crate::trace::Device;

/// An initialised NVML library. Calls may block, and take milliseconds when they do not.
#[derive(Debug)]
pub struct NvmlSignal {
    nvml: Nvml,
    devices: Vec<DevicePoll>,
}

impl NvmlSignal {
    /// Loads the library at `path`; without one, `libnvidia-ml.so.1`, then `libnvidia-ml.so`.
    /// Complete windows from now on are given out by `poll`.
    ///
    /// # Errors
    /// No library, no NVML library, or it cannot initialise.
    pub fn open(path: Option<&Path>) -> Result<Self, GpuError> {
        let nvml = load(path)?;
        let count = nvml.device_count().map_err(|e| failed("nvmlDeviceGetCount_v2", e))?;
        let opened = Clocks::read().monotonic;
        let mut devices: Vec<DevicePoll> = (0..count).map(|i| DevicePoll::new(i, opened)).collect();
        for (index, device) in (0..).zip(&mut devices) {
            if let Ok(handle) = nvml.device_by_index(index) {
                device.calibrate(&handle);
            }
        }
        Ok(Self { nvml, devices })
    }
}

impl DeviceSignal for NvmlSignal {
    fn devices(&mut self) -> Result<Vec<Device>, GpuError> {
        let numbered = (0..).zip(&self.devices);
        Ok(numbered.map(|(index, device)| describe(&self.nvml, index, device.period.measured())).collect())
    }

    fn poll(&mut self) -> Result<Polled, GpuError> {
        let mut polled = Polled::default();
        let mut answered = false;
        for (index, device) in (0..).zip(&mut self.devices) {
            answered |= device.poll(self.nvml.device_by_index(index), &mut polled);
        }
        if !answered {
            // One lost device is a silence; a library that cannot even count them has failed.
            self.nvml.device_count().map_err(|e| failed("nvmlDeviceGetCount_v2", e))?;
        }
        Ok(polled)
    }
}
