//! Block layer: latency, size and time with a request in flight, added up per disk.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::wire::{BUCKETS, BlockStats, MISSING, loss};

use crate::globals::offset;
use crate::maps::{DISKS, IN_FLIGHT, epoch};
use crate::task::load;
use crate::{atomic, emit, histogram};

#[btf_tracepoint(function = "block_rq_issue")]
pub fn block_issue(ctx: BtfTracePointContext) -> i32 {
    issue(ctx.arg(0))
}

/// `(queue, request)`: before 5.11, and before the fix was carried back to 5.10.
#[btf_tracepoint(function = "block_rq_issue")]
pub fn block_issue_q(ctx: BtfTracePointContext) -> i32 {
    issue(ctx.arg(1))
}

#[btf_tracepoint(function = "block_rq_complete")]
pub fn block_complete(ctx: BtfTracePointContext) -> i32 {
    complete(ctx.arg(0), ctx.arg(2))
}

/// `dev_t` of the whole disk, 0 if it has none.
#[inline(always)]
fn disk(request: *const u8) -> u32 {
    let disk: *const u8 = if offset!(queue_disk) == MISSING {
        load(request, offset!(request_disk))
    } else {
        let queue: *const u8 = load(request, offset!(request_queue));
        load(queue, offset!(queue_disk))
    };
    if disk.is_null() {
        return 0;
    }
    let (major, minor): (u32, u32) = (load(disk, offset!(disk_major)), load(disk, offset!(disk_minor)));
    major << 20 | minor
}

#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value they would be copied on a stack of 512 bytes"
)]
#[inline(always)]
fn stats(dev: u32) -> Option<*mut BlockStats> {
    if let Some(s) = DISKS.get_ptr_mut(dev) {
        return Some(s);
    }
    let blank = BlockStats { histogram: [0; BUCKETS], ..BlockStats::default() };
    if DISKS.insert(dev, &blank, BPF_NOEXIST.into()).is_err() && DISKS.get_ptr(dev).is_none() {
        emit::lost(loss::BLOCK, loss::MAP_FULL, 0);
    }
    DISKS.get_ptr_mut(dev)
}

/// Adds the time since the last change if a request was in flight. Two processors at once can miscount the
/// nanoseconds between them, never more.
#[inline(always)]
unsafe fn integrate(s: *mut BlockStats, now: u64) {
    // SAFETY: by contract of the callers.
    unsafe {
        let since = (*s).changed;
        if (*s).in_flight as i64 > 0 && now > since && since != 0 {
            atomic::add(&raw mut (*s).busy_ns, now - since);
        }
        (*s).changed = now;
    }
}

#[inline(always)]
fn issue(request: *const u8) -> i32 {
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    let dev = disk(request);
    let Some(s) = stats(dev) else { return 0 };
    let key = request as u64;
    let again = IN_FLIGHT.get_ptr(key).is_some();
    if IN_FLIGHT.insert(key, now, BPF_ANY.into()).is_err() {
        emit::lost(loss::BLOCK, loss::MAP_FULL, 0);
        return 0;
    }
    if again {
        // Requeued: it was in flight all along.
        return 0;
    }
    // SAFETY: a live element, never removed.
    unsafe {
        integrate(s, now);
        atomic::add(&raw mut (*s).in_flight, 1);
        let (e, depth) = (epoch(), (*s).in_flight as u32);
        if (*s).max_epoch != e {
            (*s).max_epoch = e;
            (*s).max_in_flight = depth;
        } else if depth > (*s).max_in_flight {
            (*s).max_in_flight = depth;
        }
    }
    0
}

#[inline(always)]
fn complete(request: *const u8, bytes: u32) -> i32 {
    const WRITE: u32 = 1;
    let key = request as u64;
    // SAFETY: copied out at once.
    let Some(issued) = (unsafe { IN_FLIGHT.get(key) }).copied() else { return 0 };
    // A part of the request: the rest completes later.
    let total: u32 = load(request, offset!(request_len));
    let Some(s) = stats(disk(request)) else { return 0 };
    let write = load::<u32>(request, offset!(request_flags)) & WRITE != 0;
    // SAFETY: a live element, never removed; a helper without arguments.
    unsafe {
        atomic::add(if write { &raw mut (*s).write_bytes } else { &raw mut (*s).read_bytes }, bytes.into());
        if bytes < total || IN_FLIGHT.remove(key).is_err() {
            return 0;
        }
        let now = bpf_ktime_get_ns();
        integrate(s, now);
        atomic::add(&raw mut (*s).in_flight, u64::MAX);
        atomic::add(if write { &raw mut (*s).writes } else { &raw mut (*s).reads }, 1);
        if now < issued {
            emit::lost(loss::BLOCK, loss::TIME_TRAVEL, 0);
            return 0;
        }
        let latency = now - issued;
        atomic::add(&raw mut (*s).latency_ns, latency);
        histogram::count(&raw mut (*s).histogram, latency);
    }
    0
}
