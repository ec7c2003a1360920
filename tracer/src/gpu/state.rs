//! A device's state beside its load: throttling, clocks, PCIe link, memory errors, temperature.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use super::rows::{Rows, reason};
use super::window::Moment;
use crate::trace::{DeviceState, Ns, Record};

/// What needs a call of its own is asked for no more often.
const EVERY_NS: u64 = 900_000_000;
/// Changes of clock and temperature that are worth a record.
const CLOCK_STEP_PERCENT: u32 = 5;
const TEMPERATURE_STEP_C: u32 = 5;

#[derive(Debug, Default)]
pub(super) struct StateWatch {
    asked: Option<Ns>,
    written: Option<DeviceState>,
}

impl StateWatch {
    /// Looks at the device, and writes its state where that is new.
    pub(super) fn poll(
        &mut self,
        device: &Device<'_>,
        index: u32,
        moment: Moment,
        rows: &mut Rows,
        out: &mut Vec<Record>,
    ) {
        let throttled = moment.throttle_reasons.is_some()
            && self.written.as_ref().is_some_and(|w| w.throttle_reasons != moment.throttle_reasons);
        if !throttled && self.asked.is_some_and(|asked| moment.at.saturating_sub(asked) < EVERY_NS) {
            return;
        }
        self.asked = Some(moment.at);
        let state = ask(device, index, moment, rows, out);
        if self.written.as_ref().is_none_or(|written| differs(written, &state)) {
            self.written = Some(state.clone());
            out.push(Record::DeviceState(state));
        }
    }
}

fn ask(
    device: &Device<'_>,
    index: u32,
    moment: Moment,
    rows: &mut Rows,
    out: &mut Vec<Record>,
) -> DeviceState {
    let throttle = device.current_throttle_reasons().map(|reasons| reasons.bits());
    let link = device.current_pcie_link_gen().and_then(|g| Ok((g, device.current_pcie_link_width()?)));
    let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile);
    let errors = ecc(MemoryError::Corrected).and_then(|c| Ok((c, ecc(MemoryError::Uncorrected)?)));
    rows.say("nvml_throttle", index, why_not(&throttle), out);
    rows.say("nvml_pcie", index, why_not(&link), out);
    rows.say("nvml_ecc", index, why_not(&errors), out);
    let (link, errors) = (link.ok(), errors.ok());
    DeviceState {
        at: moment.at,
        device: index,
        throttle_reasons: throttle.ok(),
        sm_clock_mhz: moment.sm_clock_mhz,
        sm_clock_max_mhz: device.max_clock_info(Clock::SM).ok(),
        pcie_generation: link.map(|l| l.0),
        pcie_width: link.map(|l| l.1),
        ecc_corrected: errors.map(|e| e.0),
        ecc_uncorrected: errors.map(|e| e.1),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
    }
}

fn why_not<T>(answer: &Result<T, NvmlError>) -> Option<String> {
    answer.as_ref().err().map(reason)
}

/// Whether anything changed that a reader would want to know.
fn differs(before: &DeviceState, now: &DeviceState) -> bool {
    let far = |a: Option<u32>, b: Option<u32>, step: u32| match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(b) > step,
        (a, b) => a != b,
    };
    let clock_step = now.sm_clock_max_mhz.unwrap_or(0) / 100 * CLOCK_STEP_PERCENT;
    let exact = |s: &DeviceState| {
        (s.throttle_reasons, s.pcie_generation, s.pcie_width, s.ecc_corrected, s.ecc_uncorrected)
    };
    exact(before) != exact(now)
        || far(before.sm_clock_mhz, now.sm_clock_mhz, clock_step)
        || far(before.temperature_c, now.temperature_c, TEMPERATURE_STEP_C)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_no_change_and_a_narrower_link_is() {
        let state = DeviceState {
            sm_clock_mhz: Some(1980),
            sm_clock_max_mhz: Some(1980),
            pcie_width: Some(16),
            temperature_c: Some(60),
            ..DeviceState::default()
        };
        let with = |change: &dyn Fn(&mut DeviceState)| {
            let mut other = DeviceState { at: 5, ..state.clone() };
            change(&mut other);
            differs(&state, &other)
        };
        assert!(!with(&|_| ()));
        assert!(!with(&|s| (s.sm_clock_mhz, s.temperature_c) = (Some(1950), Some(63))));
        assert!(with(&|s| s.sm_clock_mhz = Some(1200)));
        assert!(with(&|s| s.temperature_c = Some(70)));
        assert!(with(&|s| s.pcie_width = Some(8)));
        assert!(with(&|s| s.ecc_corrected = Some(1)));
        assert!(with(&|s| s.sm_clock_mhz = None));
    }
}
