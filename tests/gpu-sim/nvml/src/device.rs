//! What a device is: names, link, memory, clocks that do not depend on load.

use gpu_sim_timeline::{identity, signal};
use libc::{c_char, c_int, c_uint};
use nvml_wrapper_sys::bindings::{
    nvmlClockType_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlReturn_t,
};

use crate::abi::{Code, answer, device, give, give_text, target};
use crate::library::Library;

const SM_CLOCK_MAX_MHZ: c_uint = 1980;
const SM_CLOCK_BARE_MHZ: c_uint = 345;
const MEMORY_CLOCK_MHZ: c_uint = 2619;
/// `NVML_CLOCK_MEM`.
const MEMORY: nvmlClockType_t = 2;

macro_rules! number {
    ($name:ident, $value:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: nvmlDevice_t, value: *mut c_uint) -> nvmlReturn_t {
            answer(|| {
                let library = Library::get()?;
                let index = device(&library, handle)?;
                let of: fn(&Library, u32) -> c_uint = $value;
                // SAFETY: the caller's pointer, as the API demands it.
                unsafe { give(value, of(&library, index)) }
            })
        }
    };
}

number!(nvmlDeviceGetIndex, |_, index| index);
number!(nvmlDeviceGetMinorNumber, |library, index| identity::minor(index, library.timeline.devices()));
number!(nvmlDeviceGetPowerManagementLimit, |_, _| signal::POWER_LIMIT_MW);
number!(nvmlDeviceGetEnforcedPowerLimit, |_, _| signal::POWER_LIMIT_MW);
number!(nvmlDeviceGetPowerManagementDefaultLimit, |_, _| signal::POWER_LIMIT_MW);
number!(nvmlDeviceGetPersistenceMode, |_, _| 1);

macro_rules! name {
    ($name:ident, $value:path, $of_instance:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: nvmlDevice_t,
            text: *mut c_char,
            length: c_uint,
        ) -> nvmlReturn_t {
            answer(|| {
                let of_instance: fn(u32, u32) -> String = $of_instance;
                let value = match target(&*Library::get()?, handle)? {
                    (index, None) => $value(index),
                    (index, Some(instance)) => of_instance(index, instance),
                };
                // SAFETY: the caller's buffer, as the API demands it.
                unsafe { give_text(text, length, &value) }
            })
        }
    };
}

name!(nvmlDeviceGetName, identity::name, |index, _| identity::mig_name(index));
name!(nvmlDeviceGetUUID, identity::uuid, identity::mig_uuid);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(
    handle: nvmlDevice_t,
    info: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    answer(|| {
        let index = device(&*Library::get()?, handle)?;
        let mut filled = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0x10 + index,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        let text = identity::pci_bus_id(index);
        // SAFETY: both arrays with their lengths.
        unsafe {
            give_text(filled.busId.as_mut_ptr(), filled.busId.len() as c_uint, &text)?;
            let (legacy, length) = (filled.busIdLegacy.as_mut_ptr(), filled.busIdLegacy.len() as c_uint);
            give_text(legacy, length, &text[4..])?;
            give(info, filled)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    handle: nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> nvmlReturn_t {
    answer(|| {
        device(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointers, as the API demands them.
        unsafe { give(major, 9).and_then(|()| give(minor, 0)) }
    })
}

fn memory(handle: nvmlDevice_t) -> Result<(u64, u64), Code> {
    let library = Library::get()?;
    let index = device(&library, handle)?;
    library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
    let used = library.timeline.running(index).iter().map(|p| p.memory).sum();
    Ok((identity::MEMORY_BYTES, used))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(
    handle: nvmlDevice_t,
    info: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    answer(|| {
        let (total, used) = memory(handle)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(info, nvmlMemory_t { total, free: total.saturating_sub(used), used }) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    handle: nvmlDevice_t,
    info: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    answer(|| {
        let (total, used) = memory(handle)?;
        // SAFETY: null or the caller's structure, as the API demands it.
        let info = unsafe { info.as_mut() }.ok_or(Code::INVALID_ARGUMENT)?;
        // The structure's size with its version in the upper byte.
        if info.version != (size_of::<nvmlMemory_v2_t>() as c_uint | 2 << 24) {
            return Err(Code::VERSION_MISMATCH);
        }
        (info.total, info.used, info.reserved, info.free) = (total, used, 0, total.saturating_sub(used));
        Ok(())
    })
}

/// At maximum whenever a context exists, busy or not.
fn clock(library: &Library, index: u32, kind: nvmlClockType_t) -> c_uint {
    match kind {
        MEMORY => MEMORY_CLOCK_MHZ,
        _ if library.timeline.running(index).is_empty() => SM_CLOCK_BARE_MHZ,
        _ => SM_CLOCK_MAX_MHZ,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    handle: nvmlDevice_t,
    kind: nvmlClockType_t,
    clock_mhz: *mut c_uint,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = device(&library, handle)?;
        library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(clock_mhz, clock(&library, index, kind)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    handle: nvmlDevice_t,
    kind: nvmlClockType_t,
    clock_mhz: *mut c_uint,
) -> nvmlReturn_t {
    answer(|| {
        device(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(clock_mhz, if kind == MEMORY { MEMORY_CLOCK_MHZ } else { SM_CLOCK_MAX_MHZ }) }
    })
}
