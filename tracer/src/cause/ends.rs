//! Where a walk ends without following anybody: totals of short waits, and time inside driver calls.

use std::sync::Arc;

use super::calls::Queued;
use super::classify;
use super::context::Context;
use super::entry::{Entry, Step, scale};
use super::files;
use super::kernel_stacks::Sleep;
use super::syscalls::Call;
use super::walk::{Place, Walker};
use super::{Mechanism, calls, syscalls};
use crate::timeline::{ShortWait, Thread};
use crate::trace::{CopyDirection, CudaCall, CudaFamily, Ns, Span, ThreadKey};

/// The state of a thread in a call that waits for the device: no cause of its own.
pub(super) const WAITS_FOR_DEVICE: &str = "waits for the device";

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
pub(super) fn inside_call(
    context: &Context<'_>,
    thread: &Thread,
    idle_to: Option<Ns>,
    ns: u64,
    call: &CudaCall,
) -> Option<Entry> {
    if calls::synchronises(call) {
        return Some(inside_synchronise(context, thread, idle_to, ns, call));
    }
    let (mechanism, what) = match call.family {
        CudaFamily::Copy => return Some(inside_copy(thread, "running", ns, call)),
        CudaFamily::Allocate | CudaFamily::Free | CudaFamily::HostAllocate => {
            (Mechanism::DriverAlloc, "inside")
        }
        CudaFamily::Load => (Mechanism::DriverLoad, "inside"),
        _ if calls::loads(context, thread, call) => (Mechanism::DriverLoad, "loads or compiles inside"),
        _ if calls::is_long_launch(thread, call) => {
            let own = step(thread.key, "running", &format!("inside {}", call.name));
            let reason = "inside a long launch of a function that had been launched before";
            return Some(Entry::unexplained(ns, reason, own).with_stacks(0, call.user_stack));
        }
        _ => return None,
    };
    let own = step(thread.key, "running", &format!("{what} {}", call.name));
    Some(Entry::leaf(ns, mechanism, None, own).with_stacks(0, call.user_stack))
}

/// A copy that the thread itself sees through. Only memory seen to be pinned is taken not to be pageable.
pub(super) fn inside_copy(thread: &Thread, state: &'static str, ns: u64, call: &CudaCall) -> Entry {
    let on_device = matches!(call.direction, Some(CopyDirection::DeviceToDevice | CopyDirection::Peer))
        || call.name.contains("DtoD")
        || call.name.contains("Peer");
    let pageable = !calls::copies_back(call) && !on_device && call.pinned != Some(true);
    let what = match call.pinned {
        None if pageable => format!("copies inside {}, from memory not seen to be pinned", call.name),
        _ => format!("copies inside {}", call.name),
    };
    let mechanism = if pageable { Mechanism::CopyPageable } else { Mechanism::CopyTransfer };
    Entry::leaf(ns, mechanism, None, step(thread.key, state, &what)).with_stacks(0, call.user_stack)
}

/// Time in a call that waits for the device. `idle_to`: it is idle time of this device, up to then; else the
/// time of some item, in which the device may have worked, and no cause.
pub(super) fn inside_synchronise(
    context: &Context<'_>,
    thread: &Thread,
    idle_to: Option<Ns>,
    ns: u64,
    call: &CudaCall,
) -> Entry {
    let own = step(thread.key, WAITS_FOR_DEVICE, &format!("inside {}", call.name));
    let entry = match idle_to.map(|end| device_idle(context, thread, end, call)) {
        Some(Ok(mechanism)) => Entry::leaf(ns, mechanism, None, own),
        Some(Err(reason)) => Entry::unexplained(ns, reason, own),
        None => {
            let device = context.fed_by(thread.key).map_or("its device".to_owned(), |d| format!("GPU {d}"));
            Entry::unexplained(ns, format!("it waited for {device} itself, in {}", call.name), own)
        }
    };
    entry.with_stacks(0, call.user_stack)
}

/// Why the device is idle up to `end` while a call waits for it: it is the call's own copy, or the device has
/// yet to begin what is queued.
fn device_idle(
    context: &Context<'_>,
    thread: &Thread,
    end: Ns,
    call: &CudaCall,
) -> Result<Mechanism, String> {
    let copy = call.family == CudaFamily::Copy;
    // At its end whatever was queued before a copy is done.
    if copy && call.returned().is_some_and(|exit| end >= exit) {
        return Ok(Mechanism::CopyTransfer);
    }
    match calls::queued(context, thread, call) {
        Queued::Nothing | Queued::Copies if copy => Ok(Mechanism::CopyTransfer),
        Queued::Copies => Ok(Mechanism::CopyTransfer),
        Queued::Kernels if !copy => Ok(Mechanism::DeviceGap),
        Queued::Nothing => Err(format!("the host waited in {} while the device reads idle", call.name)),
        Queued::Kernels | Queued::Both => Err(format!(
            "the host waited in {} for kernels and copies; which of them the device had yet to begin is not known",
            call.name
        )),
    }
}

pub(super) fn step(thread: ThreadKey, state: &'static str, what: &str) -> Step {
    Step { thread, state, what: Arc::from(what), waits_for: None }
}
