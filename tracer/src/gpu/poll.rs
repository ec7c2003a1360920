//! Polls one device.

use nvml_wrapper::enum_wrappers::device::{Clock, Sampling};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::Polled;
use super::buffer::{Brought, Buffer, Stamped};
use super::check::Check;
use super::clock::{Clocks, StampClock};
use super::describe::is_mig;
use super::garbage::{Garbage, percent};
use super::gpm::{Gpm, Measured};
use super::rows::{Rows, reason};
use super::state::StateWatch;
use super::told::Told;
use super::window::{Moment, Period, Sampled, Windows};
use crate::trace::{DeviceProcess, Ns, Reading, Record};

/// Stamps looked at for the clock they are on.
const NEWEST: usize = 3;

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
    gpm: Gpm,
    check: Check,
    state: StateWatch,
    told: Told,
    /// Percentages that were none, and the classes of garbage as last written.
    over: u64,
    written: Garbage,
    /// Its MIG instances list the processes.
    pub(super) split: bool,
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
            gpm: Gpm::never("the device did not answer"),
            check: Check::new(index, opened),
            state: StateWatch::default(),
            told: Told::default(),
            over: 0,
            written: Garbage::default(),
            split: false,
        }
    }

    /// Looks at the buffers as they stand: the period, the driver's clock, where to go on from; and at what
    /// the device can do.
    pub(super) fn calibrate(&mut self, device: &Device<'_>) {
        if let Ok(Brought::New(samples)) = self.read(device) {
            self.learn(&samples, Clocks::read(), false);
        }
        self.gpm = if is_mig(device) {
            Gpm::never("in MIG mode only its instances are measured")
        } else {
            Gpm::open(device, None)
        };
    }

    /// Everything new since the last poll. A device that does not answer has readings without a value.
    /// Returns whether it answered.
    pub(super) fn poll(
        &mut self,
        nvml: &'static Nvml,
        device: Result<Device<'static>, NvmlError>,
        rows: &mut Rows,
        polled: &mut Polled,
    ) -> bool {
        let read = device.and_then(|device| {
            let moment = self.readings(nvml, &device, rows, polled)?;
            self.state.poll(&device, self.index, moment, rows, &mut polled.others);
            if !self.split {
                list_processes(&device, self.index, &mut polled.processes);
            }
            Ok(())
        });
        rows.say("nvml_device", self.index, read.as_ref().err().map(reason), &mut polled.others);
        if read.is_err() {
            let at = Clocks::read().monotonic;
            let silent = Sampled { end: at, ..Sampled::default() };
            let moment = Moment { at, ..Moment::default() };
            self.windows.rates(&silent, self.period.ns(), moment, false, &mut polled.readings);
        }
        read.is_ok()
    }

    fn readings(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        rows: &mut Rows,
        polled: &mut Polled,
    ) -> Result<Moment, NvmlError> {
        let brought = self.read(device)?;
        // Refinements: a device may lack either.
        let (clock, period) = (&self.clock, self.period.ns());
        for buffer in [&mut self.memory, &mut self.power] {
            drop(buffer.read(device, |_| clock.latest_us(Clocks::read(), period)));
        }
        let measured = self.gpm.poll(nvml, device, self.index);
        let clocks = Clocks::read();
        let moment = Moment {
            at: clocks.monotonic,
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            throttle_reasons: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
        };
        rows.say("gpm", self.index, self.gpm.unavailable().map(String::from), &mut polled.others);
        let why_not = self.utilization.unsupported().map(String::from);
        rows.say("nvml_samples", self.index, why_not, &mut polled.others);
        // Where GPM measures, the samples are only compared with it.
        let mut beside = Vec::new();
        let by_gpm = self.gpm.unavailable().is_none();
        let out = if by_gpm { &mut beside } else { &mut polled.readings };
        self.samples(device, &brought, clocks, moment, by_gpm, out)?;
        if let Some(measured) = measured {
            self.over += measured.over;
            let window = share_window(&measured, device.power_usage().ok());
            self.check.gpm(measured.activity.span, measured.busy_percent);
            self.windows.gpm(measured.activity.span, &window, moment, &mut polled.readings);
            polled.others.push(Record::DeviceActivity(measured.activity));
        }
        if let Some(disagree) = self.check.samples(&beside) {
            rows.say("gpm_check", self.index, Some(disagree), &mut polled.others);
        }
        self.tell(&brought, clocks, polled);
        Ok(moment)
    }

    /// Windows of the sample buffers; of the rates where there are none.
    fn samples(
        &mut self,
        device: &Device<'_>,
        brought: &Brought,
        clocks: Clocks,
        moment: Moment,
        by_gpm: bool,
        out: &mut Vec<Reading>,
    ) -> Result<(), NvmlError> {
        match brought {
            Brought::New(samples) => {
                self.learn(samples, clocks, true);
                let sampled: Vec<Sampled> = samples.iter().filter_map(|s| self.sampled(s, clocks)).collect();
                let windows = if by_gpm { &mut self.check.windows } else { &mut self.windows };
                windows.samples(&sampled, self.period.ns(), moment, out);
                return Ok(());
            }
            Brought::Future => self.clock.refute(),
            Brought::Nothing | Brought::Unsupported => {}
        }
        if by_gpm {
            return Ok(());
        }
        let buffered = self.utilization.unsupported().is_none();
        let rates = match device.utilization_rates() {
            Ok(rates) => Some(rates),
            // MIG, and devices too old to tell.
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => None,
            Err(e) => return Err(e),
        };
        let mig = rates.is_none() || is_mig(device);
        let busy = rates.as_ref().filter(|_| !mig).map(|r| f64::from(r.gpu));
        let sampled = Sampled {
            end: moment.at,
            busy_percent: busy.and_then(|busy| percent(busy, &mut self.over)),
            memory_percent: rates.as_ref().map(|r| f64::from(r.memory)),
            power_mw: device.power_usage().ok(),
        };
        self.windows.rates(&sampled, self.period.ns(), moment, buffered, out);
        Ok(())
    }

    /// The utilisation samples. Before they are sifted, they themselves tell the clock they are on.
    fn read(&mut self, device: &Device<'_>) -> Result<Brought, NvmlError> {
        let (clock, period) = (&mut self.clock, self.period.ns());
        self.utilization.read(device, |raw| {
            let clocks = Clocks::read();
            // The newest may be garbage: then those before it tell.
            for sample in raw.iter().rev().take(NEWEST) {
                if clock.latest_us(clocks, period).is_none() {
                    clock.observe(sample.stamp_us, clocks, period, false);
                }
            }
            clock.latest_us(clocks, period)
        })
    }

    fn learn(&mut self, samples: &[Stamped], clocks: Clocks, fresh: bool) {
        let stamps: Vec<u64> = samples.iter().map(|s| s.stamp_us).collect();
        self.period.add(&stamps);
        let period = self.period.ns();
        if let Some(&newest) = stamps.last() {
            self.clock.observe(newest, clocks, period, fresh);
        }
        if let Some(latest) = self.clock.latest_us(clocks, period) {
            for buffer in [&mut self.utilization, &mut self.memory, &mut self.power] {
                buffer.forget_after(latest);
            }
        }
    }

    fn sampled(&mut self, sample: &Stamped, clocks: Clocks) -> Option<Sampled> {
        let period_us = self.period.ns() / 1000;
        Some(Sampled {
            end: self.clock.monotonic(sample.stamp_us, clocks)?,
            busy_percent: percent(sample.value, &mut self.over),
            power_mw: self.power.near(sample.stamp_us, period_us).map(|milliwatts| milliwatts as u32),
            memory_percent: self.memory.near(sample.stamp_us, period_us / 2),
        })
    }

    /// What was learned of the samples themselves.
    fn tell(&mut self, brought: &Brought, clocks: Clocks, polled: &mut Polled) {
        let newest = match brought {
            Brought::New(samples) => samples.last().and_then(|s| self.clock.monotonic(s.stamp_us, clocks)),
            _ => None,
        };
        let settled = match self.utilization.unsupported() {
            Some(_) => ("no sample buffers: windows end when the rates are read".into(), 0),
            None => self.clock.settled(clocks),
        };
        let age = newest.map(|end| clocks.monotonic.saturating_sub(end));
        let period = self.period.measured();
        let told = self.told.clock(self.index, clocks.monotonic, period, settled, age);
        polled.others.extend(told.map(Record::DeviceClock));
        let garbage = Garbage { over: self.over, ..self.utilization.garbage };
        let counters = garbage.counters(self.written, self.index, clocks.monotonic);
        self.written = garbage;
        polled.others.extend(counters);
    }
}

/// A window as GPM measured it. Memory activity is rounded as NVML rounds it, so that a trace of it does not
/// contradict a device at rest.
pub(super) fn share_window(measured: &Measured, power_mw: Option<u32>) -> Sampled {
    Sampled {
        end: measured.activity.span.end,
        busy_percent: measured.busy_percent,
        power_mw,
        memory_percent: measured.activity.dram_percent.map(f64::round),
    }
}

/// All processes with a context, those behind an MPS server too.
pub(super) fn list_processes(device: &Device<'_>, index: u32, out: &mut Vec<DeviceProcess>) {
    let at = Clocks::read().monotonic;
    let compute = device.running_compute_processes().unwrap_or_default();
    let behind_mps = device.mps_running_compute_processes().unwrap_or_default();
    let graphics = device.running_graphics_processes().unwrap_or_default();
    let mut listed: Vec<u32> = Vec::new();
    for process in compute.into_iter().chain(behind_mps).chain(graphics) {
        if listed.contains(&process.pid) {
            continue;
        }
        listed.push(process.pid);
        let used_memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        out.push(DeviceProcess { at, device: index, pid: process.pid, used_memory });
    }
}
