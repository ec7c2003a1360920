//! GPU performance monitoring (Hopper and later): the share of time the graphics engine was active between
//! two samples of our own, finer than the driver's sample buffers, and what its units did meanwhile.

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::struct_wrappers::gpm::GpmMetricResult;
use nvml_wrapper::{Device, Nvml};

use super::clock::monotonic;
use super::garbage::percent;
use super::rows::reason;
use crate::trace::{DeviceActivity, Ns, Span};

/// NVML documents over 100 ms between two samples.
const LEAST_NS: u64 = 101_000_000;
/// Failures in a row after which it is not tried again.
const STRIKES: u32 = 5;

const METRICS: [GpmMetricId; 6] = [
    GpmMetricId::GraphicsUtil,
    GpmMetricId::SmUtil,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
];

/// What is measured: a whole device, or one GPU instance of it in MIG mode.
pub(super) type GpuInstance = Option<u32>;

#[derive(Debug)]
pub(super) struct Gpm {
    instance: GpuInstance,
    /// The last sample, and when it was taken.
    last: Option<(GpmSample<'static>, Ns)>,
    strikes: u32,
    /// Why it is of no use here.
    unavailable: Option<String>,
}

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Share of time the graphics engine was active, percent: busy time.
    pub(super) busy_percent: Option<f64>,
    pub(super) activity: DeviceActivity,
    /// Percentages that were none.
    pub(super) over: u64,
}

impl Gpm {
    pub(super) fn open(device: &Device<'_>, instance: GpuInstance) -> Self {
        let unavailable = match device.gpm_support() {
            Ok(true) => None,
            Ok(false) => Some("the device does not support it (Hopper and later do)".into()),
            Err(e) => Some(reason(&e)),
        };
        Self { instance, last: None, strikes: 0, unavailable }
    }

    pub(super) fn never(why: &str) -> Self {
        Self { instance: None, last: None, strikes: 0, unavailable: Some(why.into()) }
    }

    pub(super) fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// Takes a sample where the last is old enough. `None`: not yet, or not available.
    pub(super) fn poll(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        index: u32,
    ) -> Option<Measured> {
        let due = self.last.as_ref().is_none_or(|(_, at)| monotonic().saturating_sub(*at) >= LEAST_NS);
        if self.unavailable.is_some() || !due {
            return None;
        }
        match self.measure(nvml, device, index) {
            Ok(measured) => {
                self.strikes = 0;
                measured
            }
            Err(e) => {
                self.strikes += 1;
                self.last = None;
                let for_good = !matches!(e, NvmlError::Unknown | NvmlError::InvalidArg | NvmlError::GpuLost);
                if for_good || self.strikes >= STRIKES {
                    self.unavailable = Some(reason(&e));
                }
                None
            }
        }
    }

    fn measure(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        index: u32,
    ) -> Result<Option<Measured>, NvmlError> {
        let before = monotonic();
        let sample = match self.instance {
            Some(instance) => device.gpm_mig_sample(instance)?,
            None => device.gpm_sample()?,
        };
        // The counters were read somewhere within the call.
        let at = before + monotonic().saturating_sub(before) / 2;
        let measured = match &self.last {
            Some((first, from)) => {
                let metrics = gpm_metrics_get(nvml, first, &sample, &METRICS)?;
                Some(measured(&metrics, index, Span::new(*from, at)))
            }
            None => None,
        };
        self.last = Some((sample, at));
        Ok(measured)
    }
}

/// `metrics` in the order of [`METRICS`].
fn measured(metrics: &[Result<GpmMetricResult, NvmlError>], device: u32, span: Span) -> Measured {
    let mut over = 0;
    let value = |of: usize| metrics.get(of).and_then(|m| m.as_ref().ok()).map(|m| (m.value, m));
    let mut share = |of: usize| value(of).and_then(|(value, _)| percent(value, &mut over));
    let [busy_percent, sm_percent, tensor_percent, dram_percent] = [share(0), share(1), share(2), share(3)];
    let rate = |of: usize| {
        let (value, metric) = value(of)?;
        Some(value * scale(&metric.metric_info.unit)).filter(|rate| rate.is_finite() && *rate >= 0.0)
    };
    let (pcie_rx_bytes, pcie_tx_bytes) = (rate(4), rate(5));
    let activity = DeviceActivity {
        device,
        span,
        sm_percent,
        tensor_percent,
        dram_percent,
        pcie_rx_bytes,
        pcie_tx_bytes,
    };
    Measured { busy_percent, activity, over }
}

/// Bytes in the unit of a traffic metric. NVML documents MiB/s; its own answer says which it is.
fn scale(unit: &str) -> f64 {
    match unit.trim_start().as_bytes() {
        [b'B' | b'b', ..] => 1.0,
        [b'K' | b'k', ..] => 1024.0,
        [b'G', ..] => 1024.0 * 1024.0 * 1024.0,
        _ => 1024.0 * 1024.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper::struct_wrappers::gpm::GpmMetricInfo;

    fn metric(metric_id: GpmMetricId, value: f64, unit: &str) -> Result<GpmMetricResult, NvmlError> {
        let (short_name, long_name) = (String::new(), String::new());
        let metric_info = GpmMetricInfo { short_name, long_name, unit: unit.into() };
        Ok(GpmMetricResult { metric_id, value, metric_info })
    }

    #[test]
    fn traffic_is_in_bytes_and_what_a_device_lacks_stays_empty() {
        let metrics = [
            metric(GpmMetricId::GraphicsUtil, 61.25, "%"),
            metric(GpmMetricId::SmUtil, 12.5, "%"),
            Err(NvmlError::NotSupported),
            metric(GpmMetricId::DramBwUtil, f64::NAN, "%"),
            metric(GpmMetricId::PcieRxPerSec, 2.0, "MiB/s"),
            metric(GpmMetricId::PcieTxPerSec, 3.0, ""),
        ];
        let measured = measured(&metrics, 3, Span::new(10, 20));
        assert_eq!((measured.busy_percent, measured.over), (Some(61.25), 1));
        let activity = DeviceActivity {
            device: 3,
            span: Span::new(10, 20),
            sm_percent: Some(12.5),
            tensor_percent: None,
            dram_percent: None,
            pcie_rx_bytes: Some(2_097_152.0),
            pcie_tx_bytes: Some(3_145_728.0),
        };
        assert_eq!(measured.activity, activity);
    }

    #[test]
    fn the_unit_is_the_librarys() {
        for (unit, bytes) in
            [("B/s", 1.0), ("KiB/s", 1024.0), ("MiB/s", 1_048_576.0), ("GiB/s", 1_073_741_824.0)]
        {
            assert_eq!(scale(unit), bytes, "{unit}");
        }
    }
}
