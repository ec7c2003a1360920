//! Runs of submits, and what was submitted in them.
//!
//! The functions without a mangled name are global ones for the verifier, which walks each once a program.

use aya_ebpf::helpers::generated::bpf_ringbuf_output;
use aya_ebpf::programs::ProbeContext;
use tracer_ebpf::wire::cuda::{GROUPS, Group, REST, Run, RunState, What, family};
use tracer_ebpf::wire::{CudaState, SILENCE_NS, Submits, kind, loss};

use super::thread::{kept_stack, run, run_key};
use crate::emit;
use crate::maps::{RING, RUNS};

/// A run without a silence goes out in pieces no longer than this, or nobody would know where in it what lay.
const LONGEST_NS: u64 = 50_000_000;
/// A kind that finds all rows taken ends a run that is at least this old; in a younger one it goes into the rest,
/// so that many kinds in quick succession make no more than a thousand records a second.
const FULL_NS: u64 = 1_000_000;

const HEADER: u64 = (size_of::<Submits>() - (GROUPS + REST) * size_of::<Group>()) as u64;
const K: u64 = 0xff51_afd7_ed55_8ccd;

#[inline(always)]
fn mix(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(K);
    h ^ (h >> 29)
}

/// Counts the call in `s.what`.
///
/// # Safety
/// `s` is a live element of the running thread.
#[inline(always)]
pub unsafe fn count(ctx: &ProbeContext, s: *mut CudaState, now: u64) {
    // SAFETY: by contract.
    unsafe {
        let Some(r) = run(s) else {
            (*s).run_begun = 0;
            return;
        };
        let family = (*s).what.family;
        let silence = family != family::COPY
            && (*r).out.run.first != 0
            && now - (*r).out.run.last.min(now) >= SILENCE_NS;
        let key = key(s);
        cuda_find(run_key((*s).tid, (*s).slot), key);
        let age = if (*r).begun == 0 { 0 } else { now - (*r).begun.min(now) };
        let full = (&raw const (*r).row).read_volatile() >= GROUPS as u32;
        if silence || age >= LONGEST_NS || (full && age >= FULL_NS) {
            flush(s);
            (&raw mut (*r).row).write_volatile(0);
        }
        if (*r).begun == 0 {
            (*r).begun = now;
        }
        (*s).run_begun = (*r).begun;
        if family != family::COPY {
            if (*r).out.run.first == 0 {
                (*r).out.run.first = now;
                (*r).out.run.user_stack = kept_stack(ctx, s);
            }
            (*r).out.run.last = now;
        }
        match family {
            family::COPY => (*r).out.run.copies += 1,
            family::GRAPH_LAUNCH => (*r).out.run.graph_launches += 1,
            family::MEMSET => (*r).out.run.memsets += 1,
            _ => (*r).out.run.launches += 1,
        }
        group(s, r, key, now);
    }
}

/// What calls of one row have in common.
///
/// # Safety
/// As for [`count`].
#[inline(always)]
unsafe fn key(s: *const CudaState) -> u64 {
    // SAFETY: by contract.
    let what = unsafe { &(*s).what };
    let grid = u64::from(what.grid[0]) | u64::from(what.grid[1]) << 32;
    mix(mix(mix(u64::from(kind(what)) | u64::from(what.grid[2]) << 32, grid), function(what)), what.stream)
        | 1
}

#[inline(always)]
fn kind(what: &What) -> u32 {
    what.family & 0xff | what.direction << 8
}

#[inline(always)]
fn function(what: &What) -> u64 {
    if what.family <= family::GRAPH_LAUNCH { what.object } else { 0 }
}

/// Leaves in the run's `row` the row of this key, a free one if it has none, or [`GROUPS`] if there is none either.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cuda_find(run: u32, key: u64) -> u32 {
    let Some(r) = RUNS.get_ptr_mut(run) else { return 0 };
    // SAFETY: a live element of the running thread; the index is held below the length.
    unsafe {
        let keys = (&raw const (*r).keys).cast::<u64>();
        // The index goes through memory, lest the verifier follow each of its values to the end.
        let found = &raw mut (*r).row;
        found.write_volatile(GROUPS as u32);
        for i in 0..GROUPS {
            let there = keys.add(i).read_volatile();
            if there == key || there == 0 {
                found.write_volatile(i as u32);
                break;
            }
        }
    }
    0
}

