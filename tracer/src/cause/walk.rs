//! The wait chain: shares of a stretch of a thread's time, followed through whoever ended its waits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::claims;
use super::classify::classify;
use super::context::Context;
use super::ends::{inside_call, inside_copy, inside_synchronise, step};
use super::entry::{Claim, Entry, Step, join, scale};
use super::item::item;
use super::kernel_stacks::Sleep;
use super::waits::{self, Next};
use super::{Stage, calls, running, schedule};
use crate::timeline::{Activity, Thread, apportion};
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
pub(super) struct Place<'p> {
    /// Threads from the device's side up to, not including, the one looked at.
    path: &'p [ThreadKey],
    breadth: u64,
    /// From when on the feeder's own running is a synchronise's fault.
    synchronised: Option<(Ns, &'p Claim)>,
}

/// A merged wait's last piece, its class, and the entry of the driver call around it.
type BlockKey = (usize, Option<Sleep>, Option<Ns>);

/// The blocked time of one merged wait within a stretch.
struct Block<'t> {
    /// Its first piece there.
    index: usize,
    class: Option<Sleep>,
    call: Option<&'t CudaCall>,
    start: Ns,
    end: Ns,
    ns: u64,
}

impl Place<'_> {
    /// Only the feeder's own time in a gap is sure to be idle time of the device.
    fn idle_to(&self, end: Ns) -> Option<Ns> {
        self.path.is_empty().then_some(end)
    }

    fn within(self, part: Span, whole: Span) -> Self {
        Self { breadth: share(self.breadth, part.len(), whole.len()), ..self }
    }
}

