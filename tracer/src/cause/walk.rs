//! The wait chain: shares of a stretch of a thread's time, followed through whoever ended its waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::claims;
use super::classify::{self, classify};
use super::context::Context;
use super::entry::{Claim, Entry, Step, join, scale};
use super::item::item;
use super::kernel_stacks::Sleep;
use super::waits::{self, Next};
use super::{Mechanism, calls, running, schedule, syscalls};
use crate::timeline::{Activity, ShortWait, Slice, Thread, apportion};
use crate::trace::{CudaCall, CudaFamily, Ns, Span, ThreadKey};

/// Links a chain may have.
const DEPTH: usize = 16;
/// Waits that one walk may follow in all, divided over its branches by their length.
const BREADTH: u64 = 65_536;
/// Profiles kept for reuse.
const KEPT: usize = 4_096;

type CacheKey = (ThreadKey, Span, Vec<ThreadKey>);

/// Follows chains; remembers items, because one item often explains several stretches.
#[derive(Debug)]
pub(crate) struct Walker<'a> {
    pub context: Context<'a>,
    cache: RefCell<HashMap<CacheKey, Rc<Vec<Entry>>>>,
}

/// Where a walk stands.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// Threads from the device's side up to, not including, the one looked at.
    path: &'p [ThreadKey],
    breadth: u64,
    /// From when on the feeder's own running is a synchronise's fault.
    synchronised: Option<(Ns, &'p Claim)>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(context: Context<'a>) -> Self {
        Self { context, cache: RefCell::default() }
    }

    /// Shares of `span` by what `thread` did in it; they sum to its length. Running from `synchronised` on
    /// is claimed by its claim.
    pub(crate) fn feeder(
        &self,
        thread: ThreadKey,
        span: Span,
        synchronised: Option<(Ns, &Claim)>,
    ) -> Vec<Entry> {
        self.profile(thread, span, Place { path: &[], breadth: BREADTH, synchronised })
    }

    /// Shares of one blocked stretch alone.
    pub(crate) fn blocked_alone(&self, thread: &Thread, index: usize, span: Span) -> Vec<Entry> {
        self.blocked(thread, index, span, None, Place { path: &[], breadth: BREADTH, synchronised: None })
    }

    fn profile(&self, key: ThreadKey, span: Span, place: Place<'_>) -> Vec<Entry> {
        if span.is_empty() {
            return Vec::new();
        }
        let Some(thread) = self.context.recorded(key) else {
            return vec![Entry::unexplained(
                span.len(),
                "no records of this thread",
                step(key, "unseen", "no records"),
            )];
        };
        let mut entries = Vec::new();
        let mut covered = 0;
        for slice in thread.slices_in(span) {
            covered += slice.span.len();
            self.slice(thread, slice, Place { breadth: place.breadth, ..place }, span.len(), &mut entries);
        }
        let missing = span.len() - covered.min(span.len());
        if missing > 0 {
            entries.extend(self.outside(thread, span, missing, place));
        }
        join(entries)
    }

    fn slice(&self, thread: &Thread, slice: Slice, place: Place<'_>, whole: u64, entries: &mut Vec<Entry>) {
        for (part, call) in calls::cut(thread, slice.span) {
            match slice.activity {
                Activity::Running => entries.extend(self.running(thread, part, call, place, whole)),
                Activity::Runnable(i) => entries.push(self.runnable(thread, Some(i), part, part.len(), call)),
                Activity::Blocked(i) => {
                    let share = u128::from(place.breadth) * u128::from(part.len()) / u128::from(whole.max(1));
                    let breadth = u64::try_from(share).unwrap_or(0);
                    entries.extend(self.blocked(thread, i, part, call, Place { breadth, ..place }));
                }
                Activity::Unseen => entries.push(Entry::unexplained(
                    part.len(),
                    "records of this thread were lost, or it was not yet watched",
                    step(thread.key, "unseen", "no records"),
                )),
            }
        }
    }

    /// The part of `span` outside the thread's life: before its birth its creator goes on.
    fn outside(&self, thread: &Thread, span: Span, missing: u64, place: Place<'_>) -> Vec<Entry> {
        let before = thread.born.and_then(|b| span.intersect(Span::new(0, b)));
        let own = step(thread.key, "creator", "not yet started");
        let reason = "outside the thread's recorded life";
        let Some(before) = before else { return vec![Entry::unexplained(missing, reason, own)] };
        let mut entries = match thread.creator.filter(|&c| self.context.recorded(c).is_some()) {
            None => {
                vec![Entry::unexplained(before.len(), "before its birth, and its creator is not known", own)]
            }
            Some(creator) => self
                .go_on(thread, creator, before, place)
                .into_iter()
                .map(|e| {
                    let own = Step { waits_for: Some(creator), ..own.clone() };
                    e.behind(own, (0, 0), None)
                })
                .collect(),
        };
        if let Some(after) = missing.checked_sub(before.len()).filter(|&n| n > 0) {
            entries.push(Entry::unexplained(after, reason, step(thread.key, "unseen", "no records")));
        }
        entries
    }

    fn running(
        &self,
        thread: &Thread,
        span: Span,
        call: Option<&CudaCall>,
        place: Place<'_>,
        whole: u64,
    ) -> Vec<Entry> {
        let shorts = thread.shorts(span);
        let mut entries = Vec::new();
        if shorts.runnable_ns > shorts.throttled_ns {
            let ns = shorts.runnable_ns - shorts.throttled_ns;
            entries.push(self.runnable(thread, None, span, ns, call));
        }
        if shorts.throttled_ns > 0 {
            let (mechanism, culprit) = schedule::throttled(&self.context, thread);
            let own = step(thread.key, "runnable", "waits for a processor");
            entries.push(Entry::leaf(shorts.throttled_ns, mechanism, culprit, own));
        }
        let share = u128::from(place.breadth) * u128::from(span.len()) / u128::from(whole.max(1));
        let breadth = u64::try_from(share).unwrap_or(0);
        for short in &shorts.blocked {
            entries.extend(self.short(thread, short, span, Place { breadth, ..place }));
        }
        let ns = span.len() - shorts.ns().min(span.len());
        match place.synchronised.filter(|_| call.is_none()) {
            Some((from, claim)) if from < span.end => {
                let after = span.end - from.max(span.start);
                let parts = apportion(ns, &[span.len() - after, after]);
                let early = self.work(thread, Span::new(span.start, span.end - after), parts[0], call);
                let late = self.work(thread, Span::new(span.end - after, span.end), parts[1], call);
                entries.extend(early);
                entries.extend(late.into_iter().map(|e| e.claimed(Some(claim))));
            }
            _ => entries.extend(self.work(thread, span, ns, call)),
        }
        let claim = call.and_then(|c| claims::of_call(&self.context, c));
        entries.into_iter().map(|e| e.claimed(claim.as_ref())).collect()
    }

    /// `ns` of time on the processor within `span`.
    fn work(&self, thread: &Thread, span: Span, ns: u64, call: Option<&CudaCall>) -> Vec<Entry> {
        if ns == 0 {
            return Vec::new();
        }
        if let Some(call) =
            call.filter(|c| !matches!(c.family, CudaFamily::EventQuery | CudaFamily::SetContext))
            && let Some(entry) = inside_call(thread, ns, call)
        {
            return vec![entry];
        }
        let shares = running::shares(&self.context, thread, span, ns);
        if shares.is_empty() {
            let own = step(thread.key, "running", "on the processor");
            let claims = call.is_some_and(|c| claims::of_call(&self.context, c).is_some());
            let reason = if claims {
                "inside a driver call"
            } else {
                "running, and no sample within a second shows what"
            };
            return vec![Entry::unexplained(ns, reason, own)];
        }
        shares
            .into_iter()
            .map(|share| {
                let what =
                    share.work.culprit.as_ref().map_or_else(|| "runs".into(), |c| format!("runs {}", c.name));
                let own = step(thread.key, "running", &what);
                let mut entry = Entry::leaf(share.ns, share.work.mechanism, share.work.culprit, own)
                    .with_stacks(share.stacks.0, share.stacks.1);
                entry.importing = share.work.importing;
                entry
            })
            .collect()
    }

    fn runnable(
        &self,
        thread: &Thread,
        index: Option<usize>,
        span: Span,
        ns: u64,
        call: Option<&CudaCall>,
    ) -> Entry {
        let off = index.and_then(|i| thread.off_cpu.get(i));
        let own = step(thread.key, "runnable", "waits for a processor");
        let entry = match schedule::why(&self.context, thread, off, span) {
            Ok((mechanism, culprit)) => Entry::leaf(ns, mechanism, culprit, own),
            Err(reason) => Entry::unexplained(ns, reason, own),
        };
        let claim = call.and_then(|c| claims::of_call(&self.context, c));
        off.map_or(entry.clone(), |o| entry.with_stacks(o.kernel_stack, o.user_stack)).claimed(claim.as_ref())
    }

    fn blocked(
        &self,
        thread: &Thread,
        i: usize,
        span: Span,
        call: Option<&CudaCall>,
        place: Place<'_>,
    ) -> Vec<Entry> {
        let last = waits::last_piece(thread, i);
        let (Some(off), Some(end)) = (thread.off_cpu.get(i), thread.off_cpu.get(last)) else {
            return vec![Entry::unexplained(
                span.len(),
                "no record of this wait",
                step(thread.key, "blocked", "waits"),
            )];
        };
        let class = classify(&self.context, off);
        let what = waits::describe(&self.context, off, class);
        let own = step(thread.key, "blocked", &what);
        let stacks = (off.kernel_stack, off.user_stack);
        if let Some(call) = call.filter(|c| calls::synchronises(c)) {
            return vec![inside_synchronise(thread, span.len(), call).with_stacks(stacks.0, stacks.1)];
        }
        let claim = claims::of_wait(&self.context, thread, off, end, class, call);
        let leaf = |mut entry: Entry| {
            entry.shown.file = off.file;
            vec![entry.with_stacks(stacks.0, stacks.1).claimed(claim.as_ref())]
        };
        match waits::next(&self.context, off, end, class) {
            Next::Leaf(mechanism, culprit) => leaf(Entry::leaf(span.len(), mechanism, culprit, own)),
            Next::Unexplained(reason) => {
                match claim.as_ref().filter(|c| c.mechanism.stage() == super::Stage::Driver) {
                    // Inside the driver the wait itself is as far as a chain can see.
                    Some(claim) => leaf(Entry::leaf(span.len(), claim.mechanism, None, own)),
                    None => leaf(Entry::unexplained(span.len(), reason, own)),
                }
            }
            Next::Follow(giver) => {
                let child = claims::of_child(&self.context, thread, giver, end.woken.unwrap_or(end.ran));
                let entries = self.delivered(thread, giver, last, span, place);
                let own = Step { waits_for: Some(giver), ..own };
                entries
                    .into_iter()
                    .map(|e| e.claimed(child.as_ref()).behind(own.clone(), stacks, claim.as_ref()))
                    .collect()
            }
        }
    }

    /// `span` of a wait of `thread` that `giver` ended, spread over the giver's whole item.
    fn delivered(
        &self,
        thread: &Thread,
        giver: ThreadKey,
        last: usize,
        span: Span,
        place: Place<'_>,
    ) -> Vec<Entry> {
        let Some(by) = self.context.recorded(giver) else { return Vec::new() };
        let mut nearer = place.path.to_vec();
        nearer.push(thread.key);
        let item = item(&self.context, by, thread, last, span.start, &nearer);
        let entries = self.cached(thread, giver, item.span, place);
        scale(&entries, span.len())
    }

    fn cached(&self, thread: &Thread, giver: ThreadKey, span: Span, place: Place<'_>) -> Rc<Vec<Entry>> {
        let mut path = place.path.to_vec();
        path.push(thread.key);
        let key = (giver, span, path);
        if let Some(entries) = self.cache.borrow().get(&key) {
            return Rc::clone(entries);
        }
        let entries = Rc::new(self.go_on(thread, giver, span, place));
        let mut cache = self.cache.borrow_mut();
        if cache.len() >= KEPT {
            cache.clear();
        }
        cache.insert(key, Rc::clone(&entries));
        entries
    }

    /// The next link, unless the chain must end here.
    fn go_on(&self, thread: &Thread, giver: ThreadKey, span: Span, place: Place<'_>) -> Vec<Entry> {
        let end = |reason: &str| {
            vec![Entry::unexplained(span.len(), reason, step(giver, "unseen", "not followed"))]
        };
        if giver == thread.key || place.path.contains(&giver) {
            return end("the chain comes back to a thread it has passed");
        }
        if place.path.len() + 1 >= DEPTH {
            return end("the chain is longer than 16 links");
        }
        if place.breadth == 0 {
            return end("the chain branches too often to follow every branch");
        }
        let mut path = place.path.to_vec();
        path.push(thread.key);
        self.profile(giver, span, Place { path: &path, breadth: place.breadth - 1, synchronised: None })
    }

    /// Short waits of a stretch, known as totals only.
    fn short(&self, thread: &Thread, short: &ShortWait, span: Span, place: Place<'_>) -> Vec<Entry> {
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
        let culprit = file.and_then(super::files::directory_of);
        let leaf = |mechanism, culprit| vec![Entry::leaf(short.ns, mechanism, culprit, own.clone())];
        match class {
            Some(Sleep::Block) if short.syscall < 0 => leaf(Mechanism::StorageFault, None),
            Some(Sleep::Block) if call == syscalls::Call::Metadata => leaf(Mechanism::StorageMetadata, None),
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
fn inside_call(thread: &Thread, ns: u64, call: &CudaCall) -> Option<Entry> {
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

fn inside_synchronise(thread: &Thread, ns: u64, call: &CudaCall) -> Entry {
    let own = step(thread.key, "waits for the device", &format!("inside {}", call.name));
    let reason = format!("the host waited in {} while the device reads idle", call.name);
    Entry::unexplained(ns, reason, own).with_stacks(0, call.user_stack)
}

fn step(thread: ThreadKey, state: &'static str, what: &str) -> Step {
    Step { thread, state, what: Arc::from(what), waits_for: None }
}
