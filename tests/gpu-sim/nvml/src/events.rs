//! Event sets. What a test raises on a device is delivered to every set that asked for its kind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use libc::{c_uint, c_ulonglong};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeSingleBitEccError, nvmlEventTypeXidCriticalError, nvmlReturn_t,
};

use crate::abi::{Code, answer, full_device, give, handle};
use crate::library::Library;

const SUPPORTED: c_ulonglong = (nvmlEventTypeXidCriticalError
    | nvmlEventTypeSingleBitEccError
    | nvmlEventTypeDoubleBitEccError) as c_ulonglong;
/// Not in a GPU instance.
const NONE: c_uint = c_uint::MAX;
const STEP: Duration = Duration::from_millis(2);

/// For each device the kinds asked for, and the number of the next event to look at.
pub(crate) type EventSet = BTreeMap<u32, (c_ulonglong, u64)>;

fn allowed(library: &Library) -> Result<(), Code> {
    if library.faults.no_permission { Err(Code::NO_PERMISSION) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        allowed(&library)?;
        let number = library.objects().add_set();
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(set, std::ptr::without_provenance_mut(number)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let freed = library.objects().sets.remove(&set.addr());
        freed.map(drop).ok_or(Code::INVALID_ARGUMENT)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(
    handle: nvmlDevice_t,
    types: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(|| {
        full_device(&*Library::get()?, handle)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(types, SUPPORTED) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = full_device(&library, device)?;
        if types & !SUPPORTED != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let next = library.timeline.raised(index);
        let mut objects = library.objects();
        let set = objects.sets.get_mut(&set.addr()).ok_or(Code::INVALID_ARGUMENT)?;
        set.insert(index, (types, next));
        Ok(())
    })
}

/// The next event of the set that was raised.
fn next(library: &Library, set: nvmlEventSet_t) -> Result<Option<nvmlEventData_t>, Code> {
    let mut objects = library.objects();
    let set = objects.sets.get_mut(&set.addr()).ok_or(Code::INVALID_ARGUMENT)?;
    for (&device, (types, number)) in set {
        while let Some(event) = library.timeline.event(device, *number) {
            *number += 1;
            if event.kind & *types != 0 {
                return Ok(Some(nvmlEventData_t {
                    device: handle(device),
                    eventType: event.kind,
                    eventData: event.value,
                    gpuInstanceId: NONE,
                    computeInstanceId: NONE,
                }));
            }
        }
    }
    Ok(None)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let until = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            if let Some(event) = next(&library, set)? {
                // SAFETY: the caller's pointer, as the API demands it.
                return unsafe { give(data, event) };
            }
            if Instant::now() >= until {
                return Err(Code::TIMEOUT);
            }
            std::thread::sleep(STEP);
        }
    })
}
