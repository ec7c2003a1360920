//! Memsets: they run as kernels do, so the device is busy.

use gpu_sim_timeline::Work;
use libc::c_uchar;

use crate::abi::{Code, CuResult, NullStream, answer};
use crate::driver::Driver;
use crate::memory::on_device;
use crate::queue::submit;

const BYTES_PER_US: u64 = 2_000_000;
const LATENCY_NS: u64 = 2_000;

fn memset(address: usize, value: u8, bytes: usize, stream: usize, null: NullStream) -> Result<(), Code> {
    let objects = Driver::get()?.objects();
    if !on_device(&objects, address, bytes) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: inside one of our own blocks, which the table's lock keeps from being freed.
    unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes) };
    drop(objects);
    submit(stream, null, Work::Kernel, LATENCY_NS + bytes as u64 * 1000 / BYTES_PER_US).map(drop)
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
