//! Which waits are one wait, and who ended whose.

use std::collections::BTreeMap;

use super::model::{Given, GivenWait, MergedWait, Thread};
use crate::trace::{FileId, Ns, OffCpu, State, ThreadKey, Waker, WakerContext};

/// What a thread waits on, beside the system call it waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitObject {
    /// Futex word.
    Address(u64),
    /// Address and count of a `poll` list.
    List(u64, u64),
    /// Counts and the three sets of `select`.
    Sets([u64; 4]),
    /// File behind the descriptor.
    File(FileId),
    /// Descriptor, where the file is not known.
    Descriptor(u64),
    /// File or descriptor, and the command.
    Ioctl(u64, u64),
}

/// The object of a wait: `None` in no system call, and in one that waits on nothing that can be named.
#[must_use]
pub fn wait_object(off: &OffCpu) -> Option<WaitObject> {
    let call = off.syscall.as_ref()?;
    let descriptor = call.args[0];
    let behind = off.file.filter(|&f| f != 0);
    Some(match i64::from(call.nr) {
        libc::SYS_futex => WaitObject::Address(call.args[0]),
        libc::SYS_poll | libc::SYS_ppoll => WaitObject::List(call.args[0], call.args[1]),
        libc::SYS_select | libc::SYS_pselect6 => {
            WaitObject::Sets([call.args[0], call.args[1], call.args[2], call.args[3]])
        }
        libc::SYS_ioctl => WaitObject::Ioctl(behind.unwrap_or(descriptor), call.args[1]),
        libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_io_uring_enter => behind.map_or(WaitObject::Descriptor(descriptor), WaitObject::File),
        _ => WaitObject::File(behind?),
    })
}

/// Groups a thread's blocking waits: consecutive ones in the same system call on the same object are one,
/// unless it submitted, called the driver or woke another between them.
pub(super) fn merge(thread: &Thread) -> Vec<MergedWait> {
    let mut merged: Vec<MergedWait> = Vec::new();
    let mut last: Option<(i32, WaitObject, Ns)> = None;
    for (i, off) in thread.off_cpu.iter().enumerate() {
        if matches!(off.state, State::Preempted | State::Yielded) {
            continue;
        }
        let what = wait_object(off).zip(off.syscall.as_ref()).map(|(object, call)| (call.nr, object));
        let again = matches!((last, what), (Some((nr, object, ran)), Some(now))
            if (nr, object) == now && !acted(thread, ran, off.left));
        match merged.last_mut() {
            Some(wait) if again => wait.members.push(i),
            _ => merged.push(MergedWait { members: vec![i] }),
        }
        last = what.map(|(nr, object)| (nr, object, off.ran));
    }
    merged
}

/// Whether the thread did, in `[from, to]`, something that a re-armed wait does not.
fn acted(thread: &Thread, from: Ns, to: Ns) -> bool {
    let gave = thread.given.partition_point(|g| g.at < from);
    let called = thread.calls.partition_point(|c| c.entry < from);
    let submitted = thread.submits.partition_point(|s| s.first < from);
    let running = thread.submits[..submitted].iter().rev().take(1).any(|s| s.last >= from);
    let seen = thread.given[gave..].iter().find(|g| matches!(g.wait, GivenWait::OffCpu(_)));
    running
        || seen.is_some_and(|g| g.at <= to)
        || thread.calls.get(called).is_some_and(|c| c.entry <= to)
        || thread.submits.get(submitted).is_some_and(|s| s.first <= to)
}

/// Every wake-up by its giver. A wake-up from an interrupt is nobody's.
pub(super) fn given(threads: &BTreeMap<ThreadKey, Thread>) -> BTreeMap<ThreadKey, Vec<Given>> {
    let mut by_giver: BTreeMap<ThreadKey, Vec<Given>> = BTreeMap::new();
    for (&wakee, thread) in threads {
        for (i, off) in thread.off_cpu.iter().enumerate() {
            let (Some(at), Some(giver)) = (off.woken, off.waker.as_ref().and_then(giver)) else { continue };
            by_giver.entry(giver).or_default().push(Given { at, wakee, wait: GivenWait::OffCpu(i) });
        }
        for (i, total) in thread.totals.iter().enumerate() {
            let Some(giver) = total.waker else { continue };
            let given = Given { at: total.last, wakee, wait: GivenWait::Total(i) };
            by_giver.entry(giver).or_default().push(given);
        }
    }
    by_giver.values_mut().for_each(|g| g.sort_unstable());
    by_giver
}

/// The thread whose own doing a wake-up was.
fn giver(waker: &Waker) -> Option<ThreadKey> {
    (waker.context != WakerContext::Interrupt).then_some(waker.thread)?
}
