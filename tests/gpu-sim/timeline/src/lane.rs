//! Lanes: a stream's work as intervals, one writer each, readable by all at any time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::interval::{Interval, union};
use crate::layout::{Entry, Shared};
use crate::map::Timeline;
use crate::process::Process;

/// A lane owned by this process. Callers serialise calls of [`Lane::push`]: a lane has one writer.
#[derive(Debug)]
pub struct Lane {
    index: usize,
}

/// End of an interval that nobody knows yet; readers take it to last until now.
pub const OPEN: u64 = u64::MAX;

/// What a piece of work means for the readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel or memset: the device is busy.
    Kernel,
    /// A copy: memory is active, the device is not busy.
    Copy,
}

impl Lane {
    /// Takes a lane of `device` that nobody has, whose work is over by `now`.
    ///
    /// # Errors
    /// All are taken, or the file cannot be locked.
    pub fn take(timeline: &Timeline, process: &Process<'_>, device: u32, now: u64) -> std::io::Result<Self> {
        let index = timeline.exclusively(|shared| {
            let instance = u64::from(process.instance_slot());
            let free = |wanted: u32| {
                shared.lanes.iter().enumerate().position(|(i, lane)| {
                    lane.owner.load(Relaxed) == 0
                        && lane.device.load(Relaxed) == wanted
                        && (wanted == 0 || lane.instance.load(Relaxed) == instance)
                        && last_end(&shared.rings[i].busy, &lane.busy) <= now
                        && last_end(&shared.rings[i].copies, &lane.copies) <= now
                })
            };
            let index = free(device + 1).or_else(|| free(0))?;
            let lane = &shared.lanes[index];
            lane.owner_ticks.store(process.start_ticks, Relaxed);
            lane.owner.store(process.pid, Release);
            lane.instance.store(instance, Release);
            lane.device.store(device + 1, Release);
            Some(index)
        })?;
        index.map(|index| Self { index }).ok_or_else(|| std::io::Error::other("too many streams"))
    }

    /// Appends work; `interval.start` is not before the end of the lane's previous work.
    pub fn push(&self, timeline: &Timeline, work: Work, interval: Interval) {
        let (lane, rings) = (&timeline.shared().lanes[self.index], &timeline.shared().rings[self.index]);
        match work {
            Work::Kernel => append(&rings.busy, &lane.busy, interval),
            Work::Copy => append(&rings.copies, &lane.copies, interval),
        }
    }

    /// Says when the last work, pushed with the end [`OPEN`], ends.
    pub fn close(&self, timeline: &Timeline, end: u64) {
        let (lane, rings) = (&timeline.shared().lanes[self.index], &timeline.shared().rings[self.index]);
        if let Some(last) = lane.busy.load(Relaxed).checked_sub(1) {
            let last = slot(&rings.busy, last);
            last.end.store(end.max(last.start.load(Relaxed)), Release);
        }
    }

    /// Gives the lane back; its history stays.
    pub fn give_back(self, timeline: &Timeline) {
        timeline.shared().lanes[self.index].owner.store(0, Release);
    }
}

/// A device's work of one kind since some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Union over lanes; may reach into the future.
    pub(crate) intervals: Vec<Interval>,
    /// Nothing after this time was overwritten.
    pub(crate) complete_from: u64,
}

impl Timeline {
    /// Everything on `device`, or on one MIG instance of it, that ended after `since`.
    pub(crate) fn history_in(&self, device: u32, instance: Option<u32>, work: Work, since: u64) -> History {
        let shared = self.shared();
        let mut all = Vec::new();
        let mut complete_from = 0;
        for (lane, rings) in shared.lanes.iter().zip(&shared.rings) {
            let elsewhere = instance.is_some_and(|i| lane.instance.load(Acquire) != u64::from(i) + 1);
            if lane.device.load(Acquire) != device + 1 || elsewhere {
                continue;
            }
            let overwritten = match work {
                Work::Kernel => collect(&rings.busy, &lane.busy, since, &mut all),
                Work::Copy => collect(&rings.copies, &lane.copies, since, &mut all),
            };
            complete_from = complete_from.max(overwritten);
        }
        History { intervals: union(all), complete_from }
    }
}

fn append(ring: &[Entry], written: &AtomicU64, interval: Interval) {
    let count = written.load(Relaxed);
    if let Some(last) = count.checked_sub(1) {
        let last = slot(ring, last);
        if interval.start <= last.end.load(Relaxed) {
            last.end.fetch_max(interval.end, Release);
            return;
        }
    }
    let next = slot(ring, count);
    next.start.store(interval.start, Release);
    next.end.store(interval.end, Release);
    written.store(count + 1, Release);
}

/// Newest first, until one ended by `since`. Returns the time before which something may be missing.
fn collect(ring: &[Entry], written: &AtomicU64, since: u64, into: &mut Vec<Interval>) -> u64 {
    let count = written.load(Acquire);
    // The oldest slot may be being overwritten; one that is overwritten later shows in `written`, which the
    // writer raised before it began.
    let kept = (ring.len() as u64 - 1).min(count);
    let mut oldest = 0;
    for index in (count - kept..count).rev() {
        let entry = slot(ring, index);
        let interval = Interval { start: entry.start.load(Acquire), end: entry.end.load(Acquire) };
        if written.load(Acquire) >= index + ring.len() as u64 {
            return oldest;
        }
        if interval.end <= since && interval.end != interval.start {
            return 0;
        }
        oldest = interval.start;
        into.push(interval);
    }
    if kept < count { oldest } else { 0 }
}

fn last_end(ring: &[Entry], written: &AtomicU64) -> u64 {
    written.load(Acquire).checked_sub(1).map_or(0, |last| slot(ring, last).end.load(Acquire))
}

fn slot(ring: &[Entry], index: u64) -> &Entry {
    &ring[(index % ring.len() as u64) as usize]
}

/// Drops the queued work of an owner that is gone and frees its lanes.
pub(crate) fn end_of_owner(shared: &Shared, pid: u32, ticks: u64, now: u64) {
    for (lane, rings) in shared.lanes.iter().zip(&shared.rings) {
        if lane.owner.load(Acquire) == pid && lane.owner_ticks.load(Relaxed) == ticks {
            cut(&rings.busy, &lane.busy, now);
            cut(&rings.copies, &lane.copies, now);
            lane.owner.store(0, Release);
        }
    }
}

fn cut(ring: &[Entry], written: &AtomicU64, now: u64) {
    let count = written.load(Acquire);
    for index in (count.saturating_sub(ring.len() as u64)..count).rev() {
        let entry = slot(ring, index);
        if entry.end.load(Relaxed) <= now {
            return;
        }
        entry.end.store(now.max(entry.start.load(Relaxed)), Release);
    }
}
