//! One blocked stretch: where the chain goes on, or the leaf it ends in.

use std::sync::Arc;

use super::classify::{call_of, in_fault};
use super::context::Context;
use super::files::{self, Kind};
use super::kernel_stacks::{self, Interrupt, Sleep};
use super::syscalls::{self, Call};
use super::{Culprit, CulpritKind, Mechanism, groups, nvidia, user_stacks};
use crate::timeline::{Thread, wait_object};
use crate::trace::{File, OffCpu, TargetKind, ThreadKey, Waker, WakerContext};

/// Where a wait leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Follow(ThreadKey),
    Leaf(Mechanism, Option<Culprit>),
    Unexplained(Arc<str>),
}

/// Who ended a wait.
enum End<'a> {
    /// A thread whose records were kept.
    Thread(ThreadKey),
    /// A thread of which only the name is known.
    Stranger(&'a Waker),
    Interrupt(Option<Interrupt>),
    /// Not woken before the recording ended.
    Open,
    Unknown,
}

/// `off` is the piece looked at, `last` the last piece of the merged wait: its waker holds for all.
pub(crate) fn next(context: &Context<'_>, off: &OffCpu, last: &OffCpu, class: Option<Sleep>) -> Next {
    let file = context.file(off);
    if by_signal(last) && !matches!(class, Some(Sleep::Stopped | Sleep::Timer)) {
        return unexplained("a signal ended the wait before what it was for had come");
    }
    let end = end(context, last, class);
    if let Some(file) = file
        && files::is_device_of(file, &context.timeline.host.nvidia_majors)
        && call_of(off) != Call::Ioctl
    {
        return unexplained("waits for the device on its own descriptor while the device reads idle");
    }
    let Some(class) = class else { return unclassed(context, off, &end) };
    match class {
        Sleep::Stopped => Next::Leaf(Mechanism::ProcessStopped, process(context, off)),
        Sleep::Timer => sleep(context, off),
        Sleep::Swap => Next::Leaf(Mechanism::MemorySwap, None),
        Sleep::Reclaim => {
            let thread = context.thread(off.thread);
            Next::Leaf(Mechanism::MemoryReclaim, thread.and_then(|t| groups::out_of_memory(context, t)))
        }
        Sleep::Write => Next::Leaf(Mechanism::StorageWrite, file.and_then(files::directory_of)),
        Sleep::Block => storage(context, off, file),
        Sleep::Fuse => follow_or(&end, || remote_fs(off, file)),
        Sleep::RemoteFs => remote_fs(off, file),
        Sleep::KernelLock => follow_or(&end, || Next::Leaf(Mechanism::LockKernel, None)),
        Sleep::Accept => no_demand(file),
        Sleep::Terminal => Next::Leaf(Mechanism::NoDemand, None),
        Sleep::SocketRead => socket_read(context, file, &end),
        Sleep::Poll => poll(context, off, &end),
        Sleep::Futex => match end {
            End::Interrupt(Some(Interrupt::Timer)) => sleep(context, off),
            end => peer(context, &end, "a futex"),
        },
        Sleep::Pipe => peer(context, &end, "a pipe"),
        Sleep::SocketWrite => match end {
            End::Interrupt(Some(Interrupt::Network)) => {
                Next::Leaf(Mechanism::NetworkRead, peer_address(file))
            }
            end => peer(context, &end, "room in a socket"),
        },
        Sleep::Child | Sleep::Vfork => peer(context, &end, "a child process"),
        Sleep::SysvIpc => peer(context, &end, "a System V queue or semaphore"),
        Sleep::IoUring => match end {
            End::Interrupt(Some(Interrupt::Block)) => storage(context, off, file),
            end => peer(context, &end, "an io_uring completion"),
        },
    }
}