/// Counts the call in the row that was found.
///
/// # Safety
/// As for [`count`]; `r` is its run.
#[inline(always)]
unsafe fn group(s: *const CudaState, r: *mut RunState, key: u64, now: u64) {
    // SAFETY: by contract; indices are held below the lengths.
    unsafe {
        let what = &(*s).what;
        let keys = (&raw mut (*r).keys).cast::<u64>();
        let found = &raw mut (*r).row;
        if found.read_volatile() as usize >= GROUPS {
            found.write_volatile(GROUPS as u32 + (what.family & (REST as u32 - 1)));
            (*r).out.groups = (GROUPS + REST) as u32;
        }
        // Read anew: of an index known to be a rest's, the verifier of 5.10 follows the other branch below too,
        // and no pointer is left to it there.
        let at = found.read_volatile() as usize;
        if at >= GROUPS + REST {
            return;
        }
        let row = (&raw mut (*r).out.rows).cast::<Group>().add(at);
        if (*row).count == 0 {
            (*row).what = kind(what);
            (*row).first = now;
            if at < GROUPS {
                keys.add(at & (GROUPS - 1)).write(key);
                (*row).stream = what.stream;
                (*row).function = function(what);
                (*row).grid = what.grid;
                (*r).out.groups = at as u32 + 1;
            } else {
                (*row).what = what.family & 0xff;
            }
        }
        (*row).count += 1;
        (*row).last = now;
        (*row).bytes += what.bytes;
    }
}

/// A call that was counted returned after `ns`.
///
/// # Safety
/// As for [`count`].
#[inline(always)]
pub unsafe fn timed(s: *mut CudaState, ns: u64) {
    // SAFETY: by contract; the index is held below the length.
    unsafe {
        if (*s).run_begun == 0 {
            return;
        }
        let Some(r) = run(s) else { return };
        let at = (&raw const (*r).row).read_volatile() as usize;
        if (*r).begun != (*s).run_begun || at >= GROUPS + REST {
            return;
        }
        let row = (&raw mut (*r).out.rows).cast::<Group>().add(at);
        (*row).timed += 1;
        (*row).call_ns += ns;
    }
}

/// Sends the run of the thread in its current context, if there is one, and begins anew.
///
/// # Safety
/// `s` is a live element of the running thread.
#[inline(always)]
pub unsafe fn flush(s: *const CudaState) {
    // SAFETY: by contract.
    cuda_flush(unsafe { run_key((*s).tid, (*s).slot) });
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn cuda_flush(run: u32) -> u32 {
    let Some(r) = RUNS.get_ptr_mut(run) else { return 0 };
    // SAFETY: a live element of the running thread.
    unsafe {
        if (*r).begun == 0 {
            return 0;
        }
        (*r).out.kind = kind::SUBMITS;
        let groups = u64::from((&raw const (*r).out.groups).read_volatile()) & 63;
        let bytes = HEADER + groups * size_of::<Group>() as u64;
        if bytes > size_of::<Submits>() as u64 {
            return 0;
        }
        let ring = (&raw const RING).cast_mut().cast();
        if bpf_ringbuf_output(ring, (&raw mut (*r).out).cast(), bytes, emit::wake(&RING)) != 0 {
            emit::lost(loss::CUDA, loss::RING_FULL, 0);
        }
        (*r).begun = 0;
        (*r).out.groups = 0;
        (*r).out.run = Run::default();
        let keys = (&raw mut (*r).keys).cast::<u64>();
        let rows = (&raw mut (*r).out.rows).cast::<Group>();
        for i in 0..GROUPS + REST {
            if i < GROUPS {
                keys.add(i).write_volatile(0);
            }
            let row = rows.add(i);
            if (&raw const (*row).count).read_volatile() != 0 {
                row.write(Group::default());
            }
        }
        0
    }
}
