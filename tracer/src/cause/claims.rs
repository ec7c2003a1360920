//! Links that name the mechanism themselves, whatever the chain behind them ends in.

use super::context::Context;
use super::entry::{Claim, Unless};
use super::files;
use super::jobs::role;
use super::kernel_stacks::Sleep;
use super::user_stacks;
use super::waits::mount;
use super::{Culprit, CulpritKind, Mechanism, calls};
use crate::timeline::{GivenWait, Thread};
use crate::trace::{CudaCall, CudaFamily, Ns, OffCpu, ThreadKey, WakerContext};

/// The claim of a blocked stretch of `thread`, with `last` the piece whose waker holds.
pub(crate) fn of_wait(
    context: &Context<'_>,
    thread: &Thread,
    off: &OffCpu,
    last: &OffCpu,
    class: Option<Sleep>,
    call: Option<&CudaCall>,
) -> Option<Claim> {
    if let Some(claim) = of_driver_lock(context, off, last) {
        return Some(claim);
    }
    let ioctl = is_nvidia_ioctl(context, off);
    if let Some(claim) = call.and_then(|c| of_call(context, c).or_else(|| of_launch(context, thread, c))) {
        return Some(claim);
    }
    if ioctl {
        let culprit = user_stacks::caller(&context.frames(off.user_stack));
        return Some(Claim::new(Mechanism::DriverIoctl, culprit));
    }
    if class == Some(Sleep::Futex) {
        if is_interpreter_lock(context, thread, off) {
            let running = || running_beside(context, thread, off);
            let culprit = holder(context, last).or_else(running).or_else(|| lock("interpreter lock"));
            return Some(Claim::new(Mechanism::LockGil, culprit));
        }
        if is_mutex(off) {
            let address = off.syscall.as_ref().map_or(0, |c| c.args[0]);
            let culprit = holder(context, last).or_else(|| lock(&format!("mutex {address:#x}")));
            return Some(Claim::new(Mechanism::LockFutex, culprit));
        }
    }
    if class == Some(Sleep::KernelLock) {
        return Some(Claim::new(
            Mechanism::LockKernel,
            holder(context, last).or_else(|| lock("kernel lock")),
        ));
    }
    if let Some(file) = context.file(off)
        && files::remote(file).is_some()
    {
        return Some(Claim {
            mechanism: Mechanism::NetworkFs,
            culprit: mount(off, Some(file)),
            unless: Unless::Storage,
        });
    }
    matches!(class, Some(Sleep::Fuse | Sleep::RemoteFs)).then(|| Claim {
        mechanism: Mechanism::NetworkFs,
        culprit: mount(off, None),
        unless: Unless::Storage,
    })
}

/// The claim of a wait for the driver's lock, which another process held; inside whatever call.
pub(crate) fn of_driver_lock(context: &Context<'_>, off: &OffCpu, last: &OffCpu) -> Option<Claim> {
    let holder = is_nvidia_ioctl(context, off).then(|| driver_lock_holder(context, off, last))??;
    Some(Claim::new(Mechanism::DriverLock, Some(holder)))
}

/// The claim of any stretch inside an allocate, free or load call.
pub(crate) fn of_call(context: &Context<'_>, call: &CudaCall) -> Option<Claim> {
    let mechanism = match call.family {
        CudaFamily::Allocate | CudaFamily::Free | CudaFamily::HostAllocate => Mechanism::DriverAlloc,
        CudaFamily::Load => Mechanism::DriverLoad,
        _ => return None,
    };
    Some(Claim { mechanism, culprit: caller(context, call), unless: Unless::FileWait })
}

/// The claim of what a launch does that loads a module. Waiting for a processor is not its doing.
pub(crate) fn of_launch(context: &Context<'_>, thread: &Thread, call: &CudaCall) -> Option<Claim> {
    calls::loads(context, thread, call).then(|| Claim {
        mechanism: Mechanism::DriverLoad,
        culprit: caller(context, call),
        unless: Unless::FileOrProcessorWait,
    })
}

fn caller(context: &Context<'_>, call: &CudaCall) -> Option<Culprit> {
    user_stacks::caller(&context.frames(call.user_stack))
        .or_else(|| Some(Culprit { kind: CulpritKind::Function, name: call.name.clone() }))
}

/// The claim of a wait that the feeder of another device ended: a rank waits for a rank.
pub(crate) fn of_peer(context: &Context<'_>, by: ThreadKey) -> Option<Claim> {
    let device = context.fed_by(by).filter(|&d| context.device.is_some_and(|own| own != d))?;
    let thread = context.thread(by)?;
    let ranks = context.process(thread.pid).iter().filter_map(|&k| context.thread(k));
    let rank = ranks.flat_map(|t| &t.collectives).find_map(|c| c.group).map(|g| g.rank);
    let who = rank.map_or_else(|| thread.comm.clone(), |rank| format!("rank {rank}"));
    let name = format!("{who} (pid {}, GPU {device})", thread.pid);
    Some(Claim::new(Mechanism::PeerCollective, Some(Culprit { kind: CulpritKind::Peer, name })))
}

