//! Where a walk ends without following anybody: totals of short waits, and time inside driver calls.

use std::sync::Arc;

use super::calls::Queued;
use super::classify;
use super::context::Context;
use super::entry::{Claim, Entry, Step, Unless, scale};
use super::files;
use super::kernel_stacks::Sleep;
use super::place::Place;
use super::syscalls::Call;
use super::walk::Walker;
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
        let fault = short.syscall < 0 && !classify::without_calls(thread);
        let class = if short.syscall < 0 { Some(Sleep::Block) } else { classify::of_call(call, file) };
        let name = if short.syscall < 0 { "page fault".into() } else { syscalls::name(short.syscall) };
        let own = step(thread.key, "blocked", &format!("short waits in {name}"));
        let waker = short.waker.and_then(|w| self.context.thread(w));
        let culprit = file.and_then(files::directory_of);
        // Of a short wait neither file nor stack is known, and the waker may be whom an interrupt came over. Whoever
        // serves file systems does not merely happen to be there.
        let served = matches!(class, Some(Sleep::Block | Sleep::Fuse))
            && waker.is_some_and(|w| w.pid != thread.pid && self.context.serves_files(w.pid));
        let class = if served { Some(Sleep::Fuse) } else { class };
        let storage =
            matches!(class, Some(Sleep::Block | Sleep::Write | Sleep::RemoteFs | Sleep::Timer)) && !served;
        if let Some(giver) = short.waker.filter(|&w| !storage && self.context.recorded(w).is_some()) {
            let entries = scale(&self.cached(thread, giver, span, place), short.ns);
            let own = Step { waits_for: Some(giver), ..own };
            let claim = served.then(|| Claim {
                mechanism: Mechanism::NetworkFs,
                culprit: culprit.clone(),
                unless: Unless::Storage,
            });
            return entries.into_iter().map(|e| e.behind(own.clone(), (0, 0), claim.as_ref())).collect();
        }
        let leaf = |mechanism, culprit| vec![Entry::leaf(short.ns, mechanism, culprit, own.clone())];
        match class {
            Some(Sleep::Block) if fault => {
                let find = || faults_for(&self.context, thread);
                leaf(self.context.faults(thread.key, find), None)
            }
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

/// What a thread's faults wait for when they are too short for records: what its longer ones do, and its samples.
fn faults_for(context: &Context<'_>, thread: &Thread) -> Mechanism {
    let (mut swap, mut file, mut lock) = (0_u64, 0_u64, 0_u64);
    for off in thread.off_cpu.iter().filter(|o| o.syscall.is_none()) {
        match classify::classify(context, off) {
            Some(Sleep::Swap) => swap = swap.saturating_add(off.ran.saturating_sub(off.left)),
            Some(Sleep::Block) => file = file.saturating_add(off.ran.saturating_sub(off.left)),
            Some(Sleep::KernelLock) => lock = lock.saturating_add(off.ran.saturating_sub(off.left)),
            _ => {}
        }
    }
    for sample in &thread.samples {
        let label = context.label_of(sample.kernel_stack, sample.user_stack);
        let ns = context.timeline.host.sample_period_ns.saturating_mul(sample.periods.max(1).into());
        match label.and_then(|l| context.label(l)).map(|work| work.mechanism) {
            Some(Mechanism::MemorySwap) => swap = swap.saturating_add(ns),
            Some(Mechanism::StorageFault) => file = file.saturating_add(ns),
            _ => {}
        }
    }
    let (_, _, most) = [
        (file, 2, Mechanism::StorageFault),
        (swap, 1, Mechanism::MemorySwap),
        (lock, 0, Mechanism::LockKernel),
    ]
    .into_iter()
    .max()
    .unwrap_or((0, 2, Mechanism::StorageFault));
    most
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
    let entry = match idle_to.map(|end| device_idle(context, thread, end, ns, call)) {
        Some(Ok(mechanism)) => Entry::leaf(ns, mechanism, None, own),
        Some(Err(reason)) => Entry::unexplained(ns, reason, own),
        None => {
            let device = context.fed_by(thread.key).map_or("its device".to_owned(), |d| format!("GPU {d}"));
            Entry::unexplained(ns, format!("it waited for {device} itself, in {}", call.name), own)
        }
    };
    entry.with_stacks(0, call.user_stack)
}

/// The slowest link that copies go over, a single lane of the first generation of PCIe: what takes longer was no copy.
const MOST_NS_PER_BYTE: u64 = 4;

/// Why the device is idle for `ns` up to `end` while a call waits for it: it is the call's own copy, or the device has
/// yet to begin what is queued.
fn device_idle(
    context: &Context<'_>,
    thread: &Thread,
    end: Ns,
    ns: u64,
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
        // Kernels run once they can, so what they wait for is the copies, if those can take so long.
        Queued::Both(bytes) if ns <= bytes.saturating_mul(MOST_NS_PER_BYTE) => Ok(Mechanism::CopyTransfer),
        Queued::Kernels if !copy => Ok(Mechanism::DeviceGap),
        Queued::Nothing => Err(format!("the host waited in {} while the device reads idle", call.name)),
        Queued::Kernels | Queued::Both(_) => Err(format!(
            "the host waited in {} for kernels and copies; which of them the device had yet to begin is not known",
            call.name
        )),
    }
}

pub(super) fn step(thread: ThreadKey, state: &'static str, what: &str) -> Step {
    Step { thread, state, what: Arc::from(what), waits_for: None }
}
