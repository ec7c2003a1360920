//! Contexts, and waiting for everything in one.

use libc::{c_int, c_uint, c_void};

use crate::abi::{Code, CuResult, answer, give};
use crate::device::index;
use crate::driver::Driver;
use crate::objects::{Context, Objects, Primary, context_stack};
use crate::queue::{Queue, mark};
use crate::stream::Stream;
use crate::wait::wait_for;

fn make(driver: &Driver, objects: &mut Objects, device: u32, flags: c_uint) -> usize {
    let (context, null_stream) = (objects.handle(), objects.handle());
    objects.streams.insert(null_stream, Stream::new(context, true));
    objects.contexts.insert(context, Context { device, flags, null_stream, orphaned: 0 });
    driver.process.context_made(device);
    context
}

fn destroy(driver: &Driver, objects: &mut Objects, context: usize) -> Result<(), Code> {
    let gone = objects.contexts.remove(&context).ok_or(Code::INVALID_CONTEXT)?;
    let streams: Vec<usize> =
        objects.streams.iter().filter(|(_, s)| s.context == context).map(|(&handle, _)| handle).collect();
    for handle in streams {
        if let Some(lane) = objects.streams.remove(&handle).and_then(|stream| stream.lane) {
            lane.give_back(driver.timeline);
        }
    }
    context_stack(|stack| stack.retain(|&c| c != context));
    driver.process.context_gone(gone.device);
    Ok(())
}

fn create(context: *mut usize, flags: c_uint, device: c_int) -> Result<(), Code> {
    let driver = Driver::get()?;
    let made = make(driver, &mut driver.objects(), index(device)?, flags);
    context_stack(|stack| stack.push(made));
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(context, made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int) -> CuResult {
    answer(|| create(context, flags, device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v3(
    context: *mut usize,
    _affinities: *const c_void,
    _count: c_int,
    flags: c_uint,
    device: c_int,
) -> CuResult {
    answer(|| create(context, flags, device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v4(
    context: *mut usize,
    _parameters: *const c_void,
    flags: c_uint,
    device: c_int,
) -> CuResult {
    answer(|| create(context, flags, device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxDestroy_v2(context: usize) -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        let mut objects = driver.objects();
        let flags = objects.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)?.flags;
        let done = mark(driver, &mut objects, Queue::Context(context))?;
        drop(objects);
        wait_for(driver, &done, flags);
        objects = driver.objects();
        destroy(driver, &mut objects, context)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> CuResult {
    answer(|| {
        if context != 0 && !Driver::get()?.objects().contexts.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        context_stack(|stack| {
            stack.pop();
            stack.extend((context != 0).then_some(context));
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> CuResult {
    answer(|| {
        Driver::get()?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(context, context_stack(|stack| stack.last().copied().unwrap_or(0))) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(context: usize) -> CuResult {
    answer(|| {
        if !Driver::get()?.objects().contexts.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        context_stack(|stack| stack.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> CuResult {
    answer(|| {
        Driver::get()?;
        let popped = context_stack(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        if !context.is_null() {
            // SAFETY: not null, so the caller's pointer, as the API demands it.
            unsafe { context.write(popped) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        let index = driver.objects().current()?.1.device;
        let ordinal = driver.ordinals.iter().position(|&i| i == index).ok_or(Code::INVALID_DEVICE)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(device, ordinal as c_int) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        let mut objects = driver.objects();
        let (handle, context) = objects.current()?;
        let flags = context.flags;
        let done = mark(driver, &mut objects, Queue::Context(handle))?;
        drop(objects);
        wait_for(driver, &done, flags);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> CuResult {
    answer(|| {
        let (driver, index) = (Driver::get()?, index(device)?);
        let mut objects = driver.objects();
        let ordinal = device as usize;
        let primary = match objects.primaries.get(&ordinal).copied() {
            Some(primary) => primary,
            None => {
                let flags = objects.primary_flags.get(&ordinal).copied().unwrap_or(0);
                Primary { context: make(driver, &mut objects, index, flags), retained: 0 }
            }
        };
        objects.primaries.insert(ordinal, Primary { retained: primary.retained + 1, ..primary });
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(context, primary.context) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        index(device)?;
        let mut objects = driver.objects();
        let primary = objects.primaries.get_mut(&(device as usize)).ok_or(Code::INVALID_CONTEXT)?;
        primary.retained -= 1;
        let Primary { context, retained } = *primary;
        if retained > 0 {
            return Ok(());
        }
        objects.primaries.remove(&(device as usize));
        destroy(driver, &mut objects, context)
    })
}

/// Unlike the real one it takes effect only before the context is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> CuResult {
    answer(|| {
        index(device)?;
        Driver::get()?.objects().primary_flags.insert(device as usize, flags);
        Ok(())
    })
}
