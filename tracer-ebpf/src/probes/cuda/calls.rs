//! Calls that have a return: which are worth a record.

use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use tracer_ebpf::wire::cuda::{Handle, NOT_READY, QUERIES, Query, Recorded, call_flags, family, shape};
use tracer_ebpf::wire::{CudaCall, CudaState, SILENCE_NS, kind, loss};

use super::thread::kept_stack;
use super::{context, runs, shape_of};
use crate::emit;
use crate::maps::{EVENTS, threshold_ns};

/// Calls from inside another, until that one is taken to have been left without a return (its probe was taken
/// away meanwhile).
const NESTED: u32 = 16;
/// A query that goes on giving the same result is worth a record this often.
const SAME_NS: u64 = 10_000_000;

/// Called from inside another probed call: the driver's own doing, counted with the outer one.
///
/// # Safety
/// `s` is a live element of the running thread.
#[inline(always)]
pub unsafe fn nested(s: *mut CudaState, height: u64) -> bool {
    // SAFETY: by contract.
    unsafe {
        if (*s).sp == 0 || (*s).by_next != 0 || height >= (*s).sp || (*s).nested >= NESTED {
            return false;
        }
        (*s).nested += 1;
        true
    }
}

/// The next call begins. What was under way has ended, by its own account or nobody knows when.
///
/// # Safety
/// As for [`nested`].
#[inline(always)]
pub unsafe fn overtaken(s: *mut CudaState, now: u64) {
    // SAFETY: by contract.
    unsafe {
        if (*s).sp == 0 {
            return;
        }
        (*s).sp = 0;
        if (*s).by_next == 0 {
            return;
        }
        let synchronised = (*s).what.family == family::SYNCHRONIZE;
        // Of submits and queries the time until the next call says nothing.
        let tells = !matches!(
            (*s).what.family,
            family::LAUNCH | family::GRAPH_LAUNCH | family::MEMSET | family::EVENT_QUERY
        );
        if synchronised || (tells && now - (*s).entry.min(now) >= threshold_ns()) {
            send(s, 0, call_flags::BY_NEXT, 0, now);
        }
        if synchronised {
            runs::flush(s);
        }
    }
}

/// # Safety
/// As for [`nested`].
#[inline(always)]
pub unsafe fn entered(ctx: &ProbeContext, s: *mut CudaState, height: u64, now: u64, by_next: bool) {
    // SAFETY: by contract.
    unsafe {
        (*s).sp = height;
        (*s).entry = now;
        (*s).nested = 0;
        (*s).by_next = by_next.into();
        // Of what is rare, and mostly worth a record, taken here with the entry point innermost; of the
        // others only when it turns out that they are. A copy's is mostly that of its run.
        (*s).call_stack = match (*s).what.family {
            family::SYNCHRONIZE | family::ALLOCATE | family::FREE | family::HOST_ALLOCATE | family::LOAD => {
                kept_stack(ctx, s)
            }
            _ => 0,
        };
    }
}

/// The call under way returned.
///
/// # Safety
/// As for [`nested`].
#[inline(always)]
pub unsafe fn returned(ctx: &RetProbeContext, s: *mut CudaState, result: i32, now: u64) {
    // SAFETY: by contract.
    unsafe {
        (*s).sp = 0;
        let family = (*s).what.family;
        let ns = now - (*s).entry.min(now);
        let (mut wanted, mut repeats) = (ns >= threshold_ns(), 0);
        match family {
            family::LAUNCH | family::GRAPH_LAUNCH | family::COPY | family::MEMSET => runs::timed(s, ns),
            family::EVENT_QUERY => {
                query(s, result, now);
                repeats = u64::from((&raw const (*s).found).read_volatile());
                // Even a long one says no more than its result.
                wanted = repeats != QUIET.into();
            }
            family::SYNCHRONIZE => wanted = true,
            family::SET_CONTEXT if result == 0 => context::made(s, now),
            _ => {}
        }
        // Which host memory is pinned shows only from all calls that pin it.
        if pins(s) {
            wanted = true;
            if shape_of((*s).what.layout) == shape::HOST_ALLOCATE {
                let from = (*s).what.address as *const _;
                let to = (&raw mut (*s).what.address).cast();
                aya_ebpf::helpers::generated::bpf_probe_read_user(to, 8, from);
            }
        }
        if wanted {
            if (*s).call_stack == 0 {
                (*s).call_stack = kept_stack(ctx, s);
            }
            send(s, result, call_flags::RESULT, repeats, now);
        }
        if family == family::SYNCHRONIZE {
            runs::flush(s);
        }
    }
}

