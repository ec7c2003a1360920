//! Direct reclaim, reclaim within a cgroup's limit, and compaction, where a target does them itself.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::wire::memory::reclaim::{CGROUP, COMPACTION, DIRECT};
use tracer_ebpf::wire::{InReclaim, Reclaim, ReclaimKey, ReclaimValue, kind, loss};

use super::fault::current_target;
use crate::emit;
use crate::maps::{IN_RECLAIM, RECLAIMED, epoch, threshold_ns};
use crate::task::Current;

#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_begin")]
pub fn reclaim_begin(_ctx: BtfTracePointContext) -> i32 {
    begin(DIRECT)
}

#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_end")]
pub fn reclaim_end(ctx: BtfTracePointContext) -> i32 {
    end(DIRECT, ctx.arg(0))
}

#[btf_tracepoint(function = "mm_vmscan_memcg_reclaim_begin")]
pub fn memcg_begin(_ctx: BtfTracePointContext) -> i32 {
    begin(CGROUP)
}

#[btf_tracepoint(function = "mm_vmscan_memcg_reclaim_end")]
pub fn memcg_end(ctx: BtfTracePointContext) -> i32 {
    end(CGROUP, ctx.arg(0))
}

#[btf_tracepoint(function = "mm_compaction_begin")]
pub fn compact_begin(_ctx: BtfTracePointContext) -> i32 {
    begin(COMPACTION)
}

#[btf_tracepoint(function = "mm_compaction_end")]
pub fn compact_end(_ctx: BtfTracePointContext) -> i32 {
    end(COMPACTION, 0)
}

/// Reclaim and compaction may lie within one another, so each has a row of its own.
#[inline(always)]
fn row(tid: u32, what: u32, epoch: u32) -> ReclaimKey {
    ReclaimKey { start_boottime: Current::get().start(), tid, what, epoch, pad: 0 }
}

#[inline(always)]
fn begin(what: u32) -> i32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    // SAFETY: a helper without arguments.
    let begun = InReclaim { since: unsafe { bpf_ktime_get_ns() }, pid, pad: 0 };
    if IN_RECLAIM.insert(row(tid, what, 0), begun, BPF_ANY.into()).is_err() {
        emit::lost(loss::FAULT, loss::MAP_FULL, 0);
    }
    0
}

#[inline(always)]
fn end(what: u32, pages: u64) -> i32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    let mut key = row(tid, what, 0);
    // SAFETY: copied out at once; only this thread writes its row.
    let Some(begun) = (unsafe { IN_RECLAIM.get(key) }).copied() else { return 0 };
    if IN_RECLAIM.remove(key).is_err() {
        return 0;
    }
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    let ns = now - begun.since.min(now);
    if ns >= threshold_ns() {
        emit::record::<Reclaim>(loss::FAULT, ns, |out| {
            // SAFETY: a reserved record, every byte of it written here.
            unsafe {
                (*out).kind = kind::RECLAIM;
                (*out).what = what;
                (*out).tid = tid;
                (*out).pid = pid;
                (*out).start_boottime = key.start_boottime;
                (*out).since = begun.since;
                (*out).until = now;
                (*out).pages = pages;
            }
        });
        return 0;
    }
    key.epoch = epoch();
    if let Some(v) = RECLAIMED.get_ptr_mut(key) {
        // SAFETY: a live element; only this thread writes its row.
        unsafe {
            (*v).count += 1;
            (*v).ns += ns;
            (*v).pages += pages;
        }
        return 0;
    }
    let first = ReclaimValue { count: 1, ns, pages, pid, pad: 0 };
    if RECLAIMED.insert(key, first, BPF_ANY.into()).is_err() {
        emit::lost(loss::FAULT, loss::MAP_FULL, ns);
    }
    0
}
