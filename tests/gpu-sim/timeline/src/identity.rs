//! What both libraries say a device is called.

#[must_use]
pub fn name(_device: u32) -> String {
    "Simulated GPU 80GB".into()
}

#[must_use]
pub fn uuid(device: u32) -> String {
    format!("GPU-5349-4d00-4750-5500-{device:012x}")
}

/// A MIG instance's.
#[must_use]
pub fn mig_uuid(device: u32, instance: u32) -> String {
    format!("MIG-5349-4d00-4750-55{instance:02x}-{device:012x}")
}

#[must_use]
pub fn mig_name(device: u32) -> String {
    format!("{} MIG 1g.10gb", name(device))
}

/// Minor number of the device node. In the reverse order of the indices, as the two need not agree.
#[must_use]
pub fn minor(device: u32, devices: u32) -> u32 {
    devices.saturating_sub(1).saturating_sub(device)
}

#[must_use]
pub fn pci_bus_id(device: u32) -> String {
    format!("00000000:{:02X}:00.0", 0x10 + device)
}

pub const MEMORY_BYTES: u64 = 80 << 30;
/// Newest CUDA version of the "driver", as `cuDriverGetVersion` writes it.
pub const CUDA_VERSION: i32 = 12_080;
pub const DRIVER_VERSION: &str = "570.00.00";
