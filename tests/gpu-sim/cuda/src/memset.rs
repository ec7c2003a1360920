//! Memsets: they run as kernels do, so the device is busy.

use gpu_sim_timeline::Work;
use libc::{c_uchar, c_uint};

use crate::abi::{Code, CuResult, NullStream, answer};
use crate::driver::Driver;
use crate::memory::on_device;
use crate::queue::{Item, submit};

const BYTES_PER_US: u64 = 2_000_000;
const LATENCY_NS: u64 = 2_000;

/// Only the low byte of wider values is written: what memory holds does not matter here.
fn memset(address: usize, value: u8, bytes: usize, stream: usize, null: NullStream) -> Result<(), Code> {
    let objects = Driver::get()?.objects();
    if !on_device(&objects, address, bytes) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: inside one of our own blocks, which the table's lock keeps from being freed.
    unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes) };
    drop(objects);
    let ns = LATENCY_NS + bytes as u64 * 1000 / BYTES_PER_US;
    submit(stream, null, Item::Work { work: Work::Kernel, ns })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(address: usize, value: c_uchar, count: usize) -> CuResult {
    answer(|| memset(address, value, count, 0, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2_ptds(address: usize, value: c_uchar, count: usize) -> CuResult {
    answer(|| memset(address, value, count, 0, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    address: usize,
    value: c_uchar,
    count: usize,
    stream: usize,
) -> CuResult {
    answer(|| memset(address, value, count, stream, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async_ptsz(
    address: usize,
    value: c_uchar,
    count: usize,
    stream: usize,
) -> CuResult {
    answer(|| memset(address, value, count, stream, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32_v2(address: usize, value: c_uint, count: usize) -> CuResult {
    answer(|| memset(address, value as c_uchar, count * 4, 0, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(
    address: usize,
    value: c_uint,
    count: usize,
    stream: usize,
) -> CuResult {
    answer(|| memset(address, value as c_uchar, count * 4, stream, NullStream::Legacy))
}
