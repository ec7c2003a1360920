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
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);
}

pub(crate) const TEXTS: &[(nvmlReturn_t, &std::ffi::CStr)] = &[
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (4, c"Insufficient Permissions"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (9, c"Driver Not Loaded"),
    (10, c"Timeout"),
    (15, c"GPU is lost"),
    (25, c"Argument version mismatch"),
];

pub(crate) fn answer(did: impl FnOnce() -> Result<(), Code>) -> nvmlReturn_t {
    match did() {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

const FIRST_HANDLE: usize = 0x4e00;
/// Handles of the MIG instances of one device lie so far from those of the next.
const MIG_STEP: usize = 0x10;
const FIRST_MIG_HANDLE: usize = FIRST_HANDLE + 0x100;

/// Handles are numbers in disguise: never followed, so a wrong one is an error.
pub(crate) fn handle(index: u32) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(FIRST_HANDLE + index as usize)
}

pub(crate) fn mig_handle(index: u32, instance: u32) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(FIRST_MIG_HANDLE + index as usize * MIG_STEP + instance as usize)
}

/// The device a handle names and the MIG instance on it, if it names one; and whether it still answers.
pub(crate) fn target(library: &Library, handle: nvmlDevice_t) -> Result<(u32, Option<u32>), Code> {
    let (index, instance) = match handle.addr().checked_sub(FIRST_MIG_HANDLE) {
        Some(place) => (place / MIG_STEP, Some((place % MIG_STEP) as u32)),
        None => (handle.addr().checked_sub(FIRST_HANDLE).ok_or(Code::INVALID_ARGUMENT)?, None),
    };
    let index = u32::try_from(index).ok().filter(|&i| i < library.timeline.devices());
    let index = index.ok_or(Code::INVALID_ARGUMENT)?;
    if instance.is_some_and(|i| i >= library.faults.mig_instances) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let lost = library.faults.lost || library.timeline.state(index).lost;
    if lost { Err(Code::GPU_IS_LOST) } else { Ok((index, instance)) }
}

/// The device a handle names. What asks this way is not to be had of a MIG instance.
pub(crate) fn device(library: &Library, handle: nvmlDevice_t) -> Result<u32, Code> {
    match target(library, handle)? {
        (index, None) => Ok(index),
        (_, Some(_)) => Err(Code::NOT_SUPPORTED),
    }
}

/// The same for what a simple device does not have.
pub(crate) fn full_device(library: &Library, handle: nvmlDevice_t) -> Result<u32, Code> {
    let index = device(library, handle)?;
    if library.faults.bare { Err(Code::NOT_SUPPORTED) } else { Ok(index) }
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
