//! The PCIe link, the temperature and memory errors: what changes on a device beside its load.

use gpu_sim_timeline::State;
use libc::{c_uint, c_ulonglong};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEccCounterType_t, nvmlEnableState_t, nvmlMemoryErrorType_t, nvmlReturn_t,
    nvmlTemperatureSensors_t,
};

use crate::abi::{Code, answer, full_device, give};
use crate::library::Library;

const GENERATION: c_uint = 5;
const WIDTH: c_uint = 16;
/// `NVML_MEMORY_ERROR_TYPE_UNCORRECTED`.
const UNCORRECTED: nvmlMemoryErrorType_t = 1;
const TEMPERATURE_C: c_uint = 54;

macro_rules! link {
    ($name:ident, $value:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: nvmlDevice_t, value: *mut c_uint) -> nvmlReturn_t {
            answer(|| {
                let library = Library::get()?;
                let state = library.timeline.state(full_device(&library, handle)?);
                let of: fn(State) -> c_uint = $value;
                // SAFETY: the caller's pointer, as the API demands it.
                unsafe { give(value, of(state)) }
            })
        }
    };
}

fn set_or(set: u32, otherwise: c_uint) -> c_uint {
    if set == 0 { otherwise } else { set }
}

link!(nvmlDeviceGetCurrPcieLinkGeneration, |state| set_or(state.link_generation, GENERATION));
link!(nvmlDeviceGetMaxPcieLinkGeneration, |_| GENERATION);
link!(nvmlDeviceGetCurrPcieLinkWidth, |state| set_or(state.link_width, WIDTH));
link!(nvmlDeviceGetMaxPcieLinkWidth, |_| WIDTH);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    handle: nvmlDevice_t,
    _sensor: nvmlTemperatureSensors_t,
    celsius: *mut c_uint,
) -> nvmlReturn_t {
    answer(|| {
        full_device(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(celsius, TEMPERATURE_C) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEccMode(
    handle: nvmlDevice_t,
    current: *mut nvmlEnableState_t,
    pending: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    answer(|| {
        full_device(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointers, as the API demands them.
        unsafe { give(current, 1).and_then(|()| give(pending, 1)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    handle: nvmlDevice_t,
    kind: nvmlMemoryErrorType_t,
    _counter: nvmlEccCounterType_t,
    count: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let state = library.timeline.state(full_device(&library, handle)?);
        if kind > UNCORRECTED {
            return Err(Code::INVALID_ARGUMENT);
        }
        let errors = if kind == UNCORRECTED { state.ecc_uncorrected } else { state.ecc_corrected };
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(count, errors) }
    })
}
