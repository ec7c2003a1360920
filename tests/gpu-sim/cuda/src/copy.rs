//! Copies. They take a stream's time but do not make the device busy.

use std::sync::Arc;

use gpu_sim_timeline::Work;
use libc::c_void;

use crate::abi::{Code, CuResult, NullStream, answer};
use crate::driver::Driver;
use crate::memory::{on_device, pinned};
use crate::queue::{Item, Mark, submit};
use crate::wait::wait_for;

/// PCIe 5.0 x16 as copies see it, with a staging buffer in between, and within the device; bytes a
/// microsecond.
pub(crate) const PINNED_BYTES_PER_US: u64 = 25_000;
const PAGEABLE_BYTES_PER_US: u64 = 6_000;
const DEVICE_BYTES_PER_US: u64 = 1_000_000;
const LATENCY_NS: u64 = 8_000;
/// A pageable copy to the device of no more than this is staged at once, and the call returns.
const STAGED: usize = 64 << 10;

/// Whether the caller asks to wait for the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Blocking,
    Queued,
}

/// # Safety
/// A side that is not the device's is valid for `bytes` bytes.
unsafe fn copy(
    (to, from, bytes): (usize, usize, usize),
    stream: usize,
    null: NullStream,
    form: Form,
) -> Result<(), Code> {
    let driver = Driver::get()?;
    let objects = driver.objects();
    let (to_device, from_device) = (on_device(&objects, to, bytes), on_device(&objects, from, bytes));
    let host = if to_device { from } else { to };
    if to == 0 || from == 0 || !(to_device || from_device) {
        return Err(Code::INVALID_VALUE);
    }
    let within = to_device && from_device;
    let pageable = !within && !pinned(&objects, host, bytes);
    let flags = objects.current()?.1.flags;
    drop(objects);
    let rate = match (within, pageable) {
        (true, _) => DEVICE_BYTES_PER_US,
        (_, true) => PAGEABLE_BYTES_PER_US.min(driver.link),
        _ => driver.link,
    };
    // SAFETY: the device sides are our own blocks, the host side valid by the caller's promise, and `copy`
    // allows them to overlap.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    submit(stream, null, Item::Work { work: Work::Copy, ns: LATENCY_NS + bytes as u64 * 1000 / rate })?;
    // The driver's own threads of copying: pageable memory is done with when the call returns.
    let waits = match form {
        Form::Blocking => !within,
        Form::Queued => pageable && !(to_device && bytes <= STAGED),
    };
    if waits {
        let done = Mark::default();
        submit(stream, null, Item::Mark(Arc::clone(&done)))?;
        wait_for(driver, &done, flags);
    }
    Ok(())
}

macro_rules! blocking {
    ($name:ident, $null:expr, $to:ty, $from:ty) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: $to, from: $from, bytes: usize) -> CuResult {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { copy((to as usize, from as usize, bytes), 0, $null, Form::Blocking) })
        }
    };
}

macro_rules! queued {
    ($name:ident, $null:expr, $to:ty, $from:ty) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: $to, from: $from, bytes: usize, stream: usize) -> CuResult {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { copy((to as usize, from as usize, bytes), stream, $null, Form::Queued) })
        }
    };
}

blocking!(cuMemcpy, NullStream::Legacy, usize, usize);
blocking!(cuMemcpy_ptds, NullStream::PerThread, usize, usize);
blocking!(cuMemcpyHtoD_v2, NullStream::Legacy, usize, *const c_void);
blocking!(cuMemcpyHtoD_v2_ptds, NullStream::PerThread, usize, *const c_void);
blocking!(cuMemcpyDtoH_v2, NullStream::Legacy, *mut c_void, usize);
blocking!(cuMemcpyDtoH_v2_ptds, NullStream::PerThread, *mut c_void, usize);
blocking!(cuMemcpyDtoD_v2, NullStream::Legacy, usize, usize);
queued!(cuMemcpyAsync, NullStream::Legacy, usize, usize);
queued!(cuMemcpyAsync_ptsz, NullStream::PerThread, usize, usize);
queued!(cuMemcpyHtoDAsync_v2, NullStream::Legacy, usize, *const c_void);
queued!(cuMemcpyHtoDAsync_v2_ptsz, NullStream::PerThread, usize, *const c_void);
queued!(cuMemcpyDtoHAsync_v2, NullStream::Legacy, *mut c_void, usize);
queued!(cuMemcpyDtoHAsync_v2_ptsz, NullStream::PerThread, *mut c_void, usize);
queued!(cuMemcpyDtoDAsync_v2, NullStream::Legacy, usize, usize);
