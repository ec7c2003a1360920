//! Devices and the driver's version.

use gpu_sim_timeline::identity;
use libc::{c_char, c_int, c_uchar};

use crate::abi::{Code, CuResult, TEXTS, answer, give};
use crate::driver::Driver;

/// NVML index of a CUDA ordinal.
pub(crate) fn index(ordinal: c_int) -> Result<u32, Code> {
    let ordinals = &Driver::get()?.ordinals;
    let ordinal = usize::try_from(ordinal).map_err(|_negative| Code::INVALID_DEVICE)?;
    ordinals.get(ordinal).copied().ok_or(Code::INVALID_DEVICE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CuResult {
    // SAFETY: the caller's pointer, as the API demands it.
    answer(|| unsafe { give(version, identity::CUDA_VERSION) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CuResult {
    // SAFETY: the caller's pointer, as the API demands it.
    answer(|| unsafe { give(count, Driver::get()?.ordinals.len() as c_int) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> CuResult {
    answer(|| {
        index(ordinal)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> CuResult {
    answer(|| {
        let text = identity::name(index(device)?);
        let length = usize::try_from(length).map_err(|_negative| Code::INVALID_VALUE)?;
        if name.is_null() || length == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kept = text.len().min(length - 1);
        // SAFETY: the caller gives `length` bytes at `name`, and `kept + 1` is no more.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, kept);
            name.add(kept).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [c_uchar; 16], device: c_int) -> CuResult {
    answer(|| {
        let text = identity::uuid(index(device)?);
        let mut bytes = [0; 16];
        let hex: Vec<u8> = text.bytes().skip("GPU-".len()).filter(u8::is_ascii_hexdigit).collect();
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks(2)) {
            *byte = pair.iter().fold(0, |value, &digit| {
                value * 16 + (digit as char).to_digit(16).map_or(0, |d| d as c_uchar)
            });
        }
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(uuid, bytes) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> CuResult {
    answer(|| {
        let index = index(device)?;
        let found = match attribute {
            1 => 1024,                        // MAX_THREADS_PER_BLOCK
            10 => 32,                         // WARP_SIZE
            16 => 132,                        // MULTIPROCESSOR_COUNT
            33 => 0x10 + index.cast_signed(), // PCI_BUS_ID
            41 | 19 => 1,                     // UNIFIED_ADDRESSING, CAN_MAP_HOST_MEMORY
            75 => 9,                          // COMPUTE_CAPABILITY_MAJOR
            _ => 0,
        };
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(value, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> CuResult {
    answer(|| {
        index(device)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(bytes, identity::MEMORY_BYTES as usize) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: CuResult, text: *mut *const c_char) -> CuResult {
    answer(|| {
        let known = TEXTS.iter().find(|&&(code, ..)| code == error).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(text, known.2.as_ptr()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: CuResult, text: *mut *const c_char) -> CuResult {
    answer(|| {
        let known = TEXTS.iter().find(|&&(code, ..)| code == error).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(text, known.1.as_ptr()) }
    })
}
