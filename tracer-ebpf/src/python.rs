//! The part of a user stack that native addresses do not show: where a thread's Python code is.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use tracer_ebpf::wire::{NO_STEP, pid_bits};

use crate::maps::PYTHON;
use crate::stack::mix;
use crate::task::pid_bits_of;

/// The running thread's current frame and instruction, mixed; 0 for a thread without Python, `None` where they
/// cannot be read.
#[inline(always)]
pub fn place(tid: u32) -> Option<u64> {
    if pid_bits_of(tid) & pid_bits::PYTHON == 0 {
        return Some(0);
    }
    // SAFETY: copied out at once.
    let Some(thread) = (unsafe { PYTHON.get(tid) }).copied() else { return Some(0) };
    let mut at = thread.state;
    if thread.cframe != NO_STEP {
        at = word(at, thread.cframe)?;
    }
    let frame = word(at, thread.frame)?;
    // Between the interpreter's start and its first function there is none.
    let instruction = if frame == 0 { 0 } else { word(frame, thread.instruction)? };
    Some(mix(frame, instruction) | 1)
}

#[inline(always)]
fn word(base: u64, offset: u32) -> Option<u64> {
    let mut value = 0u64;
    let from = base.wrapping_add(offset.into());
    // SAFETY: the destination has the size given; the source is checked by the helper.
    let ret = unsafe { bpf_probe_read_user((&raw mut value).cast(), 8, from as *const _) };
    (ret == 0).then_some(value)
}
