//! Which context is current in a thread, and on which device a context is.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use tracer_ebpf::wire::cuda::{CONTEXTS, Handle, PUSHED, shape};
use tracer_ebpf::wire::{CudaContext, CudaState, kind, loss};

use super::{runs, shape_of};
use crate::emit;
use crate::maps::DEVICES;

/// The thread's current context, 0 where it is not known.
///
/// # Safety
/// `s` is a live element of the running thread.
#[inline(always)]
pub unsafe fn current(s: *const CudaState) -> u64 {
    // SAFETY: by contract.
    unsafe { (*s).contexts[(*s).slot as usize & (CONTEXTS - 1)] }
}

/// A call that changes the current context, taken to succeed.
///
/// # Safety
/// As for [`current`].
#[inline(always)]
pub unsafe fn entered(s: *mut CudaState) {
    // SAFETY: by contract; indices are held below the lengths.
    unsafe {
        match shape_of((*s).what.layout) {
            shape::SET_CONTEXT => set(s, (*s).what.object),
            shape::PUSH_CONTEXT => push(s, (*s).what.object),
            shape::POP_CONTEXT => {
                let depth = (*s).depth;
                if depth == 0 {
                    set(s, 0);
                    return;
                }
                (*s).depth = depth - 1;
                // Beyond what is kept the context below is not known.
                let below = if depth > PUSHED as u32 { 0 } else { *pushed(s, depth - 1) };
                set(s, below);
            }
            _ => {}
        }
    }
}

/// The place of a context that was pushed upon. The index goes through memory, so that the compiler has to keep
/// the mask that the verifier wants to see.
#[inline(always)]
unsafe fn pushed(s: *mut CudaState, depth: u32) -> *mut u64 {
    // SAFETY: by contract of the callers; the index is held below the length.
    unsafe {
        let index = &raw mut (*s).found;
        index.write_volatile(depth);
        (&raw mut (*s).pushed).cast::<u64>().add(index.read_volatile() as usize & (PUSHED - 1))
    }
}

#[inline(always)]
unsafe fn push(s: *mut CudaState, context: u64) {
    // SAFETY: by contract of the callers.
    unsafe {
        let depth = (*s).depth;
        if depth < PUSHED as u32 {
            *pushed(s, depth) = current(s);
        }
        (*s).depth = depth + 1;
        set(s, context);
    }
}

/// Runs are kept by context, so that a thread that feeds two devices in turn has two.
#[inline(always)]
unsafe fn set(s: *mut CudaState, context: u64) {
    // SAFETY: by contract of the callers; indices are held below the lengths.
    unsafe {
        if current(s) != context {
            find(s, context);
            (*s).slot = (&raw const (*s).found).read_volatile();
        }
    }
}

/// Leaves in `s.found` the slot of a context.
#[inline(never)]
unsafe fn find(s: *mut CudaState, context: u64) -> u32 {
    // SAFETY: by contract of the callers; indices are held below the lengths.
    unsafe {
        let contexts = (&raw mut (*s).contexts).cast::<u64>();
        let found = &raw mut (*s).found;
        found.write_volatile(CONTEXTS as u32);
        for i in 0..CONTEXTS {
            if contexts.add(i).read_volatile() == context {
                found.write_volatile(i as u32);
                break;
            }
        }
        if found.read_volatile() < CONTEXTS as u32 {
            return 0;
        }
        // The slot given away longest ago; slot 0 stays the unknown context's.
        let next = ((*s).next_slot + 1) & (CONTEXTS as u32 - 1);
        let next = if next == 0 { 1 } else { next };
        (*s).next_slot = next;
        (*s).slot = next;
        found.write_volatile(next);
        // Read back, so that the compiler has to keep the mask that the verifier wants to see.
        let place = contexts.add(found.read_volatile() as usize & (CONTEXTS - 1));
        if *place != 0 {
            runs::flush(s);
        }
        place.write(context);
        0
    }
}

/// A context was made: its handle lies where the caller wanted it.
///
/// # Safety
/// As for [`current`].
#[inline(always)]
pub unsafe fn made(s: *mut CudaState, now: u64) {
    // SAFETY: by contract; the source is checked by the helper.
    unsafe {
        let shape = shape_of((*s).what.layout);
        if shape != shape::CREATE_CONTEXT && shape != shape::RETAIN_CONTEXT {
            return;
        }
        let context = &raw mut (*s).arguments[1];
        if bpf_probe_read_user(context.cast(), 8, (*s).what.address as *const _) != 0 {
            return;
        }
        let (context, ordinal, pid) = (context.read(), (*s).what.object as u32, (*s).pid);
        let handle = Handle { handle: context, pid: pid.into() };
        // A primary context is retained many times.
        if DEVICES.get(handle).copied() != Some(ordinal) {
            // When full the oldest goes, and is said again should it be retained again.
            DEVICES.insert(handle, ordinal, 0).ok();
            emit::record::<CudaContext>(loss::CUDA, 0, |out| {
                *out = CudaContext { kind: kind::CUDA_CONTEXT, ordinal, at: now, context, pid, pad: 0 };
            });
        }
        if shape == shape::CREATE_CONTEXT {
            push(s, context);
        }
    }
}
