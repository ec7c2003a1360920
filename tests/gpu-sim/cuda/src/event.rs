//! Events.

use gpu_sim_timeline::clock;
use libc::c_uint;

use crate::abi::{Code, CuResult, NullStream, answer, give};
use crate::driver::Driver;
use crate::queue::ready;
use crate::wait::wait_until;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _: c_uint) -> CuResult {
    answer(|| {
        let mut objects = Driver::get()?.objects();
        objects.current()?;
        let handle = objects.handle();
        objects.events.insert(handle, None);
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(event, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: usize) -> CuResult {
    answer(|| Driver::get()?.objects().events.remove(&event).map(drop).ok_or(Code::INVALID_HANDLE))
}

fn record(event: usize, stream: usize, null: NullStream) -> Result<(), Code> {
    let mut objects = Driver::get()?.objects();
    let stream = objects.stream(stream, null)?;
    let at = ready(&objects, stream)?.max(clock::now());
    *objects.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)? = Some(at);
    Ok(())
}

fn recorded(event: usize) -> Result<Option<u64>, Code> {
    Driver::get()?.objects().events.get(&event).copied().ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: usize, stream: usize) -> CuResult {
    answer(|| record(event, stream, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord_ptsz(event: usize, stream: usize) -> CuResult {
    answer(|| record(event, stream, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: usize) -> CuResult {
    answer(|| match recorded(event)? {
        Some(at) if at > clock::now() => Err(Code::NOT_READY),
        _ => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: usize) -> CuResult {
    answer(|| {
        let at = recorded(event)?.unwrap_or(0);
        let flags = Driver::get()?.objects().current().map_or(0, |(_, context)| context.flags);
        wait_until(at, flags);
        Ok(())
    })
}

/// Milliseconds between two events that have both happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, start: usize, end: usize) -> CuResult {
    answer(|| {
        let (Some(start), Some(end)) = (recorded(start)?, recorded(end)?) else {
            return Err(Code::INVALID_HANDLE);
        };
        if start.max(end) > clock::now() {
            return Err(Code::NOT_READY);
        }
        let elapsed = end.wrapping_sub(start).cast_signed() as f64 / 1e6;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(ms, elapsed as f32) }
    })
}