fn end<'a>(context: &Context<'_>, last: &'a OffCpu, class: Option<Sleep>) -> End<'a> {
    let Some(waker) = &last.waker else {
        return if last.woken.is_none() { End::Open } else { End::Unknown };
    };
    let by_interrupt = || End::Interrupt(kernel_stacks::interrupt(&context.frames(waker.kernel_stack)));
    let Some(key) = waker.thread else { return by_interrupt() };
    // Without the waker's stack, only a thread that sits in a system call can have woken a peer.
    let own = waker.context == WakerContext::Task
        || (waker.context == WakerContext::Unknown
            && (waker.syscall.is_some() || class == Some(Sleep::Child)));
    if !own {
        return by_interrupt();
    }
    match context.thread(key) {
        Some(thread) if thread.kernel_thread && thread.slices.is_empty() => by_interrupt(),
        Some(thread) if !thread.slices.is_empty() => End::Thread(key),
        _ => End::Stranger(waker),
    }
}

/// A sleep is whose who asked for it.
fn sleep(context: &Context<'_>, off: &OffCpu) -> Next {
    Next::Leaf(Mechanism::TimerSleep, user_stacks::caller(&context.frames(off.user_stack)))
}

/// The process that waits.
fn process(context: &Context<'_>, off: &OffCpu) -> Option<Culprit> {
    let thread = context.thread(off.thread)?;
    Some(Culprit { kind: CulpritKind::Process, name: format!("{} (pid {})", thread.comm, thread.pid) })
}

fn follow_or(end: &End<'_>, leaf: impl FnOnce() -> Next) -> Next {
    match end {
        End::Thread(key) => Next::Follow(*key),
        _ => leaf(),
    }
}

/// A wait that only another thread can end.
fn peer(context: &Context<'_>, end: &End<'_>, on: &str) -> Next {
    match end {
        End::Thread(key) => Next::Follow(*key),
        End::Stranger(waker) => Next::Leaf(Mechanism::IpcWait, Some(stranger(context, waker))),
        End::Interrupt(Some(Interrupt::Nvidia)) => {
            unexplained("waits for the device's interrupt while the device reads idle")
        }
        End::Interrupt(Some(Interrupt::Timer)) => Next::Leaf(Mechanism::TimerSleep, None),
        End::Interrupt(_) => unexplained(format!("a wait for {on} ended in an interrupt that names no peer")),
        End::Open => unexplained(format!("still waiting for {on} when the recording ended")),
        End::Unknown => unexplained(format!("no record of who ended a wait for {on}")),
    }
}

fn stranger(context: &Context<'_>, waker: &Waker) -> Culprit {
    let thread = waker.thread.and_then(|k| context.thread(k));
    let name = thread
        .map_or_else(|| format!("process {}", waker.pid), |t| format!("{} (process {})", t.comm, t.pid));
    Culprit { kind: CulpritKind::Peer, name }
}

fn storage(context: &Context<'_>, off: &OffCpu, file: Option<&File>) -> Next {
    if in_fault(context, off) {
        let culprit = file.and_then(files::path).map(|name| Culprit { kind: CulpritKind::File, name });
        return Next::Leaf(Mechanism::StorageFault, culprit);
    }
    let mechanism = match call_of(off) {
        Call::Metadata => Mechanism::StorageMetadata,
        Call::Write | Call::Sync => Mechanism::StorageWrite,
        _ => Mechanism::StorageRead,
    };
    Next::Leaf(
        mechanism,
        file.and_then(files::directory_of).or_else(|| argument(off)).or_else(|| disk(context, file)),
    )
}

fn remote_fs(off: &OffCpu, file: Option<&File>) -> Next {
    Next::Leaf(Mechanism::NetworkFs, mount(off, file))
}

/// The directory of a remote file, or its mount.
pub(crate) fn mount(off: &OffCpu, file: Option<&File>) -> Option<Culprit> {
    file.and_then(files::directory_of).or_else(|| argument(off)).or_else(|| {
        let mount = file?.mount.clone()?;
        Some(Culprit { kind: CulpritKind::Directory, name: mount })
    })
}