#[inline(always)]
unsafe fn pins(s: *const CudaState) -> bool {
    // SAFETY: by contract of the callers.
    let shape = shape_of(unsafe { (*s).what.layout });
    matches!(shape, shape::HOST_ALLOCATE | shape::HOST_REGISTER | shape::HOST_FREE)
}

/// No record for this query.
const QUIET: u32 = u32::MAX;

/// Leaves in `s.found` how many queries like this one had no record, or [`QUIET`] if this one has none either.
///
/// # Safety
/// As for [`nested`].
#[inline(never)]
unsafe fn query(s: *mut CudaState, result: i32, now: u64) -> u32 {
    // SAFETY: by contract; indices are held below the length.
    unsafe {
        let what = &(*s).what;
        let key = if what.object != 0 { what.object } else { what.stream | 1 << 63 };
        let queries = (&raw mut (*s).queries).cast::<Query>();
        let found = &raw mut (*s).found;
        found.write_volatile(QUERIES as u32);
        for i in 0..QUERIES {
            if (&raw const (*queries.add(i)).key).read_volatile() == key {
                found.write_volatile(i as u32);
                break;
            }
        }
        let at = found.read_volatile() as usize;
        if at < QUERIES {
            let q = queries.add(at);
            if (*q).result == result && now - (*q).said.min(now) < SAME_NS {
                (*q).repeats += 1;
                found.write_volatile(QUIET);
                return 0;
            }
            let repeats = (*q).repeats.min(QUIET - 1);
            (*q).repeats = 0;
            (*q).result = result;
            (*q).said = now;
            (*s).queried = now;
            found.write_volatile(repeats);
            return 0;
        }
        let q = queries.add((*s).next_query as usize & (QUERIES - 1));
        (*s).next_query += 1;
        // Whoever asks of many events in turn learns little from each that is not ready.
        let quiet = result == NOT_READY && now - (*s).queried.min(now) < SILENCE_NS;
        q.write(Query { key, said: now, repeats: quiet.into(), result });
        if quiet {
            found.write_volatile(QUIET);
        } else {
            (*s).queried = now;
            found.write_volatile(0);
        }
        0
    }
}

/// An event is recorded in a stream.
///
/// # Safety
/// As for [`nested`].
#[inline(always)]
pub unsafe fn recorded(s: *const CudaState, now: u64) {
    // SAFETY: by contract.
    let (event, stream) = unsafe { (handle(s), (*s).what.stream) };
    if EVENTS.insert(event, Recorded { at: now, stream }, 0).is_err() {
        emit::lost(loss::CUDA, loss::MAP_FULL, 0);
    }
}

/// An event is asked about or waited for: when, and in which stream, it was last recorded.
///
/// # Safety
/// As for [`nested`].
#[inline(always)]
pub unsafe fn asks_of_event(s: *mut CudaState) {
    // SAFETY: by contract; a copy of the element, which others may change.
    unsafe {
        if let Some(recorded) = EVENTS.get(handle(s)) {
            (*s).what.recorded_at = recorded.at;
            (*s).what.stream = recorded.stream;
            (*s).what.flags |= call_flags::STREAM;
        }
    }
}

#[inline(always)]
unsafe fn handle(s: *const CudaState) -> Handle {
    // SAFETY: by contract of the callers.
    unsafe { Handle { handle: (*s).what.object, pid: (*s).pid.into() } }
}

/// # Safety
/// As for [`nested`].
#[inline(never)]
unsafe fn send(s: *mut CudaState, result: i32, flags: u32, repeats: u64, now: u64) -> u32 {
    // SAFETY: by contract; a reserved record, every byte of it written here.
    unsafe {
        (*s).what.flags |= flags;
        emit::record::<CudaCall>(loss::CUDA, now - (*s).entry.min(now), |out| {
            (*out).kind = kind::CUDA_CALL;
            (*out).result = result;
            (*out).tid = (*s).tid;
            (*out).pid = (*s).pid;
            (*out).start_boottime = (*s).start_boottime;
            (*out).entry = (*s).entry;
            (*out).exit = now;
            (*out).user_stack = (*s).call_stack;
            (*out).context = context::current(s);
            (*out).repeats = repeats;
            (*out).what = (*s).what;
        });
        0
    }
}
