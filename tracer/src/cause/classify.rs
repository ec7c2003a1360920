//! What kind of wait an off-CPU interval was: by its kernel stack and its waker's, else by its system call and file.

use super::context::Context;
use super::files::{self, Kind};
use super::kernel_locks;
use super::kernel_stacks::{self, Sleep};
use super::syscalls::{self, Call};
use crate::timeline::Thread;
use crate::trace::{File, OffCpu, State};

pub(crate) fn classify(context: &Context<'_>, off: &OffCpu) -> Option<Sleep> {
    let file = context.file(off);
    if off.state == State::Stopped {
        return Some(Sleep::Stopped);
    }
    let slept =
        context.verdicts.sleep(off.kernel_stack, || kernel_stacks::sleep(&context.frames(off.kernel_stack)));
    let lock = kernel_locks::ended(context, off).then_some(Sleep::KernelLock);
    let class = slept.into_iter().chain(lock).min().or_else(|| by_call(context, off, file));
    match (class, file) {
        // Page-cache waits look alike on every file system; the file tells whose they are.
        (Some(Sleep::Block), Some(file)) if files::is_fuse(file) => Some(Sleep::Fuse),
        (Some(Sleep::Block), Some(file)) if files::remote(file).is_some() => Some(Sleep::RemoteFs),
        _ => class,
    }
}

fn by_call(context: &Context<'_>, off: &OffCpu, file: Option<&File>) -> Option<Sleep> {
    match &off.syscall {
        None if in_user_code(context, off) => Some(Sleep::Block),
        None => None,
        Some(call) => of_call(syscalls::family(call.nr), file),
    }
}

/// The class of a wait of which only the system call and perhaps the file are known.
pub(crate) fn of_call(call: Call, file: Option<&File>) -> Option<Sleep> {
    match call {
        Call::ReadAt | Call::Metadata => Some(on_storage(file)),
        Call::Sync => Some(Sleep::Write),
        Call::Read => match files::kind(file?) {
            Kind::Regular => Some(on_storage(file)),
            Kind::Pipe => Some(Sleep::Pipe),
            Kind::Socket => Some(Sleep::SocketRead),
            Kind::Terminal => Some(Sleep::Terminal),
            Kind::Other => None,
        },
        Call::Write => match files::kind(file?) {
            Kind::Regular => Some(Sleep::Write),
            Kind::Pipe => Some(Sleep::Pipe),
            Kind::Socket => Some(Sleep::SocketWrite),
            Kind::Terminal | Kind::Other => None,
        },
        Call::Futex => Some(Sleep::Futex),
        Call::Poll => Some(Sleep::Poll),
        Call::Sleep => Some(Sleep::Timer),
        Call::Accept => Some(Sleep::Accept),
        Call::Receive => Some(Sleep::SocketRead),
        Call::Send => Some(Sleep::SocketWrite),
        Call::Child => Some(Sleep::Child),
        Call::IoUring => Some(Sleep::IoUring),
        Call::SysvIpc => Some(Sleep::SysvIpc),
        Call::Ioctl | Call::Signal | Call::SignalWait | Call::Other => None,
    }
}

fn on_storage(file: Option<&File>) -> Sleep {
    match file {
        Some(file) if files::is_fuse(file) => Sleep::Fuse,
        Some(file) if files::remote(file).is_some() => Sleep::RemoteFs,
        _ => Sleep::Block,
    }
}

/// Whether it waits in a page fault rather than in the call's own read.
pub(crate) fn in_fault(context: &Context<'_>, off: &OffCpu) -> bool {
    let faulting = || kernel_stacks::in_fault(&context.frames(off.kernel_stack));
    (off.syscall.is_none() && in_user_code(context, off))
        || context.verdicts.in_fault(off.kernel_stack, faulting)
}

/// Kernel threads and io_uring's workers make no system calls, so having made none says nothing of them; nor does it of
/// a wait of which neither end was seen.
fn in_user_code(context: &Context<'_>, off: &OffCpu) -> bool {
    let unseen = off.cut_start && off.cut_end;
    !unseen && !context.thread(off.thread).is_some_and(without_calls)
}

pub(crate) fn without_calls(thread: &Thread) -> bool {
    thread.kernel_thread || thread.comm.starts_with("iou-")
}

pub(crate) fn call_of(off: &OffCpu) -> Call {
    off.syscall.as_ref().map_or(Call::Other, |c| syscalls::family(c.nr))
}