/// The directory of a path argument of `open` or `stat`.
fn argument(off: &OffCpu) -> Option<Culprit> {
    let path = off.path_arg.as_ref().filter(|p| !p.is_empty())?;
    Some(Culprit { kind: CulpritKind::Directory, name: files::directory(path).to_owned() })
}

fn disk(context: &Context<'_>, file: Option<&File>) -> Option<Culprit> {
    let name = context.disk(file?.dev)?.to_owned();
    Some(Culprit { kind: CulpritKind::Device, name })
}

fn no_demand(file: Option<&File>) -> Next {
    let local = file.and_then(|f| f.socket.as_ref()).map(|s| s.local.clone()).filter(|l| !l.is_empty());
    Next::Leaf(Mechanism::NoDemand, local.map(|l| listens(&l)))
}

fn listens(local: &str) -> Culprit {
    Culprit { kind: CulpritKind::Peer, name: format!("listening socket {local}") }
}

fn peer_address(file: Option<&File>) -> Option<Culprit> {
    let peer = &file?.socket.as_ref()?.peer;
    (!peer.is_empty()).then(|| Culprit { kind: CulpritKind::Peer, name: peer.clone() })
}

fn socket_read(context: &Context<'_>, file: Option<&File>, end: &End<'_>) -> Next {
    let accepted = file.and_then(|f| f.socket.as_ref()).is_some_and(|s| context.is_accepted(&s.local));
    match end {
        End::Thread(key) if !(accepted && is_client(context, *key)) => Next::Follow(*key),
        // The request came from outside: nobody asked for work.
        _ if accepted => no_demand(file),
        End::Stranger(_) => peer(context, end, "a socket"),
        End::Interrupt(_) => match file.and_then(|f| context.other_end(f)) {
            Some(key) if context.recorded(key).is_some() => Next::Follow(key),
            _ => Next::Leaf(Mechanism::NetworkRead, peer_address(file)),
        },
        End::Open if file.is_some_and(|f| files::kind(f) == Kind::Socket) => {
            Next::Leaf(Mechanism::NetworkRead, peer_address(file))
        }
        End::Thread(_) | End::Open | End::Unknown => peer(context, end, "a socket"),
    }
}

/// A thread that is none of the job's and asks it for something: what holds that one up is not the job's matter.
fn is_client(context: &Context<'_>, key: ThreadKey) -> bool {
    context.thread(key).is_some_and(|t| t.kind == TargetKind::Adopted)
}

fn poll(context: &Context<'_>, off: &OffCpu, end: &End<'_>) -> Next {
    // The first of the descriptors polled, where it is known: not with `epoll`.
    let file = context.file(off).filter(|f| files::kind(f) == Kind::Socket);
    let outgoing = file.and_then(|f| f.socket.as_ref()).is_some_and(|s| context.is_outgoing(s));
    let polled = context.polled(off);
    let listening = polled.and_then(|p| p.listening.first());
    let asks = outgoing || (file.is_none() && polled.map_or_else(|| context.asks(off.pid), |p| p.asks));
    let serves = listening.is_some() || (polled.is_none() && context.serves(off.pid).is_some());
    let from_outside = match end {
        End::Interrupt(Some(Interrupt::Network)) | End::Stranger(_) | End::Open => true,
        End::Thread(key) => is_client(context, *key),
        _ => false,
    };
    match end {
        End::Interrupt(Some(Interrupt::Network)) if outgoing => {
            Next::Leaf(Mechanism::NetworkRead, peer_address(file))
        }
        _ if from_outside && serves && asks => {
            unexplained("waits for one of several connections, of which it serves some and asks others")
        }
        _ if from_outside && serves => match listening {
            Some(local) => Next::Leaf(Mechanism::NoDemand, Some(listens(local))),
            None => no_demand(context.serves(off.pid)),
        },
        End::Interrupt(Some(Interrupt::Network)) => Next::Leaf(Mechanism::NetworkRead, None),
        end => peer(context, end, "one of several descriptors"),
    }
}

