//! Device and pinned host memory. Device memory is ordinary memory that takes room only once it is written.

use gpu_sim_timeline::identity::MEMORY_BYTES;
use libc::{c_uint, c_void};

use crate::abi::{Code, CuResult, answer, give};
use crate::driver::Driver;
use crate::objects::{Block, Objects};
use crate::queue::{Queue, mark};
use crate::wait::wait_for;

fn map(bytes: usize, flags: libc::c_int) -> Result<usize, Code> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: a fresh private mapping; the kernel chooses the address.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(address as usize) }
}

fn unmap(address: usize, bytes: usize) {
    // SAFETY: made by `map` with these values and taken out of the table, so unmapped once.
    unsafe { libc::munmap(address as *mut c_void, bytes) };
}

/// Whether `[address, address + bytes)` lies in one device allocation.
pub(crate) fn on_device(objects: &Objects, address: usize, bytes: usize) -> bool {
    let below = objects.device_memory.range(..=address).next_back();
    below.is_some_and(|(&start, block)| within(start, block.bytes, address, bytes))
}

/// Whether it lies in one pinned host allocation, or in one registered range.
pub(crate) fn pinned(objects: &Objects, address: usize, bytes: usize) -> bool {
    [&objects.host_memory, &objects.registered].into_iter().any(|ranges| {
        let below = ranges.range(..=address).next_back();
        below.is_some_and(|(&start, &size)| within(start, size, address, bytes))
    })
}

fn within(start: usize, size: usize, address: usize, bytes: usize) -> bool {
    address.checked_add(bytes).is_some_and(|end| end <= start + size)
}

fn alloc(address: *mut usize, bytes: usize) -> Result<(), Code> {
    let driver = Driver::get()?;
    let mut objects = driver.objects();
    let device = objects.current()?.1.device;
    let used: usize = objects.device_memory.values().filter(|b| b.device == device).map(|b| b.bytes).sum();
    if used.checked_add(bytes).is_none_or(|sum| sum as u64 > MEMORY_BYTES) {
        return Err(Code::OUT_OF_MEMORY);
    }
    let made = map(bytes, libc::MAP_NORESERVE)?;
    objects.device_memory.insert(made, Block { bytes, device });
    driver.process.memory_changed(device, bytes as i64);
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(address, made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut usize, bytes: usize) -> CuResult {
    answer(|| alloc(address, bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(address: *mut usize, bytes: usize, _: c_uint) -> CuResult {
    answer(|| alloc(address, bytes))
}

/// The memory is there at once, whatever the stream has still to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut usize, bytes: usize, _stream: usize) -> CuResult {
    answer(|| alloc(address, bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: usize, _stream: usize) -> CuResult {
    answer(|| free(Driver::get()?, address))
}

/// Waits for the context's work first, as the real one does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: usize) -> CuResult {
    answer(|| {
        if address == 0 {
            return Ok(());
        }
        let driver = Driver::get()?;
        let mut objects = driver.objects();
        let (handle, context) = objects.current()?;
        let flags = context.flags;
        let done = mark(driver, &mut objects, Queue::Context(handle))?;
        drop(objects);
        wait_for(driver, &done, flags);
        free(driver, address)
    })
}

fn free(driver: &Driver, address: usize) -> Result<(), Code> {
    let block = driver.objects().device_memory.remove(&address).ok_or(Code::INVALID_VALUE)?;
    driver.process.memory_changed(block.device, -(block.bytes as i64));
    unmap(address, block.bytes);
    Ok(())
}

fn host_alloc(address: *mut usize, bytes: usize) -> Result<(), Code> {
    let mut objects = Driver::get()?.objects();
    objects.current()?;
    // Pinned memory is resident from the start.
    let made = map(bytes, libc::MAP_POPULATE)?;
    objects.host_memory.insert(made, bytes);
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(address, made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut usize, bytes: usize, _: c_uint) -> CuResult {
    answer(|| host_alloc(address, bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(address: *mut usize, bytes: usize) -> CuResult {
    answer(|| host_alloc(address, bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: usize) -> CuResult {
    answer(|| {
        let bytes = Driver::get()?.objects().host_memory.remove(&address).ok_or(Code::INVALID_VALUE)?;
        unmap(address, bytes);
        Ok(())
    })
}

/// The memory stays the caller's; from now on copies take it for pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, _: c_uint) -> CuResult {
    answer(|| {
        let mut objects = Driver::get()?.objects();
        objects.current()?;
        if address.is_null() || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        objects.registered.insert(address as usize, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(address: *mut c_void) -> CuResult {
    answer(|| {
        let mut objects = Driver::get()?.objects();
        objects.registered.remove(&(address as usize)).map(drop).ok_or(Code::INVALID_VALUE)
    })
}
