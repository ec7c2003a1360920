//! Events.

use std::sync::Arc;

use gpu_sim_timeline::clock;
use libc::c_uint;

use crate::abi::{Code, CuResult, NullStream, answer, give};
use crate::driver::Driver;
use crate::queue::{Item, Mark, settle, submit};
use crate::wait::wait_for;

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
    let driver = Driver::get()?;
    if !driver.objects().events.contains_key(&event) {
        return Err(Code::INVALID_HANDLE);
    }
    let mark = Mark::default();
    submit(stream, null, Item::Mark(Arc::clone(&mark)))?;
    driver.objects().events.insert(event, Some(mark));
    Ok(())
}

/// The event's mark, its time settled if it can be. `None`: never recorded.
fn recorded(driver: &'static Driver, event: usize) -> Result<Option<Mark>, Code> {
    let mut objects = driver.objects();
    settle(driver, &mut objects)?;
    objects.events.get(&event).cloned().ok_or(Code::INVALID_HANDLE)
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
pub unsafe extern "C" fn cuEventRecordWithFlags(event: usize, stream: usize, _: c_uint) -> CuResult {
    answer(|| record(event, stream, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecordWithFlags_ptsz(event: usize, stream: usize, _: c_uint) -> CuResult {
    answer(|| record(event, stream, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: usize) -> CuResult {
    answer(|| match recorded(Driver::get()?, event)? {
        Some(mark) if mark.get().is_none_or(|&at| at > clock::now()) => Err(Code::NOT_READY),
        _ => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: usize) -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        let Some(mark) = recorded(driver, event)? else { return Ok(()) };
        let flags = driver.objects().current().map_or(0, |(_, context)| context.flags);
        wait_for(driver, &mark, flags);
        Ok(())
    })
}

/// Milliseconds between two events that have both happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, start: usize, end: usize) -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        let (Some(start), Some(end)) = (recorded(driver, start)?, recorded(driver, end)?) else {
            return Err(Code::INVALID_HANDLE);
        };
        let (Some(&start), Some(&end)) = (start.get(), end.get()) else { return Err(Code::NOT_READY) };
        if start.max(end) > clock::now() {
            return Err(Code::NOT_READY);
        }
        let elapsed = end.wrapping_sub(start).cast_signed() as f64 / 1e6;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(ms, elapsed as f32) }
    })
}