/// The claim of a wait that thread `by` of another process ended at `at`: a child that execed in this trace
/// and has delivered nothing since, or (only for its import machinery) one that was born in it.
pub(crate) fn of_child(context: &Context<'_>, waiter: &Thread, by: ThreadKey, at: Ns) -> Option<Claim> {
    let child = context.thread(by).filter(|c| c.pid != waiter.pid)?;
    let threads = || context.process(child.pid).iter().filter_map(|&k| context.thread(k));
    let exec = threads().flat_map(|t| &t.execs).copied().filter(|&e| e < at).max();
    let born = threads().filter_map(|t| t.born).min();
    let since = exec.or(born)?;
    let delivered = threads().any(|t| delivered_between(context, t, waiter.pid, since, at));
    if delivered {
        return None;
    }
    let culprit = Culprit { kind: CulpritKind::Process, name: process_name(child) };
    let unless = if exec.is_some() { Unless::Nothing } else { Unless::NotImporting };
    Some(Claim { mechanism: Mechanism::ProcessSpawn, culprit: Some(culprit), unless })
}

/// Whether `thread` woke a thread of process `pid` after `from` and before `to`.
fn delivered_between(context: &Context<'_>, thread: &Thread, pid: u32, from: Ns, to: Ns) -> bool {
    let begin = thread.given.partition_point(|g| g.at <= from);
    thread.given[begin..].iter().take_while(|g| g.at < to).any(|g| {
        matches!(g.wait, GivenWait::OffCpu(_)) && context.thread(g.wakee).is_some_and(|w| w.pid == pid)
    })
}

/// What a process is called: its command line's first two words, else its name.
pub(crate) fn process_name(thread: &Thread) -> String {
    if thread.cmdline.is_empty() {
        return thread.comm.clone();
    }
    thread.cmdline.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" ")
}

pub(crate) fn is_nvidia_ioctl(context: &Context<'_>, off: &OffCpu) -> bool {
    let is_ioctl = off.syscall.as_ref().is_some_and(|c| i64::from(c.nr) == libc::SYS_ioctl);
    off.ioctl.is_some()
        || (is_ioctl
            && context
                .file(off)
                .is_some_and(|f| files::is_device_of(f, &context.timeline.host.nvidia_majors)))
}

/// The process that let go of the driver's lock: another one, itself inside a call into the driver, and not only
/// interrupted there.
fn driver_lock_holder(context: &Context<'_>, off: &OffCpu, last: &OffCpu) -> Option<Culprit> {
    let waker = last.waker.as_ref()?;
    if !waker.in_nvidia_ioctl || waker.pid == off.pid || waker.context == WakerContext::Interrupt {
        return None;
    }
    let thread = waker.thread.and_then(|key| context.thread(key));
    // A child that runs its parent's program has only its name for its own.
    let name =
        thread.map_or_else(|| format!("process {}", waker.pid), |t| format!("{} (pid {})", t.comm, t.pid));
    Some(Culprit { kind: CulpritKind::Process, name })
}

fn holder(context: &Context<'_>, last: &OffCpu) -> Option<Culprit> {
    let waker = last.waker.as_ref().filter(|w| w.context != WakerContext::Interrupt)?;
    let thread = context.thread(waker.thread?)?;
    // Within a process its name says nothing.
    let name = if waker.pid == last.pid { role(&thread.comm) } else { process_name(thread) };
    Some(Culprit { kind: CulpritKind::Lock, name: format!("held by {name}") })
}

/// Who had the interpreter lock while a thread waited for it in vain: of its process the one that ran longest.
fn running_beside(context: &Context<'_>, thread: &Thread, off: &OffCpu) -> Option<Culprit> {
    let ran = |t: &Thread| t.running_before(off.ran).saturating_sub(t.running_before(off.left));
    let others = context.process(off.pid).iter().filter(|&&k| k != thread.key);
    let most =
        others.filter_map(|&k| context.thread(k)).max_by_key(|t| (ran(t), std::cmp::Reverse(t.key)))?;
    (ran(most) > 0)
        .then(|| Culprit { kind: CulpritKind::Lock, name: format!("held by {}", role(&most.comm)) })
}

fn lock(name: &str) -> Option<Culprit> {
    Some(Culprit { kind: CulpritKind::Lock, name: name.to_owned() })
}

/// A wait that holds nothing up but a lock: its end is no request for work.
pub(crate) fn is_lock(context: &Context<'_>, thread: &Thread, off: &OffCpu, class: Option<Sleep>) -> bool {
    class == Some(Sleep::KernelLock)
        || (class == Some(Sleep::Futex) && (is_mutex(off) || is_interpreter_lock(context, thread, off)))
}

const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_LOCK_PI2: u64 = 13;

/// Priority-inheriting locks, and glibc's mutex, whose word holds 2 while somebody waits. Condition variables
/// and semaphores wait with `FUTEX_WAIT_BITSET`, or with other values.
fn is_mutex(off: &OffCpu) -> bool {
    let Some(call) = off.syscall.as_ref().filter(|c| i64::from(c.nr) == libc::SYS_futex) else {
        return false;
    };
    match call.args[1] & FUTEX_COMMAND {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => true,
        FUTEX_WAIT => call.args[2] & 0xffff_ffff == 2 && off.futex_value.is_none_or(|v| v == 2),
        _ => false,
    }
}

/// By the functions it waits in where they have names; else by the shape of CPython's wait: several threads
/// of one process on one word, again and again for the switch interval of 5 ms.
fn is_interpreter_lock(context: &Context<'_>, thread: &Thread, off: &OffCpu) -> bool {
    let by_name = || user_stacks::waits_for_interpreter_lock(&context.frames(off.user_stack));
    context.verdicts.interpreter_lock(off.user_stack, by_name)
        || off.syscall.as_ref().is_some_and(|call| {
            i64::from(call.nr) == libc::SYS_futex
                && call.args[1] & FUTEX_COMMAND == FUTEX_WAIT_BITSET
                && context.is_switch_interval_word(thread.pid, call.args[0])
        })
}
