//! NCCL's types and results, as far as they are used here (`nccl.h`).

use libc::c_int;

/// A `ncclResult_t` other than `ncclSuccess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

pub(crate) type NcclResult = c_int;

impl Code {
    pub(crate) const UNHANDLED_CUDA_ERROR: Self = Self(1);
    pub(crate) const SYSTEM_ERROR: Self = Self(2);
    pub(crate) const INVALID_ARGUMENT: Self = Self(4);
    pub(crate) const INVALID_USAGE: Self = Self(5);
}

pub(crate) const ID_BYTES: usize = 128;

/// `ncclUniqueId`: passed by value, so in memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; ID_BYTES]);

/// Turns what an entry point did into its `ncclResult_t`.
pub(crate) fn answer(did: impl FnOnce() -> Result<(), Code>) -> NcclResult {
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
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid for the write by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Bytes of a `ncclDataType_t`.
pub(crate) fn width(datatype: c_int) -> Result<usize, Code> {
    match datatype {
        0 | 1 | 10 | 11 => Ok(1),
        6 | 9 => Ok(2),
        2 | 3 | 7 => Ok(4),
        4 | 5 | 8 => Ok(8),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}
