//! Readings from NVML: GPM where the device has it, else its sample buffers, else the rates at each poll.

use std::path::Path;

use nvml_wrapper::Nvml;

use super::clock::Clocks;
use super::describe::describe;
use super::events::Events;
use super::instances::{self, Instance};
use super::library::{self, failed};
use super::poll::DevicePoll;
use super::rows::Rows;
use super::{DeviceSignal, GpuError, Polled};
use crate::trace::Device;

/// An initialised NVML library. Calls may block, and take milliseconds when they do not.
#[derive(Debug)]
pub struct NvmlSignal {
    nvml: &'static Nvml,
    devices: Vec<DevicePoll>,
    instances: Vec<Instance>,
    events: Events,
    rows: Rows,
}

impl NvmlSignal {
    /// Loads the library at `path`; without one, `libnvidia-ml.so.1`, then `libnvidia-ml.so`. It stays loaded
    /// until the process ends, because a call that hangs in it may never come back.
    /// Complete windows from now on are given out by `poll`.
    ///
    /// # Errors
    /// No library, no NVML library, or it cannot initialise.
    pub fn open(path: Option<&Path>) -> Result<Self, GpuError> {
        let (nvml, symbols) = library::load(path)?;
        // Samples and event sets borrow the library; see above for why it is never let go.
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        let count = nvml.device_count().map_err(|e| failed("nvmlDeviceGetCount_v2", e))?;
        let opened = Clocks::read().monotonic;
        let mut devices: Vec<DevicePoll> = (0..count).map(|i| DevicePoll::new(i, opened)).collect();
        let instances = symbols.map_or(Vec::new(), |s| instances::find(nvml, &s, count, opened));
        for (index, device) in (0..).zip(&mut devices) {
            device.split = instances.iter().any(|instance| instance.parent() == index);
            if let Ok(handle) = nvml.device_by_index(index) {
                device.calibrate(&handle);
            }
        }
        let rows = Rows::new(devices.len() + instances.len());
        Ok(Self { nvml, devices, instances, events: Events::open(nvml, count), rows })
    }
}

impl DeviceSignal for NvmlSignal {
    fn devices(&mut self) -> Result<Vec<Device>, GpuError> {
        let numbered = (0..).zip(&self.devices);
        let devices = numbered.map(|(index, device)| describe(self.nvml, index, device.period.measured()));
        Ok(devices.chain(self.instances.iter().map(|instance| instance.describe(self.nvml))).collect())
    }

    fn poll(&mut self) -> Result<Polled, GpuError> {
        let mut polled = Polled::default();
        let mut answered = false;
        for (index, device) in (0..).zip(&mut self.devices) {
            let handle = self.nvml.device_by_index(index);
            answered |= device.poll(self.nvml, handle, &mut self.rows, &mut polled);
        }
        for instance in &mut self.instances {
            instance.poll(self.nvml, &mut self.rows, &mut polled);
        }
        self.events.poll(&mut self.rows, &mut polled.others);
        if !answered {
            // One lost device is a silence; a library that cannot even count them has failed.
            self.nvml.device_count().map_err(|e| failed("nvmlDeviceGetCount_v2", e))?;
        }
        Ok(polled)
    }
}
