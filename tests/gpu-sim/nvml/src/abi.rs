//! Results, handles and writing through the caller's pointers.

use libc::{c_char, c_uint};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use crate::library::Library;

/// An `nvmlReturn_t` other than `NVML_SUCCESS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) nvmlReturn_t);

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const UNKNOWN: Self = Self(999);
}

pub(crate) const TEXTS: &[(nvmlReturn_t, &std::ffi::CStr)] = &[
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (9, c"Driver Not Loaded"),
    (15, c"GPU is lost"),
];

pub(crate) fn answer(did: impl FnOnce() -> Result<(), Code>) -> nvmlReturn_t {
    match did() {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

const FIRST_HANDLE: usize = 0x4e00;

/// Handles are numbers in disguise: never followed, so a wrong one is an error.
pub(crate) fn handle(index: u32) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(FIRST_HANDLE + index as usize)
}

/// The device a handle names, and whether it still answers.
pub(crate) fn device(library: &Library, handle: nvmlDevice_t) -> Result<u32, Code> {
    let index = handle.addr().checked_sub(FIRST_HANDLE).and_then(|i| u32::try_from(i).ok());
    let index = index.filter(|&i| i < library.timeline.devices()).ok_or(Code::INVALID_ARGUMENT)?;
    if library.faults.lost { Err(Code::GPU_IS_LOST) } else { Ok(index) }
}

/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid for the write by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// `to` is null or valid for `length` bytes.
pub(crate) unsafe fn give_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: not null, and the text with its end fits the caller's `length` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}
