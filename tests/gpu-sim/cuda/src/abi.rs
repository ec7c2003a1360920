//! The driver API's types and results, as far as they are used here (`cuda.h`).

use libc::{c_char, c_int, c_uint};

/// A `CUresult` other than `CUDA_SUCCESS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

pub(crate) type CuResult = c_int;

impl Code {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const STREAM_CAPTURE_INVALIDATED: Self = Self(901);
    pub(crate) const UNKNOWN: Self = Self(999);
}

pub(crate) const TEXTS: &[(c_int, &std::ffi::CStr, &std::ffi::CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"stream capture failed"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// `CUDA_KERNEL_NODE_PARAMS_v1`; the fields of version 2 follow it.
#[repr(C)]
pub(crate) struct KernelNodeParams {
    pub(crate) func: usize,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) params: usize,
    pub(crate) extra: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: usize,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: c_uint,
}

/// Which stream a null handle means: the context's legacy one, or the calling thread's own (`_ptsz`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NullStream {
    Legacy,
    PerThread,
}

/// Turns what an entry point did into its `CUresult`.
pub(crate) fn answer(did: impl FnOnce() -> Result<(), Code>) -> CuResult {
    match did() {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for the write by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a C string from the caller.
///
/// # Safety
/// `text` is null or a NUL-terminated string.
pub(crate) unsafe fn text<'caller>(text: *const c_char) -> Result<&'caller std::ffi::CStr, Code> {
    if text.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a NUL-terminated string by the caller's promise.
    Ok(unsafe { std::ffi::CStr::from_ptr(text) })
}
