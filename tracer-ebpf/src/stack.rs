//! Stacks are named by a hash of their addresses and sent once. No stack map: it cannot say what it lost,
//! and its ids are reused.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::helpers::generated::{
    bpf_get_stack, bpf_get_task_stack, bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use tracer_ebpf::wire::{self, MAX_FRAMES, Stack, kind, loss};

use crate::emit;
use crate::maps::{RING, STACKS_SENT};
use crate::task::Task;

/// Stacks are walked straight into the record they go out in, and sent at their true length. Row 0 for
/// programs under the run-queue locks (interrupts off), row 1 for the perf events, which may come on top of
/// the others but not of one another.
#[map]
static OUT: PerCpuArray<Stack> = PerCpuArray::with_max_entries(2, 0);

pub const LOCKED: u32 = 0;
pub const PERF: u32 = 1;

const STACK_BYTES: u32 = (MAX_FRAMES * 8) as u32;
const HEADER: u64 = (size_of::<Stack>() - MAX_FRAMES * 8) as u64;
const K: u64 = 0xff51_afd7_ed55_8ccd;

#[inline(always)]
pub fn mix(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(K);
    h ^ (h >> 32)
}

/// Hash of the record's addresses. The bound is read from memory each time round: in a register the verifier
/// would follow every length on its own.
///
/// # Safety
/// `out` is a row of `OUT`, or a record like it.
#[inline(always)]
unsafe fn hash(addresses: *const u64, frames: *const u32, seed: u64) -> u64 {
    let mut h = seed ^ 0x9e37_79b9_7f4a_7c15;
    for i in 0..MAX_FRAMES {
        // SAFETY: by contract, and below `MAX_FRAMES`.
        unsafe {
            if i as u32 >= frames.read_volatile() {
                break;
            }
            h = mix(h, addresses.add(i).read_volatile());
        }
    }
    h | 1
}

/// The same addresses mean other functions in another process.
#[inline(always)]
fn seed(user: u32, pid: u32) -> u64 {
    if user == wire::USER { u64::from(pid) << 1 } else { 0 }
}

/// Sends the record unless it was sent before. Returns its id, 0 for an empty one.
///
/// # Safety
/// `out` is a row of `OUT` whose `frames` and `addresses` are filled.
#[inline(never)]
unsafe fn send(out: *mut Stack, user: u32, pid: u32) -> u64 {
    // SAFETY: by contract.
    unsafe {
        if (*out).frames == 0 {
            return 0;
        }
        let id = hash((&raw const (*out).addresses).cast(), &raw const (*out).frames, seed(user, pid));
        // The value is not looked at.
        if STACKS_SENT.get(id).is_some() {
            return id;
        }
        (*out).kind = kind::STACK;
        (*out).user = user;
        (*out).id = id;
        (*out).pid = if user == wire::USER { pid } else { 0 };
        let bytes = HEADER + (u64::from((&raw const (*out).frames).read_volatile()) & 127) * 8;
        if bytes > size_of::<Stack>() as u64 {
            return 0;
        }
        let ring = (&raw const RING).cast_mut().cast();
        if bpf_ringbuf_output(ring, out.cast(), bytes, emit::wake(&RING)) != 0 {
            emit::lost(loss::STACK, loss::RING_FULL, 0);
            return id;
        }
        if STACKS_SENT.insert(id, 1, 0).is_err() {
            // Sent again next time: costs bytes, loses nothing.
            return id;
        }
        id
    }
}

#[inline(always)]
fn frames(bytes: i64) -> u32 {
    if bytes <= 0 || bytes > i64::from(STACK_BYTES) { 0 } else { (bytes as u32) / 8 }
}

/// Kernel stack of a task that does not run.
#[inline(always)]
pub fn of_sleeper(task: Task) -> u64 {
    let Some(out) = OUT.get_ptr_mut(LOCKED) else { return 0 };
    // SAFETY: this processor's row; the buffer has the size given.
    unsafe {
        let to = (&raw mut (*out).addresses).cast();
        (*out).frames = frames(bpf_get_task_stack(task.0.cast_mut().cast(), to, STACK_BYTES, 0));
        send(out, wire::KERNEL, 0)
    }
}

/// Stack of the running task, kernel or user side.
#[inline(always)]
pub fn of_current(ctx: &impl EbpfContext, row: u32, user: u32, pid: u32) -> u64 {
    let Some(out) = OUT.get_ptr_mut(row) else { return 0 };
    let flags = if user == wire::USER { u64::from(BPF_F_USER_STACK) } else { 0 };
    // SAFETY: this processor's row; the buffer has the size given.
    unsafe {
        (*out).frames =
            frames(bpf_get_stack(ctx.as_ptr(), (&raw mut (*out).addresses).cast(), STACK_BYTES, flags));
        send(out, user, pid)
    }
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

/// Hash of the 512 bytes above `sp`, `None` where they are not all readable.
#[inline(always)]
pub fn above(sp: u64) -> Option<u64> {
    let out = OUT.get_ptr_mut(LOCKED)?;
    // SAFETY: this processor's row, of the size given; the source is checked by the helper.
    unsafe {
        let words: *mut u64 = (&raw mut (*out).addresses).cast();
        if bpf_probe_read_user(words.cast(), STACK_BYTES, sp as *const _) != 0 {
            return None;
        }
        let mut h = K;
        for i in 0..MAX_FRAMES {
            h = mix(h, words.add(i).read_volatile());
        }
        Some(h)
    }
}

/// Sends a user stack kept in a thread's slot.
///
/// # Safety
/// `words` has `MAX_FRAMES` words; interrupts are off.
#[inline(always)]
pub unsafe fn send_kept(words: *const u64, n: u32, pid: u32) -> u64 {
    let Some(out) = OUT.get_ptr_mut(LOCKED) else { return 0 };
    // SAFETY: by contract; this processor's row.
    unsafe {
        bpf_probe_read_kernel((&raw mut (*out).addresses).cast(), STACK_BYTES, words.cast());
        (*out).frames = n;
        send(out, wire::USER, pid)
    }
}

/// Sends a stack straight into a reserved record, for programs that may be preempted and so cannot use a
/// processor's row. A record has its full size then.
///
/// # Safety
/// `words` has `MAX_FRAMES` words, `n` lies in a live map element.
#[inline(never)]
pub unsafe fn send_direct(words: *const u64, n: *const u32, pid: u32) -> u64 {
    // SAFETY: by contract.
    unsafe {
        if n.read_volatile() == 0 {
            return 0;
        }
        let id = hash(words, n, seed(wire::USER, pid));
        // The value is not looked at.
        if STACKS_SENT.get(id).is_some() {
            return id;
        }
        let sent = emit::record::<Stack>(loss::STACK, 0, |out| {
            (*out).kind = kind::STACK;
            (*out).user = wire::USER;
            (*out).id = id;
            (*out).pid = pid;
            (*out).frames = n.read_volatile();
            bpf_probe_read_kernel((&raw mut (*out).addresses).cast(), STACK_BYTES, words.cast());
        });
        if sent && STACKS_SENT.insert(id, 1, 0).is_err() {
            // Sent again next time: costs bytes, loses nothing.
            return id;
        }
        id
    }
}
