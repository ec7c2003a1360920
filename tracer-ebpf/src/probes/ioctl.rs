//! ioctls on the NVIDIA driver's nodes, added up per process and command: at the driver's own entry points where
//! kprobes exist, else by the tracepoints of all system calls while userspace has them attached.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::{btf_tracepoint, kprobe, kretprobe};
use aya_ebpf::programs::{BtfTracePointContext, ProbeContext, RetProbeContext};
use tracer_ebpf::wire::{BUCKETS, IoctlKey, IoctlStart, IoctlValue, loss};

use super::fault::current_target;
use crate::globals::offset;
use crate::maps::{IOCTLS, IOCTLS_OPEN, epoch};
use crate::task::{Current, load};
use crate::{atomic, emit, file, histogram};

/// `(file, command, argument)`: `nvidia_unlocked_ioctl`, `uvm_unlocked_ioctl_entry`.
#[kprobe]
pub fn ioctl_enter(ctx: ProbeContext) -> u32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    let (Some(file), Some(command), Some(argument)) =
        (ctx.arg::<u64>(0), ctx.arg::<u64>(1), ctx.arg::<u64>(2))
    else {
        return 0;
    };
    if let Some(major) = file::character_major(file as *const u8) {
        enter(tid, pid, major, command as u32, argument);
    }
    0
}

#[kretprobe]
pub fn ioctl_return(_ctx: RetProbeContext) -> u32 {
    if let Some((tid, _)) = current_target() {
        leave(tid);
    }
    0
}

/// `ioctl` of x86-64.
const SYSCALL: i32 = 16;

#[btf_tracepoint(function = "sys_enter")]
pub fn ioctl_sysenter(ctx: BtfTracePointContext) -> i32 {
    if ctx.arg::<u64>(1) as i32 != SYSCALL {
        return 0;
    }
    let Some((tid, pid)) = current_target() else { return 0 };
    let regs: *const u8 = ctx.arg(0);
    let files = Current::get().load::<u64>(offset!(task_files)) as *const u8;
    if let Some(major) = file::nvidia_major(files, load::<u64>(regs, offset!(regs_di)) as u32) {
        let command = load::<u64>(regs, offset!(regs_si)) as u32;
        enter(tid, pid, major, command, load(regs, offset!(regs_dx)));
    }
    0
}

#[btf_tracepoint(function = "sys_exit")]
pub fn ioctl_sysexit(ctx: BtfTracePointContext) -> i32 {
    if load::<u64>(ctx.arg(0), offset!(regs_orig_ax)) as i32 == SYSCALL
        && let Some((tid, _)) = current_target()
    {
        leave(tid);
    }
    0
}

/// Type of the driver's commands, which also have both directions set. The memory manager's are bare numbers.
const TYPE: u32 = 0x46;
const RM_CONTROL: u32 = 0x2a;
/// Its structure holds the number, the size and the address of the true call's.
const XFER: u32 = 0xd3;

/// A command as it is kept: one passed on by `XFER` in its own form, and what `RM_CONTROL` asks for.
#[derive(Clone, Copy)]
pub struct Command {
    pub command: u32,
    pub inner: Option<u32>,
}

/// Reads from user memory of the running task.
#[inline(always)]
pub fn command(command: u32, argument: u64) -> Command {
    if command >> 30 != 3 || (command >> 8) & 0xff != TYPE {
        return Command { command, inner: None };
    }
    let (mut whole, mut structure) = (command, argument);
    if command & 0xff == XFER {
        let mut passed = [0u64; 2];
        // SAFETY: the destination has the size given; the source is checked by the helper.
        if unsafe { bpf_probe_read_user((&raw mut passed).cast(), 16, argument as *const _) } != 0 {
            return Command { command, inner: None };
        }
        let (nr, size) = (passed[0] as u32 & 0xff, (passed[0] >> 32) as u32 & 0x3fff);
        whole = 3 << 30 | size << 16 | TYPE << 8 | nr;
        structure = passed[1];
    }
    let mut inner = 0u32;
    // SAFETY: as above. The inner command lies 8 bytes into the structure (`NVOS54`).
    let known = whole & 0xff == RM_CONTROL
        && unsafe {
            bpf_probe_read_user((&raw mut inner).cast(), 4, structure.wrapping_add(8) as *const _) == 0
        };
    Command { command: whole, inner: known.then_some(inner) }
}

#[inline(always)]
fn enter(tid: u32, pid: u32, major: u32, number: u32, argument: u64) {
    let Command { command, inner } = command(number, argument);
    // SAFETY: a helper without arguments.
    let entered = unsafe { bpf_ktime_get_ns() };
    let start = IoctlStart {
        entered,
        pid,
        major,
        command,
        inner: inner.unwrap_or(0),
        has_inner: inner.is_some().into(),
        pad: 0,
    };
    if IOCTLS_OPEN.get_ptr(tid).is_some() {
        // More calls under way than the kernel keeps returns for.
        emit::lost(loss::IOCTL, loss::UNANNOUNCED, 0);
    }
    if IOCTLS_OPEN.insert(tid, start, BPF_ANY.into()).is_err() {
        emit::lost(loss::IOCTL, loss::MAP_FULL, 0);
    }
}

#[inline(always)]
fn leave(tid: u32) {
    // SAFETY: copied out at once; the running thread's own row.
    let Some(start) = (unsafe { IOCTLS_OPEN.get(tid) }).copied() else { return };
    if IOCTLS_OPEN.remove(tid).is_err() {
        return;
    }
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    if now < start.entered {
        emit::lost(loss::IOCTL, loss::TIME_TRAVEL, 0);
        return;
    }
    let ns = now - start.entered;
    let key = IoctlKey {
        pid: start.pid,
        major: start.major,
        command: start.command,
        inner: start.inner,
        has_inner: start.has_inner,
        epoch: epoch(),
    };
    match row(&key) {
        // SAFETY: a live element; rows of this half are removed long after the turn.
        Some(v) => unsafe { add(v, ns) },
        None => emit::lost(loss::IOCTL, loss::MAP_FULL, ns),
    }
}

#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value they would be copied on a stack of 512 bytes"
)]
#[inline(always)]
fn row(key: &IoctlKey) -> Option<*mut IoctlValue> {
    if let Some(v) = IOCTLS.get_ptr_mut(key) {
        return Some(v);
    }
    let blank = IoctlValue { count: 0, ns: 0, longest: 0, histogram: [0; BUCKETS] };
    // Another processor may have made it meanwhile.
    let _made = IOCTLS.insert(key, &blank, BPF_NOEXIST.into());
    IOCTLS.get_ptr_mut(key)
}

/// Threads of one process on several processors add to the same row. Of two calls that end within the same
/// nanoseconds the longest may be the other one's.
#[inline(always)]
unsafe fn add(v: *mut IoctlValue, ns: u64) {
    // SAFETY: by contract of the caller.
    unsafe {
        atomic::add(&raw mut (*v).count, 1);
        atomic::add(&raw mut (*v).ns, ns);
        if ns > (*v).longest {
            (*v).longest = ns;
        }
        histogram::count(&raw mut (*v).histogram, ns);
    }
}
