//! Copies between host and device. They take a stream's time but do not make the device busy.

use gpu_sim_timeline::Work;
use libc::c_void;

use crate::abi::{Code, CuResult, NullStream, answer};
use crate::driver::Driver;
use crate::memory::{on_device, pinned};
use crate::queue::submit;
use crate::wait::wait_until;

/// PCIe 5.0 x16 as copies see it, and with a staging buffer in between; bytes a microsecond.
const PINNED_BYTES_PER_US: u64 = 25_000;
const PAGEABLE_BYTES_PER_US: u64 = 6_000;
const LATENCY_NS: u64 = 8_000;

#[derive(Clone, Copy)]
struct Copy {
    to: usize,
    from: usize,
    /// Which of the two is the device's.
    device: usize,
    host: usize,
    bytes: usize,
}

impl Copy {
    fn to_device(to: usize, from: *const c_void, bytes: usize) -> Self {
        Self { to, from: from as usize, device: to, host: from as usize, bytes }
    }

    fn to_host(to: *mut c_void, from: usize, bytes: usize) -> Self {
        Self { to: to as usize, from, device: from, host: to as usize, bytes }
    }

    /// Moves the bytes and puts the transfer into the stream; returns when it will be done.
    ///
    /// # Safety
    /// The host side is valid for `bytes` bytes.
    unsafe fn start(self, stream: usize, null: NullStream) -> Result<u64, Code> {
        let objects = Driver::get()?.objects();
        if self.host == 0 || !on_device(&objects, self.device, self.bytes) {
            return Err(Code::INVALID_VALUE);
        }
        let rate =
            if pinned(&objects, self.host, self.bytes) { PINNED_BYTES_PER_US } else { PAGEABLE_BYTES_PER_US };
        drop(objects);
        // SAFETY: the device side is one of our own blocks, the host side valid by the caller's promise, and
        // they cannot overlap unless the caller named device memory twice, which `copy` allows.
        unsafe { std::ptr::copy(self.from as *const u8, self.to as *mut u8, self.bytes) };
        submit(stream, null, Work::Copy, LATENCY_NS + self.bytes as u64 * 1000 / rate)
    }

    /// # Safety
    /// As for [`Copy::start`].
    unsafe fn run(self, null: NullStream) -> Result<(), Code> {
        // SAFETY: by the caller's promise.
        let done = unsafe { self.start(0, null) }?;
        let flags = Driver::get()?.objects().current()?.1.flags;
        wait_until(done, flags);
        Ok(())
    }
}

macro_rules! blocking {
    ($name:ident, $null:expr, ($to:ident: $to_type:ty, $from:ident: $from_type:ty), $make:path) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($to: $to_type, $from: $from_type, bytes: usize) -> CuResult {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { $make($to, $from, bytes).run($null) })
        }
    };
}

macro_rules! queued {
    ($name:ident, $null:expr, ($to:ident: $to_type:ty, $from:ident: $from_type:ty), $make:path) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $to: $to_type,
            $from: $from_type,
            bytes: usize,
            stream: usize,
        ) -> CuResult {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { $make($to, $from, bytes).start(stream, $null).map(drop) })
        }
    };
}

blocking!(cuMemcpyHtoD_v2, NullStream::Legacy, (to: usize, from: *const c_void), Copy::to_device);
blocking!(cuMemcpyHtoD_v2_ptds, NullStream::PerThread, (to: usize, from: *const c_void), Copy::to_device);
blocking!(cuMemcpyDtoH_v2, NullStream::Legacy, (to: *mut c_void, from: usize), Copy::to_host);
blocking!(cuMemcpyDtoH_v2_ptds, NullStream::PerThread, (to: *mut c_void, from: usize), Copy::to_host);
queued!(cuMemcpyHtoDAsync_v2, NullStream::Legacy, (to: usize, from: *const c_void), Copy::to_device);
queued!(cuMemcpyHtoDAsync_v2_ptsz, NullStream::PerThread, (to: usize, from: *const c_void), Copy::to_device);
queued!(cuMemcpyDtoHAsync_v2, NullStream::Legacy, (to: *mut c_void, from: usize), Copy::to_host);
queued!(cuMemcpyDtoHAsync_v2_ptsz, NullStream::PerThread, (to: *mut c_void, from: usize), Copy::to_host);
