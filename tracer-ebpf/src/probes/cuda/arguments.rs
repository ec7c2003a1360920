//! What a driver call is about, from its arguments.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use tracer_ebpf::wire::CudaState;
use tracer_ebpf::wire::cuda::{call_flags, layout, shape};

use super::{argument, fetch, shape_of};

/// `CU_STREAM_PER_THREAD`.
const OWN_STREAM: u64 = 2;

/// `trace::CopyDirection` by position, one more.
const TO_DEVICE: u32 = 1;
const TO_HOST: u32 = 2;
const WITHIN: u32 = 3;
const UNIFIED: u32 = 4;

/// Words of the two structures that describe a copy.
struct Places {
    bytes: u32,
    from_kind: usize,
    from: usize,
    to_kind: usize,
    to: usize,
    width: usize,
}

const COPY_2D: Places = Places { bytes: 128, from_kind: 2, from: 3, to_kind: 9, to: 10, width: 14 };
const COPY_3D: Places = Places { bytes: 200, from_kind: 4, from: 5, to_kind: 15, to: 16, width: 22 };

/// `CUmemorytype`.
const HOST: u64 = 1;
const ANY: u64 = 4;

/// # Safety
/// `s` is a live element of the running thread.
#[inline(always)]
pub unsafe fn read(regs: *const pt_regs, s: *mut CudaState, row: u64) {
    // SAFETY: by contract.
    unsafe {
        let arguments = (&raw mut (*s).arguments).cast::<u64>();
        fetch(regs, arguments, row);
        let what = &mut (*s).what;
        what.layout = row;
        what.object = argument(arguments, row, layout::OBJECT);
        what.address = argument(arguments, row, layout::ADDRESS);
        what.address_too = argument(arguments, row, layout::ADDRESS_TOO);
        what.direction = (row >> layout::DIRECTION & 7) as u32;
        what.grid = [0; 3];
        what.recorded_at = 0;
        what.flags = 0;
        what.stream = argument(arguments, row, layout::STREAM);
        let mut bytes = argument(arguments, row, layout::BYTES);
        if row >> layout::TIMES & 15 != 0 {
            bytes = bytes.wrapping_mul(argument(arguments, row, layout::TIMES));
        }
        what.bytes = bytes << (row >> layout::WIDTH & 3);
        match shape_of(row) {
            shape::GRID => {
                what.grid = [
                    arguments.add(2).read() as u32,
                    arguments.add(3).read() as u32,
                    arguments.add(4).read() as u32,
                ];
            }
            shape::CONFIG => config(s),
            shape::COPY_2D => copy(s, &COPY_2D),
            shape::COPY_3D => copy(s, &COPY_3D),
            _ => {}
        }
        let named = row >> layout::STREAM & 15 != 0 || shape_of(row) == shape::CONFIG;
        if named || row & layout::NULL_STREAM != 0 {
            what.flags = call_flags::STREAM;
            if what.stream == 0 && row & layout::PER_THREAD != 0 {
                what.stream = OWN_STREAM;
            }
        }
    }
}

/// A `CUlaunchConfig`: the grid is its first three words of four bytes, the stream lies at 32.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
unsafe fn config(s: *mut CudaState) {
    // SAFETY: by contract; the source is checked by the helper, the scratch is longer than what is read.
    unsafe {
        let scratch = (&raw mut (*s).scratch).cast::<u64>();
        if bpf_probe_read_user(scratch.cast(), 40, (*s).arguments[1] as *const _) != 0 {
            return;
        }
        let (xy, z) = (scratch.read(), scratch.add(1).read());
        (*s).what.grid = [xy as u32, (xy >> 32) as u32, z as u32];
        (*s).what.stream = scratch.add(4).read();
    }
}

/// # Safety
/// As for [`read`].
#[inline(always)]
unsafe fn copy(s: *mut CudaState, at: &Places) {
    // SAFETY: as for `config`.
    unsafe {
        let scratch = (&raw mut (*s).scratch).cast::<u64>();
        if bpf_probe_read_user(scratch.cast(), at.bytes, (*s).arguments[1] as *const _) != 0 {
            return;
        }
        let mut bytes = scratch.add(at.width).read().wrapping_mul(scratch.add(at.width + 1).read());
        if at.bytes == COPY_3D.bytes {
            bytes = bytes.wrapping_mul(scratch.add(at.width + 2).read());
        }
        (*s).what.bytes = bytes;
        // The upper half of the word is padding, which may hold anything.
        let from = scratch.add(at.from_kind).read() & 0xffff_ffff;
        let to = scratch.add(at.to_kind).read() & 0xffff_ffff;
        let mut direction = WITHIN;
        if from == ANY || to == ANY {
            direction = UNIFIED;
        } else if from == HOST {
            direction = TO_DEVICE;
            (*s).what.address = scratch.add(at.from).read();
        } else if to == HOST {
            direction = TO_HOST;
            (*s).what.address = scratch.add(at.to).read();
        }
        if (*s).what.direction == 0 {
            (*s).what.direction = direction;
        }
    }
}
