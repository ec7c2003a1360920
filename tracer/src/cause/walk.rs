//! The wait chain: shares of a stretch of a thread's time, followed through whoever ended its waits.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::claims;
use super::context::Context;
use super::ends::{inside_call, step};
use super::entry::{Claim, Entry, Step, join, scale, thin};
use super::place::Place;
use super::running::{self, Share};
use super::{calls, schedule, team};
use crate::idle::DeviceIdle;
use crate::timeline::{Activity, Thread, apportion};
use crate::trace::{CudaCall, CudaFamily, Ns, Span, ThreadKey};

/// Links a chain may have.
const DEPTH: usize = 16;
const TOO_BROAD: &str = "the chain branches too often to follow every branch";
/// Profiles kept for reuse.
const KEPT: usize = 4_096;

type CacheKey = (ThreadKey, Span, Vec<ThreadKey>, u32);

/// What a thread spun at a barrier in a stretch on the processor.
struct Spin {
    span: Span,
    share: Share,
    /// Of the call around it, or of the synchronise before it.
    claim: Option<Claim>,
}

/// Follows chains; remembers items, because one item often explains several stretches.
#[derive(Debug)]
pub(crate) struct Walker<'a> {
    pub context: Context<'a>,
    /// Of all gaps that are asked about.
    idle_ns: u64,
    /// In which they lie.
    window: Span,
    cache: RefCell<HashMap<CacheKey, Rc<Vec<Entry>>>>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(context: Context<'a>, idle: &DeviceIdle) -> Self {
        Self { context, idle_ns: idle.idle_ns, window: idle.window, cache: RefCell::default() }
    }

    /// Shares of `span` by what `thread` did in it; they sum to its length. Running from `synchronised` on
    /// is claimed by its claim.
    pub(crate) fn feeder(
        &self,
        thread: ThreadKey,
        span: Span,
        synchronised: Option<(Ns, &Claim)>,
    ) -> Vec<Entry> {
        self.profile(thread, span, Place::first(span.len(), self.idle_ns, synchronised))
    }

    /// The same for sums over many short stretches, with fewer branches followed.
    pub(crate) fn sums(&self, thread: ThreadKey, span: Span) -> Vec<Entry> {
        self.profile(thread, span, Place::narrow(span.len(), self.window))
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
        let (mut blocks, mut spins) = (BTreeMap::new(), Vec::new());
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
                            place.for_part(part.len(), span),
                            (&mut entries, &mut spins),
                        );
                    }
                }
            }
        }
        entries.extend(self.all_blocked(thread, blocks.into_values(), span, place));
        entries.extend(self.all_spun(thread, spins, span, place));
        let missing = span.len() - covered.min(span.len());
        if missing > 0 {
            entries.extend(self.outside(thread, span, missing, place));
        }
        join(entries)
    }

    fn slice(
        &self,
        thread: &Thread,
        activity: Activity,
        part: Span,
        call: Option<&CudaCall>,
        place: Place<'_>,
        (entries, spins): (&mut Vec<Entry>, &mut Vec<Spin>),
    ) {
        match activity {
            Activity::Running => entries.extend(self.running(thread, part, call, place, spins)),
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

    fn running(
        &self,
        thread: &Thread,
        span: Span,
        call: Option<&CudaCall>,
        place: Place<'_>,
        spins: &mut Vec<Spin>,
    ) -> Vec<Entry> {
        let seen = spins.len();
        let mut shorts = thread.shorts(span);
        schedule::wake_ups(&self.context, thread, &mut shorts, span);
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
            entries.extend(self.short(thread, short, span, place.for_part(short.ns, span)));
        }
        let ns = span.len() - shorts.ns().min(span.len());
        match place.synchronised.filter(|_| call.is_none()) {
            Some((from, claim)) if from < span.end => {
                let after = span.end - from.max(span.start);
                let parts = apportion(ns, &[span.len() - after, after]);
                let early =
                    self.work(thread, Span::new(span.start, span.end - after), parts[0], call, place, spins);
                let late =
                    self.work(thread, Span::new(span.end - after, span.end), parts[1], call, place, spins);
                entries.extend(early);
                entries.extend(late.into_iter().map(|e| e.claimed(Some(claim))));
                for spin in spins.iter_mut().skip(seen).filter(|s| s.span.start >= span.end - after) {
                    spin.claim = Some(claim.clone());
                }
            }
            _ => entries.extend(self.work(thread, span, ns, call, place, spins)),
        }
        let claim = call.and_then(|c| {
            claims::of_call(&self.context, c).or_else(|| claims::of_launch(&self.context, thread, c))
        });
        if claim.is_some() {
            spins.iter_mut().skip(seen).for_each(|spin| spin.claim.clone_from(&claim));
        }
        entries.into_iter().map(|e| e.claimed(claim.as_ref())).collect()
    }

    /// `ns` of time on the processor within `span`, what it spun there left to `spins`.
    fn work(
        &self,
        thread: &Thread,
        span: Span,
        ns: u64,
        call: Option<&CudaCall>,
        place: Place<'_>,
        spins: &mut Vec<Spin>,
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
            } else if self.context.timeline.host.sample_period_ns == 0 {
                "running, and the recording holds no samples that show what"
            } else {
                "running, and no sample within a second shows what"
            };
            return vec![Entry::unexplained(ns, reason, own)];
        }
        let (spun, worked): (Vec<Share>, Vec<Share>) = shares.into_iter().partition(|s| s.work.spins);
        if !place.waited_for {
            spins.extend(spun.into_iter().map(|share| Spin { span, share, claim: None }));
        }
        worked.into_iter().map(|share| share.entry(&self.context, thread)).collect()
    }

    /// Spins lead to the member that came last, each to its own: of many the longest stand for the rest.
    fn all_spun(&self, thread: &Thread, mut spins: Vec<Spin>, span: Span, place: Place<'_>) -> Vec<Entry> {
        let sum = |spins: &[Spin]| spins.iter().map(|s| s.share.ns).sum::<u64>();
        let ns = sum(&spins);
        if place.breadth == 0 && ns > 0 {
            let own = step(thread.key, "spinning", "spins at a barrier of its team");
            return vec![Entry::unexplained(ns, TOO_BROAD, own)];
        }
        let (place, most) = place.for_group(ns, span, 0);
        spins.sort_by_key(|s| (Reverse(s.share.ns), s.span.start));
        spins.truncate(most);
        let kept = Span::new(0, sum(&spins));
        let part = |s: &Spin| {
            let entries = self.spun(thread, s.span, &s.share, place.for_part(s.share.ns, kept));
            entries.into_iter().map(|e| e.claimed(s.claim.as_ref())).collect::<Vec<_>>()
        };
        scale(&join(spins.iter().flat_map(part)), ns)
    }

    /// Spinning at a barrier of a team: the chain goes on in the member that came last.
    fn spun(&self, thread: &Thread, span: Span, share: &Share, place: Place<'_>) -> Vec<Entry> {
        let own = step(thread.key, "spinning", "spins at a barrier of its team");
        let mut path = place.path.to_vec();
        path.push(thread.key);
        let late = team::last_to_come(&self.context, thread, span);
        let entries = late.map_or_else(Vec::new, |late| self.profile(late, span, place.of_team(&path)));
        if entries.is_empty() {
            let reason = "spins at a barrier, and no other thread of its team was seen to work";
            return vec![
                Entry::unexplained(share.ns, reason, own).with_stacks(share.stacks.0, share.stacks.1),
            ];
        }
        let entries = scale(&entries, share.ns);
        let own = Step { waits_for: late, ..own };
        entries.into_iter().map(|e| e.behind(own.clone(), share.stacks, None)).collect()
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

    pub(super) fn cached(
        &self,
        thread: &Thread,
        giver: ThreadKey,
        span: Span,
        place: Place<'_>,
    ) -> Rc<Vec<Entry>> {
        let mut path = place.path.to_vec();
        path.push(thread.key);
        // What was found with little breadth is not what much of it would find.
        let key = (giver, span, path, place.breadth.leading_zeros());
        if let Some(entries) = self.cache.borrow().get(&key) {
            return Rc::clone(entries);
        }
        let entries = Rc::new(thin(self.go_on(thread, giver, span, place), place.path.len()));
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
            return end(TOO_BROAD);
        }
        let mut path = place.path.to_vec();
        path.push(thread.key);
        self.profile(
            giver,
            span,
            Place { path: &path, breadth: place.breadth - 1, synchronised: None, waited_for: false },
        )
    }
}
