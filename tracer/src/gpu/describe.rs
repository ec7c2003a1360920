//! What a device is.

use nvml_wrapper::Nvml;

use crate::trace::Device;

/// The device at an NVML index. What it does not tell stays empty; a device that answers nothing keeps its
/// index, so that its time is unknown rather than missing.
pub(super) fn describe(nvml: &Nvml, index: u32, sample_period_ns: Option<u64>) -> Device {
    let mut described = Device {
        index,
        sample_period_ns,
        driver_version: nvml.sys_driver_version().unwrap_or_default(),
        cuda_version: nvml.sys_cuda_driver_version().ok().and_then(|v| u32::try_from(v).ok()),
        ..Device::default()
    };
    let Ok(device) = nvml.device_by_index(index) else { return described };
    described.uuid = device.uuid().unwrap_or_default();
    described.name = device.name().unwrap_or_default();
    described.minor = device.minor_number().ok();
    described.power_limit_mw =
        device.enforced_power_limit().or_else(|_unsupported| device.power_management_limit()).ok();
    described.mig = is_mig(&device);
    described.pcie_width = device.current_pcie_link_width().ok();
    described.pcie_width_max = device.max_pcie_link_width().ok();
    described.pcie_generation = device.current_pcie_link_gen().ok();
    described.pcie_generation_max = device.max_pcie_link_gen().ok();
    described
}

pub(super) fn is_mig(device: &nvml_wrapper::Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|mode| mode.current != 0)
}
