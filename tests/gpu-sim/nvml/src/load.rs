//! Readings that follow the load and are not buffered.

use gpu_sim_timeline::{clock, signal};
use libc::{c_uint, c_ulonglong};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t, nvmlUtilization_t};

use crate::abi::{Code, answer, device, full_device, give};
use crate::library::Library;
use crate::samples::{busy_percent, power_mw};

/// `nvmlClocksThrottleReasonGpuIdle`.
const THROTTLE_IDLE: c_ulonglong = 1;

/// The last whole period's busy and memory percent: up to one period old.
fn rates(library: &Library, index: u32) -> Result<(c_uint, c_uint), Code> {
    library.maybe_hang();
    if library.faults.mig {
        return Err(Code::NOT_SUPPORTED);
    }
    library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
    let (now, period) = (clock::now(), library.period_ns);
    let Some(&end) = signal::period_ends(&library.timeline, index, period, 0, now).last() else {
        return Ok((0, 0));
    };
    let recent = signal::Recent::new(&library.timeline, index, end.saturating_sub(period), now);
    let garbage = library.faults.garbage == Some(1);
    Ok((busy_percent(library, &recent, end, garbage), recent.memory(end, period)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    handle: nvmlDevice_t,
    utilization: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let (gpu, memory) = rates(&library, device(&library, handle)?)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(utilization, nvmlUtilization_t { gpu, memory }) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(handle: nvmlDevice_t, power: *mut c_uint) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = full_device(&library, handle)?;
        library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
        let now = clock::now();
        let since = now.saturating_sub(signal::POWER_WINDOW_NS);
        let recent = signal::Recent::new(&library.timeline, index, since, now);
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(power, power_mw(&library, &recent, now)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    handle: nvmlDevice_t,
    reasons: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = full_device(&library, handle)?;
        let now = clock::now();
        let since = now.saturating_sub(library.period_ns);
        let recent = signal::Recent::new(&library.timeline, index, since, now);
        let idle = recent.utilization(now, library.period_ns) == 0;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(reasons, library.timeline.state(index).throttle | (u64::from(idle) * THROTTLE_IDLE)) }
    })
}
