//! Stacks are named by a hash of their addresses and sent once. No stack map: it cannot say what it lost,
//! and its ids are reused.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_get_task_stack, bpf_probe_read_kernel};
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use tracer_ebpf::wire::{self, MAX_FRAMES, Stack, kind, loss};

use crate::emit;
use crate::maps::{RING, STACKS_SENT, WALK};
use crate::task::Task;

/// Records are assembled here and sent at their true length.
#[map]
static OUT: PerCpuArray<Stack> = PerCpuArray::with_max_entries(2, 0);

/// `WALK` and `OUT` rows.
pub const LOCKED: u32 = 0;
pub const PERF: u32 = 1;

const STACK_BYTES: u32 = (MAX_FRAMES * 8) as u32;
const HEADER: usize = size_of::<Stack>() - MAX_FRAMES * 8;

/// Hash of the first `n` words.
///
/// # Safety
/// `words` has `MAX_FRAMES` words.
#[inline(always)]
pub unsafe fn hash(words: *const u64, n: u32, seed: u64) -> u64 {
    let mut h = seed ^ 0x9e37_79b9_7f4a_7c15;
    for i in 0..MAX_FRAMES {
        if i as u32 >= n {
            break;
        }
        // SAFETY: below `MAX_FRAMES`.
        h = (h ^ unsafe { words.add(i).read_volatile() }).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^= h >> 32;
    }
    h | 1
}

/// Sends the stack unless it was sent before. Returns its id, 0 for an empty one.
///
/// # Safety
/// `words` has `MAX_FRAMES` words.
#[inline(always)]
unsafe fn send(row: u32, words: *const u64, n: u32, user: u32, pid: u32) -> u64 {
    if n == 0 {
        return 0;
    }
    // The same addresses mean other functions in another process.
    let id = unsafe { hash(words, n, if user == wire::USER { u64::from(pid) << 1 } else { 0 }) };
    // SAFETY: the value is not looked at.
    if unsafe { STACKS_SENT.get(&id) }.is_some() {
        return id;
    }
    let Some(out) = OUT.get_ptr_mut(row) else { return 0 };
    // SAFETY: this processor's row, by the rule in `maps`; copies stay below `MAX_FRAMES`.
    unsafe {
        (*out).kind = kind::STACK;
        (*out).user = user;
        (*out).id = id;
        (*out).pid = if user == wire::USER { pid } else { 0 };
        (*out).frames = n;
        for i in 0..MAX_FRAMES {
            if i as u32 >= n {
                break;
            }
            (*out).addresses[i] = words.add(i).read_volatile();
        }
        let bytes = HEADER as u64 + u64::from(n & (MAX_FRAMES as u32 * 2 - 1)) * 8;
        if bytes > size_of::<Stack>() as u64 {
            return 0;
        }
        let ring = (&raw const RING).cast_mut().cast();
        if aya_ebpf::helpers::generated::bpf_ringbuf_output(ring, out.cast(), bytes, emit::wake(&RING)) != 0 {
            emit::lost(loss::STACK, loss::RING_FULL, 0);
            return id;
        }
    }
    if STACKS_SENT.insert(&id, &1, 0).is_err() {
        // Sent again next time: costs bytes, loses nothing.
        return id;
    }
    id
}

#[inline(always)]
fn frames(bytes: i64) -> u32 {
    if bytes <= 0 || bytes > i64::from(STACK_BYTES) { 0 } else { (bytes as u32) / 8 }
}

/// Kernel stack of a task that does not run.
#[inline(never)]
pub fn of_sleeper(task: Task) -> u64 {
    let Some(words) = WALK.get_ptr_mut(LOCKED) else { return 0 };
    // SAFETY: the buffer has the size given.
    let bytes = unsafe { bpf_get_task_stack(task.0.cast_mut().cast(), words.cast(), STACK_BYTES, 0) };
    // SAFETY: `WALK` rows have `MAX_FRAMES` words.
    unsafe { send(LOCKED, words.cast(), frames(bytes), wire::KERNEL, 0) }
}

/// Stack of the running task, kernel or user side.
#[inline(always)]
pub fn of_current(ctx: &impl EbpfContext, row: u32, user: u32, pid: u32) -> u64 {
    let Some(words) = WALK.get_ptr_mut(row) else { return 0 };
    let flags = if user == wire::USER { u64::from(BPF_F_USER_STACK) } else { 0 };
    // SAFETY: the buffer has the size given.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), words.cast(), STACK_BYTES, flags) };
    // SAFETY: `WALK` rows have `MAX_FRAMES` words.
    unsafe { send(row, words.cast(), frames(bytes), user, pid) }
}

/// Walks the running task's user stack into `to`; returns the number of frames.
///
/// # Safety
/// `to` has `MAX_FRAMES` words.
#[inline(always)]
pub unsafe fn walk_user(ctx: &impl EbpfContext, to: *mut u64) -> u32 {
    // SAFETY: by contract.
    frames(unsafe { bpf_get_stack(ctx.as_ptr(), to.cast(), STACK_BYTES, u64::from(BPF_F_USER_STACK)) })
}

/// Sends a user stack kept in a thread's slot.
///
/// # Safety
/// `words` has `MAX_FRAMES` words.
#[inline(never)]
pub unsafe fn send_kept(words: *const u64, n: u32, pid: u32) -> u64 {
    // SAFETY: by contract.
    unsafe { send(LOCKED, words, n, wire::USER, pid) }
}

/// Sends a stack straight into a reserved record, for programs that may be preempted and so cannot use a
/// processor's row. A record has its full size then.
///
/// # Safety
/// `words` has `MAX_FRAMES` words.
#[inline(never)]
pub unsafe fn send_direct(words: *const u64, n: u32, pid: u32) -> u64 {
    if n == 0 {
        return 0;
    }
    // SAFETY: by contract.
    let id = unsafe { hash(words, n, u64::from(pid) << 1) };
    // SAFETY: the value is not looked at.
    if unsafe { STACKS_SENT.get(&id) }.is_some() {
        return id;
    }
    let sent = emit::record::<Stack>(loss::STACK, 0, |out| {
        // SAFETY: a reserved record, every byte of it written here.
        unsafe {
            (*out).kind = kind::STACK;
            (*out).user = wire::USER;
            (*out).id = id;
            (*out).pid = pid;
            (*out).frames = n;
            bpf_probe_read_kernel((&raw mut (*out).addresses).cast(), STACK_BYTES, words.cast());
        }
    });
    if sent && STACKS_SENT.insert(&id, &1, 0).is_err() {
        // Sent again next time: costs bytes, loses nothing.
        return id;
    }
    id
}