fn unclassed(context: &Context<'_>, off: &OffCpu, end: &End<'_>) -> Next {
    match end {
        End::Thread(key) => Next::Follow(*key),
        End::Interrupt(Some(Interrupt::Block)) => storage(context, off, context.file(off)),
        End::Interrupt(Some(Interrupt::Timer)) => Next::Leaf(Mechanism::TimerSleep, None),
        End::Interrupt(Some(Interrupt::Nvidia)) if off.ioctl.is_none() => peer(context, end, "the device"),
        _ => {
            let without = if in_fault(context, off) { "a fault" } else { "the kernel" };
            let call = off.syscall.as_ref().map_or_else(|| without.to_owned(), |c| syscalls::name(c.nr));
            let frames = context.frames(off.kernel_stack);
            let place =
                frames.iter().find(|f| f.resolved && !f.name.contains("schedule")).map(|f| f.name.as_str());
            unexplained(match place {
                Some(place) => format!("a wait in {call} of a kind not known (kernel function {place})"),
                None => format!("a wait in {call} of a kind not known, without a kernel stack"),
            })
        }
    }
}

fn unexplained(reason: impl Into<Arc<str>>) -> Next {
    Next::Unexplained(reason.into())
}

/// Whether a signal ended the wait: it had not got what it waited for.
pub(crate) fn by_signal(last: &OffCpu) -> bool {
    let waker = last.waker.as_ref().filter(|w| w.context == WakerContext::Task);
    let call = waker.and_then(|w| w.syscall).map(syscalls::family);
    call == Some(Call::Signal) && call_of(last) != Call::SignalWait
}

/// Words for a wait, without ids.
pub(crate) fn describe(context: &Context<'_>, off: &OffCpu, class: Option<Sleep>) -> String {
    let file = context.file(off);
    let call = off.syscall.as_ref().map(|c| syscalls::name(c.nr));
    let call = call.as_deref().unwrap_or(if in_fault(context, off) {
        "page fault"
    } else {
        "a wait of the kernel's"
    });
    let directory = file.and_then(files::directory_of).or_else(|| argument(off)).map(|d| d.name);
    if let Some(ioctl) = off.ioctl {
        return format!("ioctl {}", nvidia::command(file.map(|f| f.rdev >> 20), ioctl));
    }
    let on = |what: &str| {
        directory.as_ref().map_or_else(|| what.to_owned(), |d| format!("{what} of files in {d}"))
    };
    match class {
        Some(Sleep::Block | Sleep::Fuse | Sleep::RemoteFs) if in_fault(context, off) => file
            .and_then(files::path)
            .map_or_else(|| "page fault".to_owned(), |p| format!("page fault on {p}")),
        Some(Sleep::Block | Sleep::Fuse | Sleep::RemoteFs | Sleep::Write) => on(call),
        Some(Sleep::Swap) => "page fault on swapped-out memory".into(),
        Some(Sleep::Reclaim) => format!("reclaims memory ({call})"),
        Some(Sleep::Timer) => format!("sleeps ({call})"),
        Some(Sleep::Stopped) => "stopped".into(),
        Some(Sleep::KernelLock) => format!("kernel lock in {}", on(call)),
        Some(Sleep::Pipe) => format!("pipe {call}"),
        Some(Sleep::SocketRead | Sleep::SocketWrite) => match peer_address(file) {
            Some(peer) => format!("{call} on a connection to {}", peer.name),
            None => format!("socket {call}"),
        },
        _ => call.to_owned(),
    }
}

/// Whether two waits are on the same thing: same system call, same object.
pub(crate) fn same_object(a: &OffCpu, b: &OffCpu) -> bool {
    a.syscall.as_ref().map(|c| c.nr) == b.syscall.as_ref().map(|c| c.nr) && wait_object(a) == wait_object(b)
}

/// The last piece of the merged wait that `off_cpu[index]` belongs to.
pub(crate) fn last_piece(thread: &Thread, index: usize) -> usize {
    thread.merged_wait(index).and_then(|m| m.members.last().copied()).unwrap_or(index)
}
