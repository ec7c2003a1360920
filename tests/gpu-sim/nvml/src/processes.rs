//! Processes with a context, as the host numbers them. MPS clients are on a list of their own; the server is on the usual one.

use gpu_sim_timeline::{Mps, RunningProcess};
use libc::c_uint;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};

use crate::abi::{Code, answer, give, target};
use crate::library::Library;
use crate::mig::FIRST_ID;

/// Not in a GPU instance.
const NONE: c_uint = c_uint::MAX;

/// # Safety
/// `count` is null or valid; `infos` is null or valid for `*count` entries.
unsafe fn list(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
    listed: fn(&RunningProcess) -> bool,
) -> Result<(), Code> {
    let library = Library::get()?;
    let (index, instance) = target(&library, handle)?;
    library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
    let mut running = library.timeline.running(index);
    running.retain(|process| listed(process) && (instance.is_none() || process.instance == instance));
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
            gpuInstanceId: process.instance.map_or(NONE, |instance| FIRST_ID + instance),
            computeInstanceId: process.instance.map_or(NONE, |_| 0),
        };
        // SAFETY: `place` is below the number of entries the caller has room for.
        unsafe { infos.add(place).write(info) };
    }
    Ok(())
}

macro_rules! processes {
    ($name:ident, $listed:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: nvmlDevice_t,
            count: *mut c_uint,
            infos: *mut nvmlProcessInfo_t,
        ) -> nvmlReturn_t {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { list(handle, count, infos, $listed) })
        }
    };
}

processes!(nvmlDeviceGetComputeRunningProcesses_v2, |process| process.mps != Mps::Client);
processes!(nvmlDeviceGetComputeRunningProcesses_v3, |process| process.mps != Mps::Client);
processes!(nvmlDeviceGetGraphicsRunningProcesses_v2, |_| false);
processes!(nvmlDeviceGetGraphicsRunningProcesses_v3, |_| false);
processes!(nvmlDeviceGetMPSComputeRunningProcesses_v3, |process| process.mps == Mps::Client);
