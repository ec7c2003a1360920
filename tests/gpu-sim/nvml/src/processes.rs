//! Processes with a context, as the host numbers them.

use libc::c_uint;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};

use crate::abi::{Code, answer, device, give};
use crate::library::Library;

/// Not in a GPU instance.
const NONE: c_uint = c_uint::MAX;

/// # Safety
/// `count` is null or valid; `infos` is null or valid for `*count` entries.
unsafe fn list(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
    compute: bool,
) -> Result<(), Code> {
    let library = Library::get()?;
    let index = device(&library, handle)?;
    library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
    let running = if compute { library.timeline.running(index) } else { Vec::new() };
    // SAFETY: null or valid by the caller's promise.
    let room = *unsafe { count.as_ref() }.ok_or(Code::INVALID_ARGUMENT)?;
    // SAFETY: not null, or the line above would have returned.
    unsafe { give(count, running.len() as c_uint)? };
    if running.is_empty() {
        return Ok(());
    }
    if infos.is_null() || (room as usize) < running.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    for (place, process) in running.iter().enumerate() {
        let info = nvmlProcessInfo_t {
            pid: process.pid,
            usedGpuMemory: process.memory,
            gpuInstanceId: NONE,
            computeInstanceId: NONE,
        };
        // SAFETY: `place` is below the number of entries the caller has room for.
        unsafe { infos.add(place).write(info) };
    }
    Ok(())
}

macro_rules! processes {
    ($name:ident, $compute:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: nvmlDevice_t,
            count: *mut c_uint,
            infos: *mut nvmlProcessInfo_t,
        ) -> nvmlReturn_t {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { list(handle, count, infos, $compute) })
        }
    };
}

processes!(nvmlDeviceGetComputeRunningProcesses_v2, true);
processes!(nvmlDeviceGetComputeRunningProcesses_v3, true);
processes!(nvmlDeviceGetGraphicsRunningProcesses_v2, false);
processes!(nvmlDeviceGetGraphicsRunningProcesses_v3, false);
processes!(nvmlDeviceGetMPSComputeRunningProcesses_v3, false);
