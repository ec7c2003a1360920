//! Calls of a collective library (NCCL): which operation of which communicator, and when it was launched.
//! The driver calls they make inside are seen as well, as their own.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use tracer_ebpf::wire::collective::{HELD, ID_WORDS};
use tracer_ebpf::wire::cuda::{Handle, layout, shape};
use tracer_ebpf::wire::{Collective, CollectiveState, Communicator, kind, loss};

use super::{argument, fetch, shape_of};
use crate::maps::{BLANK_COLLECTIVE, COLLECTIVES, COMMUNICATORS};
use crate::task::Current;
use crate::{emit, stack};

const ID_BYTES: u32 = (ID_WORDS * 8) as u32;
const K: u64 = 0xff51_afd7_ed55_8ccd;
/// Communicators of one `ncclCommInitAll` at most: devices of a host.
const DEVICES: u32 = 16;

#[inline(always)]
fn state(tid: u32, pid: u32) -> Option<*mut CollectiveState> {
    let start = Current::get().start();
    if let Some(s) = COLLECTIVES.get_ptr_mut(tid) {
        // SAFETY: a live element of the running thread.
        if unsafe { (*s).start_boottime } == start {
            return Some(s);
        }
    }
    if COLLECTIVES.insert(tid, BLANK_COLLECTIVE.get(0)?, BPF_ANY.into()).is_err() {
        emit::lost(loss::CUDA, loss::MAP_FULL, 0);
        return None;
    }
    let s = COLLECTIVES.get_ptr_mut(tid)?;
    // SAFETY: a live element of the running thread.
    unsafe {
        (*s).start_boottime = start;
        (*s).tid = tid;
        (*s).pid = pid;
    }
    Some(s)
}

#[inline(never)]
pub fn entered(ctx: &ProbeContext, tid: u32, pid: u32, row: u64, id: u32) -> u32 {
    let Some(s) = state(tid, pid) else { return 0 };
    // SAFETY: a live element of the running thread, the context's own registers.
    unsafe {
        let height = (*ctx.regs).rsp;
        // Called by the library itself, such as the group of one operation.
        if (*s).sp != 0 && height < (*s).sp {
            return 0;
        }
        (*s).entry = bpf_ktime_get_ns();
        (*s).sp = height;
        (*s).shape = shape_of(row);
        let arguments = (&raw mut (*s).arguments).cast::<u64>();
        fetch(ctx.regs, arguments, row);
        let object = argument(arguments, row, layout::OBJECT);
        match (*s).shape {
            shape::COLLECTIVE => {
                let stream = argument(arguments, row, layout::STREAM);
                let user_stack = stack::preemptible(ctx, tid, pid);
                operation(s, id, object, stream, user_stack);
            }
            shape::BIRTH | shape::BIRTH_OF_ALL => {
                (*s).address = argument(arguments, row, layout::ADDRESS);
                (*s).born = Communicator {
                    group: 0,
                    rank: argument(arguments, row, layout::TIMES) as u32,
                    ranks: argument(arguments, row, layout::BYTES) as u32,
                    sequence: 0,
                };
                // By value it lies above the return address.
                let from = if object != 0 { object } else { height + 8 };
                (*s).born.group = if (*s).shape == shape::BIRTH { unique_id(s, from) } else { 0 };
            }
            shape::DEATH => {
                COMMUNICATORS.remove(Handle { handle: object, pid: pid.into() }).ok();
            }
            _ => {}
        }
    }
    0
}

/// Hash of the unique id at `from`, the same in all ranks; 0 where it cannot be read.
#[inline(always)]
unsafe fn unique_id(s: *mut CollectiveState, from: u64) -> u64 {
    // SAFETY: by contract of the callers; the source is checked by the helper.
    unsafe {
        let words = (&raw mut (*s).id_words).cast::<u64>();
        if bpf_probe_read_user(words.cast(), ID_BYTES, from as *const _) != 0 {
            return 0;
        }
        let mut h = K;
        for i in 0..ID_WORDS {
            h = (h ^ words.add(i).read_volatile()).wrapping_mul(K);
            h ^= h >> 32;
        }
        h | 1
    }
}

