//! What belongs to no device.

use gpu_sim_timeline::identity;
use libc::{c_char, c_int, c_uint};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use crate::abi::{Code, answer, give, give_text, handle};
use crate::library::Library;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) -> nvmlReturn_t {
    answer(|| {
        Library::get()?;
        // SAFETY: the caller's buffer, as the API demands it.
        unsafe { give_text(text, length, identity::DRIVER_VERSION) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: c_uint) -> nvmlReturn_t {
    answer(|| {
        Library::get()?;
        // SAFETY: the caller's buffer, as the API demands it.
        unsafe { give_text(text, length, concat!("12.", "570.00.00")) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    answer(|| {
        Library::get()?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(version, identity::CUDA_VERSION) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's pointer, as the API demands it.
    answer(|| unsafe { give(count, Library::get()?.timeline.devices()) })
}

fn find(device: *mut nvmlDevice_t, wanted: impl Fn(u32) -> bool, missing: Code) -> Result<(), Code> {
    let devices = Library::get()?.timeline.devices();
    let index = (0..devices).find(|&i| wanted(i)).ok_or(missing)?;
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(device, handle(index)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|| find(device, |i| i == index, Code::INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|| {
        if uuid.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller's string, as the API demands it.
        let uuid = unsafe { std::ffi::CStr::from_ptr(uuid) };
        find(device, |i| uuid.to_bytes() == identity::uuid(i).as_bytes(), Code::NOT_FOUND)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|| {
        if bus_id.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller's string, as the API demands it.
        let bus_id = unsafe { std::ffi::CStr::from_ptr(bus_id) };
        find(device, |i| bus_id.to_bytes() == identity::pci_bus_id(i).as_bytes(), Code::NOT_FOUND)
    })
}
