//! Where a walk ends without following anybody: totals of short waits, and time inside driver calls.

use std::sync::Arc;

use super::classify;
use super::entry::{Entry, Step, scale};
use super::files;
use super::kernel_stacks::Sleep;
use super::syscalls::Call;
use super::walk::{Place, Walker};
use super::{Mechanism, calls, syscalls};
use crate::timeline::{ShortWait, Thread};
use crate::trace::{CudaCall, CudaFamily, Span, ThreadKey};

impl Walker<'_> {
    /// Short waits of a stretch, known as totals only.
    pub(super) fn short(
        &self,
        thread: &Thread,
        short: &ShortWait,
        span: Span,
        place: Place<'_>,
    ) -> Vec<Entry> {
        let call = syscalls::family(short.syscall);
        let file = self.context.descriptor(thread.pid, short.arg0, span.end);
        let class = if short.syscall < 0 { Some(Sleep::Block) } else { classify::of_call(call, file) };
        let name = if short.syscall < 0 { "page fault".into() } else { syscalls::name(short.syscall) };
        let own = step(thread.key, "blocked", &format!("short waits in {name}"));
        let storage =
            matches!(class, Some(Sleep::Block | Sleep::Write | Sleep::Fuse | Sleep::RemoteFs | Sleep::Timer));
        if let Some(giver) = short.waker.filter(|&w| !storage && self.context.recorded(w).is_some()) {
            let entries = scale(&self.cached(thread, giver, span, place), short.ns);
            let own = Step { waits_for: Some(giver), ..own };
            return entries.into_iter().map(|e| e.behind(own.clone(), (0, 0), None)).collect();
        }
        let culprit = file.and_then(files::directory_of);
        let leaf = |mechanism, culprit| vec![Entry::leaf(short.ns, mechanism, culprit, own.clone())];
        match class {
            Some(Sleep::Block) if short.syscall < 0 => leaf(Mechanism::StorageFault, None),
            Some(Sleep::Block) if call == Call::Metadata => leaf(Mechanism::StorageMetadata, None),
            Some(Sleep::Block) => leaf(Mechanism::StorageRead, culprit),
            Some(Sleep::Write) => leaf(Mechanism::StorageWrite, culprit),
            Some(Sleep::Fuse | Sleep::RemoteFs) => leaf(Mechanism::NetworkFs, culprit),
            Some(Sleep::Timer) => leaf(Mechanism::TimerSleep, None),
            Some(Sleep::SocketRead) => leaf(Mechanism::NetworkRead, None),
            _ => vec![Entry::unexplained(
                short.ns,
                format!("short waits in {name}, ended by nobody on record"),
                own,
            )],
        }
    }
}

/// What running inside a driver call means, where the call itself says it.
pub(super) fn inside_call(thread: &Thread, ns: u64, call: &CudaCall) -> Option<Entry> {
    if calls::synchronises(call) {
        return Some(inside_synchronise(thread, ns, call));
    }
    let long = call.exit.is_some_and(|x| x - call.entry.min(x) >= calls::SLOW_LAUNCH);
    let (mechanism, what) = match call.family {
        CudaFamily::Copy if calls::copies_back(call) => (Mechanism::CopyTransfer, "copies inside"),
        CudaFamily::Copy => (Mechanism::CopyPageable, "copies inside"),
        CudaFamily::Allocate | CudaFamily::Free | CudaFamily::HostAllocate => {
            (Mechanism::DriverAlloc, "inside")
        }
        CudaFamily::Load => (Mechanism::DriverLoad, "inside"),
        CudaFamily::Launch | CudaFamily::GraphLaunch if long => {
            (Mechanism::DriverLoad, "loads or compiles inside")
        }
        _ => return None,
    };
    let own = step(thread.key, "running", &format!("{what} {}", call.name));
    Some(Entry::leaf(ns, mechanism, None, own).with_stacks(0, call.user_stack))
}

pub(super) fn inside_synchronise(thread: &Thread, ns: u64, call: &CudaCall) -> Entry {
    let own = step(thread.key, "waits for the device", &format!("inside {}", call.name));
    let reason = format!("the host waited in {} while the device reads idle", call.name);
    Entry::unexplained(ns, reason, own).with_stacks(0, call.user_stack)
}

pub(super) fn step(thread: ThreadKey, state: &'static str, what: &str) -> Step {
    Step { thread, state, what: Arc::from(what), waits_for: None }
}
