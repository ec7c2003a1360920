//! Stacks are named by a hash of their addresses and sent once. No stack map: it cannot say what it lost,
//! and its ids are reused.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{
    bpf_get_stack, bpf_get_task_stack, bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output,
};
use tracer_ebpf::wire::python::mix;
use tracer_ebpf::wire::unwind::end;
use tracer_ebpf::wire::{self, MAX_FRAMES, Stack, ThreadState, Walk, kind, loss};

use crate::maps::{RING, STACKS_SENT};
use crate::task::{Current, Regs, Task};
use crate::{emit, python, unwind};

pub use crate::unwind::{LOCKED, PERF};

const STACK_BYTES: u32 = (MAX_FRAMES * 8) as u32;
const HEADER: u64 = (size_of::<Stack>() - MAX_FRAMES * 8) as u64;
/// Above the stack pointer, see `above`.
const ABOVE_WORDS: usize = 64;

/// Hash of the record's addresses. The bound is read from memory each time round: in a register the verifier
/// would follow every length on its own.
///
/// # Safety
/// They are those of a live record.
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

/// Whose addresses they are.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    pid: u32,
    image: u32,
    python: u64,
}

impl Owner {
    const KERNEL: Self = Self { user: wire::KERNEL, pid: 0, image: 0, python: 0 };

    /// The same addresses mean other functions in another process, in another program of the same one, and with other
    /// Python functions.
    #[inline(always)]
    fn seed(self) -> u64 {
        if self.user != wire::USER {
            return 0;
        }
        mix(self.python, u64::from(self.pid) | u64::from(self.image) << 32)
    }
}

