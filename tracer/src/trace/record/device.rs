//! Devices and what they say of themselves.

use serde::{Deserialize, Serialize};

use super::time::{Ns, Span};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// NVML index. CUDA ordinals and minor numbers differ.
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub minor: Option<u32>,
    pub power_limit_mw: Option<u32>,
    /// Period between the device's own utilisation samples as measured from their stamps.
    pub sample_period_ns: Option<u64>,
    /// MIG devices report no utilisation.
    pub mig: bool,
    pub driver_version: String,
    pub cuda_version: Option<u32>,
    pub pcie_width: Option<u32>,
    pub pcie_width_max: Option<u32>,
    pub pcie_generation: Option<u32>,
    pub pcie_generation_max: Option<u32>,
}

/// A process in NVML's list for a device at a tick (host pid namespace).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProcess {
    pub at: Ns,
    pub device: u32,
    pub pid: u32,
    pub used_memory: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadingSource {
    /// `nvmlDeviceGetSamples(GPU_UTILIZATION_SAMPLES)`.
    NvmlSamples,
    /// `nvmlDeviceGetUtilizationRates`.
    NvmlRates,
    /// GPM graphics-engine utilisation.
    Gpm,
}

/// One device window: what share of `span` had at least one kernel running. Windows of one device are in
/// order and do not overlap; between two there may be a hole (then that time is unknown).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub device: u32,
    pub span: Span,
    pub source: ReadingSource,
    /// Busy share in percent as the device gave it, `None` where it gave nothing or nonsense.
    pub busy_percent: Option<f64>,
    /// Mean over the device's own power window (1 s on most).
    pub power_mw: Option<u32>,
    /// Memory-controller activity, percent.
    pub memory_percent: Option<f64>,
    /// Age of the reading when it was taken, beside its window.
    pub age_ns: u64,
    pub sm_clock_mhz: Option<u32>,
    /// NVML's throttle-reason bits.
    pub throttle_reasons: Option<u64>,
}

/// What else a device says of one window, never busy time: shares of its units in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceActivity {
    pub device: u32,
    pub span: Span,
    /// Share of SMs with work, of cycles the tensor cores and the memory interface were busy.
    pub sm_percent: Option<f64>,
    pub tensor_percent: Option<f64>,
    pub dram_percent: Option<f64>,
    /// PCIe, bytes per second.
    pub pcie_rx_bytes: Option<f64>,
    pub pcie_tx_bytes: Option<f64>,
}

/// A device's state, written when it is first read and when anything in it changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    pub at: Ns,
    pub device: u32,
    /// NVML's throttle-reason bits.
    pub throttle_reasons: Option<u64>,
    pub sm_clock_mhz: Option<u32>,
    pub sm_clock_max_mhz: Option<u32>,
    pub pcie_generation: Option<u32>,
    pub pcie_width: Option<u32>,
    /// Since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    pub temperature_c: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DeviceEventKind {
    /// The driver's error, by its number.
    #[default]
    Xid,
    EccSingleBit,
    EccDoubleBit,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceEvent {
    pub at: Ns,
    pub device: u32,
    pub kind: DeviceEventKind,
    pub value: u64,
}

/// What was found out of a device's own samples: how often, on which clock, how late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceClock {
    pub at: Ns,
    pub device: u32,
    /// Between two samples, the median of their stamps' differences.
    pub period_ns: Option<u64>,
    /// "monotonic", "boottime", "realtime", or a sentence.
    pub domain: String,
    /// To be added to a stamp for `CLOCK_MONOTONIC`, nanoseconds.
    pub offset_ns: i64,
    /// Time from the end of a window to the first sight of its sample.
    pub age_ns: u64,
    /// How much later a sample's window ends than its stamp says, where the recorder was told; the report fits it to
    /// host edges.
    pub lag_ns: Option<i64>,
}