fn share(breadth: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(breadth) * u128::from(part) / u128::from(whole.max(1))).unwrap_or(0)
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
        let mut blocks = BTreeMap::new();
        let mut covered = 0;
        for slice in thread.slices_in(span) {
            covered += slice.span.len();
            for (part, call) in calls::cut(thread, slice.span) {
                match slice.activity {
                    Activity::Blocked(i) => self.note_block(thread, i, part, call, &mut blocks),
                    _ => {
                        self.slice(
                            thread,
                            slice.activity,
                            part,
                            call,
                            place.within(part, span),
                            &mut entries,
                        );
                    }
                }
            }
        }
        for block in blocks.into_values() {
            let breadth = share(place.breadth, block.ns, span.len());
            entries.extend(self.blocked(thread, &block, Place { breadth, ..place }));
        }
        let missing = span.len() - covered.min(span.len());
        if missing > 0 {
            entries.extend(self.outside(thread, span, missing, place));
        }
        join(entries)
    }

    /// Pieces of one merged wait are spread as one, so that re-arming it costs no rounding.
    fn note_block<'t>(
        &self,
        thread: &'t Thread,
        index: usize,
        part: Span,
        call: Option<&'t CudaCall>,
        blocks: &mut BTreeMap<BlockKey, Block<'t>>,
    ) {
        let class = thread.off_cpu.get(index).and_then(|off| classify(&self.context, off));
        let key = (waits::last_piece(thread, index), class, call.map(|c| c.entry));
        let new = Block { index, class, call, start: part.start, end: part.end, ns: 0 };
        let block = blocks.entry(key).or_insert(new);
        block.end = part.end;
        block.ns += part.len();
    }

    fn slice(
        &self,
        thread: &Thread,
        activity: Activity,
        part: Span,
        call: Option<&CudaCall>,
        place: Place<'_>,
        entries: &mut Vec<Entry>,
    ) {
        match activity {
            Activity::Running => entries.extend(self.running(thread, part, call, place)),
            Activity::Runnable(i) => entries.push(self.runnable(thread, Some(i), part, part.len(), call)),
            Activity::Blocked(_) => {}
            Activity::Unseen => entries.push(Entry::unexplained(
                part.len(),
                "records of this thread were lost, or it was not yet watched",
                step(thread.key, "unseen", "no records"),
            )),
        }
    }

    /// The part of `span` outside the thread's life: before its birth its creator goes on.
    fn outside(&self, thread: &Thread, span: Span, missing: u64, place: Place<'_>) -> Vec<Entry> {
        let unborn = |born: Ns| Span::new(0, born.min(span.start.saturating_add(missing)));
        let before = thread.born.and_then(|born| span.intersect(unborn(born)));
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

    fn running(&self, thread: &Thread, span: Span, call: Option<&CudaCall>, place: Place<'_>) -> Vec<Entry> {
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
        for short in &shorts.blocked {
            entries.extend(self.short(thread, short, span, place));
        }
        let ns = span.len() - shorts.ns().min(span.len());
        match place.synchronised.filter(|_| call.is_none()) {
            Some((from, claim)) if from < span.end => {
                let after = span.end - from.max(span.start);
                let parts = apportion(ns, &[span.len() - after, after]);
                let early = self.work(thread, Span::new(span.start, span.end - after), parts[0], call, place);
                let late = self.work(thread, Span::new(span.end - after, span.end), parts[1], call, place);
                entries.extend(early);
                entries.extend(late.into_iter().map(|e| e.claimed(Some(claim))));
            }
            _ => entries.extend(self.work(thread, span, ns, call, place)),
        }
        let claim = call.and_then(|c| {
            claims::of_call(&self.context, c).or_else(|| claims::of_launch(&self.context, thread, c))
        });
        entries.into_iter().map(|e| e.claimed(claim.as_ref())).collect()
    }

    /// `ns` of time on the processor within `span`.
    fn work(
        &self,
        thread: &Thread,
        span: Span,
        ns: u64,
        call: Option<&CudaCall>,
        place: Place<'_>,
    ) -> Vec<Entry> {
        if ns == 0 {
            return Vec::new();
        }
        if let Some(call) =
            call.filter(|c| !matches!(c.family, CudaFamily::EventQuery | CudaFamily::SetContext))
            && let Some(entry) = inside_call(&self.context, thread, place.idle_to(span.end), ns, call)
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
                let what = share
                    .work
                    .culprit
                    .as_ref()
                    .map_or_else(|| "runs code without a name".into(), |c| format!("runs {}", c.name));
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

    fn blocked(&self, thread: &Thread, block: &Block<'_>, place: Place<'_>) -> Vec<Entry> {
        let (ns, class) = (block.ns, block.class);
        let last = waits::last_piece(thread, block.index);
        let (Some(off), Some(end)) = (thread.off_cpu.get(block.index), thread.off_cpu.get(last)) else {
            let own = step(thread.key, "blocked", "waits");
            return vec![Entry::unexplained(ns, "no record of this wait", own)];
        };
        let what = waits::describe(&self.context, off, class);
        let own = step(thread.key, "blocked", &what);
        let stacks = (off.kernel_stack, off.user_stack);
        if let Some(call) = block.call.filter(|c| calls::synchronises(c)) {
            let entry = inside_synchronise(&self.context, thread, place.idle_to(block.end), ns, call);
            return vec![entry.with_stacks(stacks.0, stacks.1)];
        }
        let claim = claims::of_wait(&self.context, thread, off, end, class, block.call);
        let leaf = |mut entry: Entry| {
            entry.shown.file = off.file;
            vec![entry.with_stacks(stacks.0, stacks.1).claimed(claim.as_ref())]
        };
        match waits::next(&self.context, off, end, class) {
            Next::Leaf(mechanism, culprit) => leaf(Entry::leaf(ns, mechanism, culprit, own)),
            Next::Unexplained(reason) => {
                match claim.as_ref().filter(|c| c.mechanism.stage() == Stage::Driver) {
                    // Inside the driver the wait itself is as far as a chain can see.
                    Some(claim) => leaf(Entry::leaf(ns, claim.mechanism, None, own)),
                    None if block.call.is_some_and(|c| c.family == CudaFamily::Copy) => {
                        let copy = block.call.map(|call| inside_copy(thread, "blocked", ns, call));
                        copy.map_or_else(Vec::new, leaf)
                    }
                    None => leaf(Entry::unexplained(ns, reason, own)),
                }
            }
            Next::Follow(giver) => {
                let claim = claim.or_else(|| claims::of_peer(&self.context, giver));
                let child = claims::of_child(&self.context, thread, giver, end.woken.unwrap_or(end.ran));
                let entries = self.delivered(thread, giver, last, block, place);
                let own = Step { waits_for: Some(giver), ..own };
                entries
                    .into_iter()
                    .map(|e| e.claimed(child.as_ref()).behind(own.clone(), stacks, claim.as_ref()))
                    .collect()
            }
        }
    }

    /// A wait of `thread` that `giver` ended, spread over the giver's whole item.
    fn delivered(
        &self,
        thread: &Thread,
        giver: ThreadKey,
        last: usize,
        block: &Block<'_>,
        place: Place<'_>,
    ) -> Vec<Entry> {
        let end =
            |reason: &str| vec![Entry::unexplained(block.ns, reason, step(giver, "unseen", "not followed"))];
        let Some(by) = self.context.recorded(giver) else { return end("no records of this thread") };
        let mut nearer = place.path.to_vec();
        nearer.push(thread.key);
        let item = item(&self.context, by, thread, last, block.start, &nearer);
        if item.beyond {
            return end("beyond look-back: nothing in 60 s says where this thread began what it delivered");
        }
        if item.span.is_empty() {
            return end("a wake-up at the clock's zero");
        }
        let entries = self.cached(thread, giver, item.span, place);
        scale(&entries, block.ns)
    }

    pub(super) fn cached(
        &self,
        thread: &Thread,
        giver: ThreadKey,
        span: Span,
        place: Place<'_>,
    ) -> Rc<Vec<Entry>> {
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
}
