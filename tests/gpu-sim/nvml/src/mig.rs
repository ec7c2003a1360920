//! MIG: one GPU instance with one compute instance each, as many as the settings say.

use libc::c_uint;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use crate::abi::{Code, answer, device, give, handle, mig_handle, target};
use crate::library::Library;

/// What a device can be split into.
const MOST: c_uint = 7;
/// Instance ids do not count from 0: those below belong to larger profiles.
pub(crate) const FIRST_ID: c_uint = 7;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    handle: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        device(&library, handle)?;
        let mode = c_uint::from(library.faults.mig);
        // SAFETY: the caller's pointers, as the API demands them.
        unsafe { give(current, mode).and_then(|()| give(pending, mode)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(
    handle: nvmlDevice_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    answer(|| {
        device(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(count, MOST) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    parent: nvmlDevice_t,
    instance: c_uint,
    found: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = device(&library, parent)?;
        if instance >= MOST {
            return Err(Code::INVALID_ARGUMENT);
        }
        if instance >= library.faults.mig_instances {
            return Err(Code::NOT_FOUND);
        }
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(found, mig_handle(index, instance)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    instance: nvmlDevice_t,
    parent: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|| match target(&*Library::get()?, instance)? {
        // SAFETY: the caller's pointer, as the API demands it.
        (index, Some(_)) => unsafe { give(parent, handle(index)) },
        (_, None) => Err(Code::INVALID_ARGUMENT),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(
    handle: nvmlDevice_t,
    is_mig: *mut c_uint,
) -> nvmlReturn_t {
    answer(|| {
        let (_, instance) = target(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(is_mig, c_uint::from(instance.is_some())) }
    })
}

macro_rules! id {
    ($name:ident, $value:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
            answer(|| {
                let (_, instance) = target(&*Library::get()?, handle)?;
                let of: fn(u32) -> c_uint = $value;
                let value = of(instance.ok_or(Code::INVALID_ARGUMENT)?);
                // SAFETY: the caller's pointer, as the API demands it.
                unsafe { give(id, value) }
            })
        }
    };
}

id!(nvmlDeviceGetGpuInstanceId, |instance| FIRST_ID + instance);
id!(nvmlDeviceGetComputeInstanceId, |_| 0);
