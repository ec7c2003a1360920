//! Reads of regular files: count, bytes and latency per process and file. The pair of programs runs at every
//! system call on the host, so it is attached only on demand.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::wire::{BUCKETS, ReadKey, ReadValue, Reading, loss};

use super::fault::current_target;
use crate::globals::offset;
use crate::maps::{READING, READS, epoch};
use crate::task::{Current, load};
use crate::{atomic, emit, file, histogram};

/// `read`, `pread64`, `readv`, `preadv`, `preadv2`: the descriptor comes first, bytes come back.
#[inline(always)]
fn reads(nr: i32) -> bool {
    matches!(nr, 0 | 17 | 19 | 295 | 327)
}

#[btf_tracepoint(function = "sys_enter")]
pub fn read_enter(ctx: BtfTracePointContext) -> i32 {
    if !reads(ctx.arg::<u64>(1) as i32) {
        return 0;
    }
    let Some((tid, _)) = current_target() else { return 0 };
    // SAFETY: a helper without arguments.
    let begun = Reading { since: unsafe { bpf_ktime_get_ns() } };
    if let Some(row) = READING.get_ptr_mut(tid) {
        // SAFETY: the running thread's own row.
        unsafe { *row = begun };
    } else if READING.insert(tid, begun, BPF_ANY.into()).is_err() {
        emit::lost(loss::FILE, loss::MAP_FULL, 0);
    }
    0
}

#[btf_tracepoint(function = "sys_exit")]
pub fn read_exit(ctx: BtfTracePointContext) -> i32 {
    let regs: *const u8 = ctx.arg(0);
    if !reads(load::<u64>(regs, offset!(regs_orig_ax)) as i32) {
        return 0;
    }
    let Some((tid, pid)) = current_target() else { return 0 };
    let Some(row) = READING.get_ptr_mut(tid) else { return 0 };
    // SAFETY: the running thread's own row; a helper without arguments.
    let (since, now) = unsafe { ((*row).since, bpf_ktime_get_ns()) };
    // SAFETY: as above.
    unsafe { (*row).since = 0 };
    if since == 0 {
        return 0;
    }
    let files: u64 = Current::get().load(offset!(task_files));
    let file = file::of_regular(files as *const u8, load::<u64>(regs, offset!(regs_di)) as u32);
    if file != 0 {
        let ret: i64 = ctx.arg(1);
        count(ReadKey { file, pid, epoch: epoch() }, ret.max(0) as u64, now - since.min(now));
    }
    0
}

#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value they would be copied on a stack of 512 bytes"
)]
#[inline(always)]
fn count(key: ReadKey, bytes: u64, ns: u64) {
    let value = match READS.get_ptr_mut(&key) {
        Some(value) => value,
        None => {
            let blank = ReadValue { histogram: [0; BUCKETS], ..ReadValue::default() };
            // Another thread of the process may have been first.
            let _first = READS.insert(&key, &blank, BPF_NOEXIST.into());
            let Some(value) = READS.get_ptr_mut(&key) else {
                emit::lost(loss::FILE, loss::MAP_FULL, 0);
                return;
            };
            value
        }
    };
    // SAFETY: a live element; other threads of the process write it too, hence the atomics.
    unsafe {
        atomic::add(&raw mut (*value).reads, 1);
        atomic::add(&raw mut (*value).bytes, bytes);
        atomic::add(&raw mut (*value).ns, ns);
        histogram::count(&raw mut (*value).histogram, ns);
    }
}
