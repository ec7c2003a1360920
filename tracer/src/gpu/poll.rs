//! Polls one device.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, Sampling};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use super::Polled;
use super::buffer::{Brought, Buffer, Stamped};
use super::clock::{Clocks, StampClock};
use super::describe::is_mig;
use super::window::{Moment, Period, Sampled, Windows};
use crate::trace::{DeviceProcess, Ns, Reading};

/// What is kept of a device between polls.
#[derive(Debug)]
pub(super) struct DevicePoll {
    index: u32,
    utilization: Buffer,
    memory: Buffer,
    power: Buffer,
    clock: StampClock,
    pub(super) period: Period,
    windows: Windows,
}

impl DevicePoll {
    pub(super) fn new(index: u32, opened: Ns) -> Self {
        Self {
            index,
            utilization: Buffer::new(Sampling::GpuUtilization),
            memory: Buffer::new(Sampling::MemoryUtilization),
            power: Buffer::new(Sampling::Power),
            clock: StampClock::default(),
            period: Period::default(),
            windows: Windows::new(index, opened),
        }
    }

    /// Looks at the buffers as they stand: the period, the driver's clock, and where to go on from.
    pub(super) fn calibrate(&mut self, device: &Device<'_>) {
        let clocks = Clocks::read();
        if let Ok(Brought::New(samples)) = self.utilization.read(device) {
            self.learn(&samples, clocks, false);
        }
    }

    /// Everything new since the last poll. A device that does not answer has readings without a value.
    /// Returns whether it answered.
    pub(super) fn poll(&mut self, device: Result<Device<'_>, NvmlError>, polled: &mut Polled) -> bool {
        let read = device.and_then(|device| {
            self.readings(&device, &mut polled.readings)?;
            self.processes(&device, &mut polled.processes);
            Ok(())
        });
        if read.is_err() {
            let at = Clocks::read().monotonic;
            let silent = Sampled { end: at, ..Sampled::default() };
            let moment = Moment { at, ..Moment::default() };
            self.windows.rates(&silent, self.period.ns(), moment, false, &mut polled.readings);
        }
        read.is_ok()
    }

    fn readings(&mut self, device: &Device<'_>, out: &mut Vec<Reading>) -> Result<(), NvmlError> {
        let brought = self.utilization.read(device)?;
        // Refinements: a device may lack either.
        for buffer in [&mut self.memory, &mut self.power] {
            drop(buffer.read(device));
        }
        let clocks = Clocks::read();
        let moment = Moment {
            at: clocks.monotonic,
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            throttle_reasons: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
        };
        if let Brought::New(samples) = &brought {
            self.learn(samples, clocks, true);
            let sampled: Vec<Sampled> = samples.iter().filter_map(|s| self.sampled(s, clocks)).collect();
            self.windows.samples(&sampled, self.period.ns(), moment, out);
            return Ok(());
        }
        let buffered = !self.utilization.is_unsupported();
        let rates = match device.utilization_rates() {
            Ok(rates) => Some(rates),
            // MIG, and devices too old to tell.
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => None,
            Err(e) => return Err(e),
        };
        let mig = rates.is_none() || is_mig(device);
        let sampled = Sampled {
            end: moment.at,
            busy_percent: rates.as_ref().filter(|_| !mig).map(|r| f64::from(r.gpu)),
            memory_percent: rates.as_ref().map(|r| f64::from(r.memory)),
            power_mw: device.power_usage().ok(),
        };
        self.windows.rates(&sampled, self.period.ns(), moment, buffered, out);
        Ok(())
    }

    fn learn(&mut self, samples: &[Stamped], clocks: Clocks, fresh: bool) {
        let stamps: Vec<u64> = samples.iter().map(|s| s.stamp_us).collect();
        self.period.add(&stamps);
        if let Some(&newest) = stamps.last() {
            self.clock.observe(newest, clocks, self.period.ns(), fresh);
        }
    }

    fn sampled(&self, sample: &Stamped, clocks: Clocks) -> Option<Sampled> {
        let period_us = self.period.ns() / 1000;
        Some(Sampled {
            end: self.clock.monotonic(sample.stamp_us, clocks)?,
            busy_percent: Some(sample.value),
            power_mw: self.power.near(sample.stamp_us, period_us).map(|milliwatts| milliwatts as u32),
            memory_percent: self.memory.near(sample.stamp_us, period_us / 2),
        })
    }

    fn processes(&self, device: &Device<'_>, out: &mut Vec<DeviceProcess>) {
        let at = Clocks::read().monotonic;
        let compute = device.running_compute_processes().unwrap_or_default();
        let graphics = device.running_graphics_processes().unwrap_or_default();
        let mut listed: Vec<u32> = Vec::new();
        for process in compute.into_iter().chain(graphics) {
            if listed.contains(&process.pid) {
                continue;
            }
            listed.push(process.pid);
            let used_memory = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            out.push(DeviceProcess { at, device: self.index, pid: process.pid, used_memory });
        }
    }
}