/// Sends the record unless it was sent before. Returns its id, 0 for an empty one.
///
/// # Safety
/// `out` is a record whose `frames`, `end` and `addresses` are filled, and that nobody else writes now.
#[inline(never)]
unsafe fn send(out: *mut Stack, owner: Owner) -> u64 {
    // SAFETY: by contract.
    unsafe {
        if (*out).frames == 0 && owner.python == 0 {
            return 0;
        }
        let seed = mix(owner.seed(), u64::from((*out).end));
        let id = hash((&raw const (*out).addresses).cast(), &raw const (*out).frames, seed);
        // The value is not looked at.
        if STACKS_SENT.get(id).is_some() {
            return id;
        }
        (*out).kind = kind::STACK;
        (*out).user = owner.user;
        (*out).id = id;
        (*out).pid = owner.pid;
        (*out).image = owner.image;
        (*out).python = owner.python;
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
    let Some(out) = record(LOCKED) else { return 0 };
    // SAFETY: this processor's row; the buffer has the size given.
    unsafe {
        let to = (&raw mut (*out).addresses).cast();
        (*out).frames = frames(bpf_get_task_stack(task.0.cast_mut().cast(), to, STACK_BYTES, 0));
        (*out).end = end::UNKNOWN;
        send(out, Owner::KERNEL)
    }
}

/// Kernel stack of the running task.
#[inline(always)]
pub fn kernel(ctx: &impl EbpfContext, slot: u32) -> u64 {
    let Some(out) = record(slot) else { return 0 };
    // SAFETY: this processor's row; the buffer has the size given.
    unsafe {
        (*out).frames =
            frames(bpf_get_stack(ctx.as_ptr(), (&raw mut (*out).addresses).cast(), STACK_BYTES, 0));
        (*out).end = end::UNKNOWN;
        send(out, Owner::KERNEL)
    }
}

/// User stack of the running task, whose registers these are.
#[inline(always)]
pub fn user(ctx: &impl EbpfContext, slot: u32, regs: Regs, pid: u32) -> u64 {
    let python = python::of_current(bpf_get_current_pid_tgid() as u32, pid);
    let Some(w) = walk_user(ctx, slot, regs, pid) else { return 0 };
    let owner = Owner { user: wire::USER, pid, image: Current::get().image(), python };
    // SAFETY: this processor's row.
    unsafe { send(&raw mut (*w).out, owner) }
}

/// Walks the running task's user stack into the slot's record.
#[inline(always)]
pub fn walk_user(ctx: &impl EbpfContext, slot: u32, regs: Regs, pid: u32) -> Option<*mut Walk> {
    let w = unwind::walk(slot)?;
    // SAFETY: a live element that nobody else writes now; the buffer has the size given.
    unsafe {
        if !unwind::by_tables(w, slot, regs, pid) {
            let to = (&raw mut (*w).out.addresses).cast();
            (*w).out.frames = frames(bpf_get_stack(ctx.as_ptr(), to, STACK_BYTES, BPF_F_USER_STACK.into()));
            (*w).out.end = end::FRAME_POINTERS;
        }
    }
    Some(w)
}

#[inline(always)]
fn record(slot: u32) -> Option<*mut Stack> {
    // SAFETY: a live element.
    unwind::walk(slot).map(|w| unsafe { &raw mut (*w).out })
}

/// Hash of the 512 bytes above `sp`, `None` where they are not all readable.
#[inline(always)]
pub fn above(sp: u64) -> Option<u64> {
    let out = record(LOCKED)?;
    // SAFETY: this processor's row, which has room; the source is checked by the helper.
    unsafe {
        let words: *mut u64 = (&raw mut (*out).addresses).cast();
        if bpf_probe_read_user(words.cast(), (ABOVE_WORDS * 8) as u32, sp as *const _) != 0 {
            return None;
        }
        let mut h = 0;
        for i in 0..ABOVE_WORDS {
            h = mix(h, words.add(i).read_volatile());
        }
        Some(h)
    }
}

/// Walks the running thread's user stack into its state.
///
/// # Safety
/// `s` is the live element of the running thread; interrupts are off.
#[inline(always)]
pub unsafe fn keep(ctx: &impl EbpfContext, s: *mut ThreadState, regs: Regs) {
    // SAFETY: by contract; both have `MAX_FRAMES` words.
    unsafe {
        (*s).user_frames = 0;
        let tables = unwind::tables();
        let Some(w) = walk_user(ctx, LOCKED, regs, (*s).pid) else { return };
        let from = (&raw const (*w).out.addresses).cast();
        bpf_probe_read_kernel((&raw mut (*s).user).cast(), STACK_BYTES, from);
        (*s).user_frames = (*w).out.frames;
        (*s).user_end = (*w).out.end;
        (*s).user_tables = tables;
        (*s).user_image = Current::get().image();
    }
}

/// Whether a walk of the stack kept in the running thread's state would now find no more than it did.
///
/// # Safety
/// `s` is a live element.
#[inline(always)]
pub unsafe fn still_good(s: *const ThreadState) -> bool {
    // SAFETY: by contract.
    unsafe {
        (*s).user_image == Current::get().image()
            && ((*s).user_end == end::START || (*s).user_tables == unwind::tables())
    }
}

/// Sends the user stack kept in a thread's state, its Python part first.
///
/// # Safety
/// `s` is a live element; interrupts are off.
#[inline(always)]
pub unsafe fn send_kept(s: *const ThreadState) -> u64 {
    let Some(out) = record(LOCKED) else { return 0 };
    // SAFETY: by contract; this processor's row.
    unsafe {
        python::send((*s).tid, (*s).key_python);
        bpf_probe_read_kernel((&raw mut (*out).addresses).cast(), STACK_BYTES, (&raw const (*s).user).cast());
        (*out).frames = (*s).user_frames;
        (*out).end = (*s).user_end;
        let (image, python) = ((*s).user_image, (*s).key_python);
        send(out, Owner { user: wire::USER, pid: (*s).pid, image, python })
    }
}

/// Walks the running thread's user stack and sends it, in programs that may be preempted and so cannot use a
/// processor's row.
#[inline(always)]
pub fn preemptible(ctx: &impl EbpfContext, tid: u32, pid: u32) -> u64 {
    let Some(slot) = unwind::thread_slot(tid) else {
        emit::lost(loss::STACK, loss::MAP_FULL, 0);
        return 0;
    };
    user(ctx, slot, Current::get().regs(), pid)
}