#[inline(always)]
unsafe fn operation(s: *mut CollectiveState, id: u32, communicator: u64, stream: u64, user_stack: u64) {
    // SAFETY: by contract of the callers.
    unsafe {
        let handle = Handle { handle: communicator, pid: (*s).pid.into() };
        if COMMUNICATORS.get_ptr(handle).is_none() {
            let unknown = Communicator { group: 0, rank: 0, ranks: 0, sequence: 0 };
            COMMUNICATORS.insert(handle, unknown, 0).ok();
        }
        let mut of = Communicator { group: 0, rank: 0, ranks: 0, sequence: 0 };
        if let Some(known) = COMMUNICATORS.get_ptr_mut(handle) {
            of = *known;
            // A communicator's operations are issued one after another, as the library demands it.
            (*known).sequence += 1;
        }
        (*s).operation = Collective {
            kind: kind::COLLECTIVE,
            id,
            tid: (*s).tid,
            pid: (*s).pid,
            start_boottime: (*s).start_boottime,
            entry: (*s).entry,
            exit: 0,
            communicator,
            sequence: of.sequence,
            group: of.group,
            rank: of.rank,
            ranks: of.ranks,
            stream,
            user_stack,
        };
    }
}

#[inline(never)]
pub fn returned(ctx: &RetProbeContext, tid: u32, pid: u32) -> u32 {
    let Some(s) = state(tid, pid) else { return 0 };
    // SAFETY: a live element of the running thread, the context's own registers.
    unsafe {
        if (*s).sp == 0 || (*ctx.regs).rsp != (*s).sp + 8 {
            return 0;
        }
        (*s).sp = 0;
        let now = bpf_ktime_get_ns();
        match (*s).shape {
            shape::COLLECTIVE => done(s, now),
            shape::GROUP_START => (*s).depth += 1,
            shape::GROUP_END => ended(s, now),
            shape::BIRTH => born(s),
            shape::BIRTH_OF_ALL => all_born(s),
            _ => {}
        }
    }
    0
}

/// An operation returned: it was launched, or will be with its group.
#[inline(always)]
unsafe fn done(s: *mut CollectiveState, now: u64) {
    // SAFETY: by contract of the callers; the index is held below the length.
    unsafe {
        let held = (&raw const (*s).held).read_volatile() as usize;
        if (*s).depth > 0 && held < HELD {
            (*s).operations[held & (HELD - 1)] = (*s).operation;
            (*s).held = held as u32 + 1;
            return;
        }
        (*s).operation.exit = now;
        emit::record::<Collective>(loss::CUDA, 0, |out| *out = (*s).operation);
    }
}

/// The outermost group's end launches all its operations.
#[inline(always)]
unsafe fn ended(s: *mut CollectiveState, now: u64) {
    // SAFETY: by contract of the callers; the index is held below the length.
    unsafe {
        (*s).depth = (*s).depth.saturating_sub(1);
        if (*s).depth > 0 {
            return;
        }
        for i in 0..HELD {
            if i >= (&raw const (*s).held).read_volatile() as usize {
                break;
            }
            let operation = &raw mut (*s).operations[i];
            (*operation).entry = (*s).entry;
            (*operation).exit = now;
            emit::record::<Collective>(loss::CUDA, 0, |out| *out = *operation);
        }
        (*s).held = 0;
    }
}

#[inline(always)]
unsafe fn born(s: *mut CollectiveState) {
    // SAFETY: by contract of the callers; the source is checked by the helper.
    unsafe {
        let handle = &raw mut (*s).arguments[1];
        if bpf_probe_read_user(handle.cast(), 8, (*s).address as *const _) == 0 {
            COMMUNICATORS.insert(Handle { handle: handle.read(), pid: (*s).pid.into() }, (*s).born, 0).ok();
        }
    }
}

/// All communicators of one process: the group has no id that another could know, so the first handle is it.
#[inline(always)]
unsafe fn all_born(s: *mut CollectiveState) {
    // SAFETY: as above.
    unsafe {
        let handle = &raw mut (*s).arguments[1];
        for rank in 0..DEVICES {
            if rank >= (&raw const (*s).born.ranks).read_volatile() {
                break;
            }
            let from = (*s).address + u64::from(rank) * 8;
            if bpf_probe_read_user(handle.cast(), 8, from as *const _) != 0 {
                break;
            }
            if rank == 0 {
                (*s).born.group = (handle.read() ^ u64::from((*s).pid)).wrapping_mul(K) | 1;
            }
            (*s).born.rank = rank;
            COMMUNICATORS.insert(Handle { handle: handle.read(), pid: (*s).pid.into() }, (*s).born, 0).ok();
        }
    }
}
