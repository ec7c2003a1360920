//! How work queues up: in order within a stream, streams side by side, the legacy default stream after and
//! before everything of its context except non-blocking streams.
//!
//! Times are settled as work is submitted, but for what stands behind a collective: that ends when the other
//! ranks have come to it, so it and all behind it stay pending until they have.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpu_sim_timeline::{Interval, Key, Lane, Meeting, OPEN, Work, clock};

use crate::abi::{Code, NullStream};
use crate::driver::Driver;
use crate::objects::Objects;
use crate::stream::Stream;
use crate::wait::wait_until;

/// When everything before it is done, once that is known.
pub(crate) type Mark = Arc<OnceLock<u64>>;

/// What is put into a stream.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Work {
        work: Work,
        ns: u64,
    },
    /// What follows begins so much later, and the device has nothing to do meanwhile.
    Stall {
        ns: u64,
    },
    /// A kernel that ends `ns` after the last of `ranks` has begun it.
    Collective {
        key: Key,
        ranks: u32,
        ns: u64,
    },
    Mark(Mark),
    /// What follows waits for the mark.
    After(Mark),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    Stream(usize),
    /// All streams of a context.
    Context(usize),
}

#[derive(Debug)]
pub(crate) struct Pending {
    queue: Queue,
    submitted: u64,
    item: Item,
    /// A collective that has begun, and when.
    begun: Option<(Meeting, u64)>,
}

/// How long a submit that finds only pending work in a full stream leaves it alone.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Appends to a stream. Waits while it is full.
pub(crate) fn submit(stream: usize, null: NullStream, item: Item) -> Result<(), Code> {
    let driver = Driver::get()?;
    loop {
        let mut objects = driver.objects();
        let handle = objects.stream(stream, null)?;
        if let Some(captured) = objects.streams.get_mut(&handle).and_then(|s| s.capture.as_mut()) {
            return captured.push(item);
        }
        let now = clock::now();
        settle(driver, &mut objects)?;
        let room = room(driver, &mut objects, handle, now);
        let flags = objects.current().map_or(0, |(_, context)| context.flags);
        match room {
            Room::Now => return append(driver, &mut objects, Queue::Stream(handle), item, now),
            Room::At(end) => {
                drop(objects);
                wait_until(end, flags);
            }
            Room::Unknown => {
                drop(objects);
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }
}

/// A mark behind everything now in the queue.
pub(crate) fn mark(driver: &'static Driver, objects: &mut Objects, queue: Queue) -> Result<Mark, Code> {
    let mark = Mark::default();
    append(driver, objects, queue, Item::Mark(Arc::clone(&mark)), clock::now())?;
    Ok(mark)
}

enum Room {
    Now,
    At(u64),
    Unknown,
}

fn room(driver: &Driver, objects: &mut Objects, handle: usize, now: u64) -> Room {
    let waiting =
        objects.pending.iter().filter(|p| matches!(p.queue, Queue::Stream(s) if s == handle)).count();
    let Some(stream) = objects.streams.get_mut(&handle) else { return Room::Now };
    while stream.queued.front().is_some_and(|&end| end <= now) {
        stream.queued.pop_front();
    }
    match stream.queued.front() {
        _ if stream.queued.len() + waiting < driver.depth => Room::Now,
        Some(&end) => Room::At(end),
        None => Room::Unknown,
    }
}

fn append(
    driver: &'static Driver,
    objects: &mut Objects,
    queue: Queue,
    item: Item,
    submitted: u64,
) -> Result<(), Code> {
    objects.pending.push(Pending { queue, submitted, item, begun: None });
    settle(driver, objects)?;
    if !objects.pending.is_empty() {
        driver.watch_arrivals();
    }
    Ok(())
}

/// Settles the times of all that is pending and waits for nothing unknown any more.
pub(crate) fn settle(driver: &'static Driver, objects: &mut Objects) -> Result<(), Code> {
    if objects.pending.is_empty() {
        return Ok(());
    }
    let mut stuck = HashSet::new();
    let mut left = Vec::new();
    let mut result = Ok(());
    for mut pending in std::mem::take(&mut objects.pending) {
        match settle_one(driver, objects, &mut pending, &stuck) {
            Ok(true) => {}
            Ok(false) => {
                // A mark for a whole context holds nothing up.
                if let Queue::Stream(handle) = pending.queue {
                    stuck.insert(handle);
                }
                left.push(pending);
            }
            Err(e) => result = Err(e),
        }
    }
    objects.pending = left;
    objects.waiters.retain(|waiter| !waiter.wake());
    result
}

/// Whether it is settled now.
fn settle_one(
    driver: &'static Driver,
    objects: &mut Objects,
    pending: &mut Pending,
    stuck: &HashSet<usize>,
) -> Result<bool, Code> {
    let mut ready = pending.submitted;
    for stream in before(objects, pending.queue) {
        if stuck.contains(&stream) {
            return Ok(false);
        }
        ready = ready.max(objects.streams.get(&stream).map_or(0, |s| s.tail));
    }
    let handle = match pending.queue {
        Queue::Stream(handle) => handle,
        Queue::Context(context) => {
            let orphaned = objects.contexts.get(&context).map_or(0, |c| c.orphaned);
            return Ok(set(&pending.item, ready.max(orphaned)));
        }
    };
    match &pending.item {
        Item::Mark(_) => Ok(set(&pending.item, ready)),
        Item::After(mark) => {
            let Some(&until) = mark.get() else { return Ok(false) };
            // The stream may be gone by now, and nothing waits then.
            if let Some(stream) = objects.streams.get_mut(&handle) {
                stream.tail = stream.tail.max(until);
            }
            Ok(true)
        }
        Item::Stall { ns } => {
            if let Some(stream) = objects.streams.get_mut(&handle) {
                stream.tail = ready.saturating_add(*ns);
            }
            Ok(true)
        }
        Item::Work { work, ns } => {
            let end = ready.saturating_add(*ns);
            run(driver, objects, handle, *work, Interval { start: ready, end })?;
            Ok(true)
        }
        Item::Collective { key, ranks, ns } => {
            if pending.begun.is_none() {
                let meeting =
                    driver.timeline.arrive(*key, *ranks, ready).map_err(|_full| Code::OUT_OF_MEMORY)?;
                run(driver, objects, handle, Work::Kernel, Interval { start: ready, end: OPEN })?;
                pending.begun = Some((meeting, ready));
            }
            let Some((meeting, start)) = pending.begun.take() else { return Ok(false) };
            let Some(met) = driver.timeline.met(&meeting) else {
                pending.begun = Some((meeting, start));
                return Ok(false);
            };
            driver.timeline.part(meeting);
            let end = met.max(start).saturating_add(*ns);
            if let Some(stream) = objects.streams.get_mut(&handle) {
                if let Some(lane) = &stream.lane {
                    lane.close(driver.timeline, end);
                }
                stream.tail = end;
                stream.queued.push_back(end);
            }
            Ok(true)
        }
    }
}

fn set(item: &Item, at: u64) -> bool {
    if let Item::Mark(mark) = item {
        // Set once, here.
        mark.set(at).ok();
    }
    true
}

/// Puts work on the device.
fn run(
    driver: &Driver,
    objects: &mut Objects,
    handle: usize,
    work: Work,
    interval: Interval,
) -> Result<(), Code> {
    let stream = objects.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
    let device = objects.contexts.get(&stream.context).ok_or(Code::INVALID_CONTEXT)?.device;
    if stream.lane.is_none() {
        let lane = Lane::take(driver.timeline, &driver.process, device, clock::now());
        stream.lane = Some(lane.map_err(|_full| Code::OUT_OF_MEMORY)?);
    }
    if let Some(lane) = &stream.lane {
        lane.push(driver.timeline, work, interval);
    }
    if interval.end != OPEN {
        stream.tail = interval.end;
        stream.queued.push_back(interval.end);
    }
    Ok(())
}

/// The streams whose work so far has to be done first.
fn before(objects: &Objects, queue: Queue) -> Vec<usize> {
    let of = |wanted: &dyn Fn(&Stream) -> bool| {
        objects.streams.iter().filter(|(_, s)| wanted(s)).map(|(&handle, _)| handle).collect()
    };
    let handle = match queue {
        Queue::Stream(handle) => handle,
        Queue::Context(context) => return of(&|s| s.context == context),
    };
    let Some(stream) = objects.streams.get(&handle) else { return Vec::new() };
    let null = objects.contexts.get(&stream.context).map_or(handle, |c| c.null_stream);
    if handle == null {
        return of(&|s| s.context == stream.context && s.blocking);
    }
    if stream.blocking { vec![handle, null] } else { vec![handle] }
}

/// Whether something of the stream is pending.
pub(crate) fn unsettled(objects: &Objects, handle: usize) -> bool {
    objects.pending.iter().any(|p| matches!(p.queue, Queue::Stream(s) if s == handle))
}

/// When everything the stream's next work has to wait for is done, if that is known.
pub(crate) fn ready(objects: &Objects, handle: usize) -> Option<u64> {
    let before = before(objects, Queue::Stream(handle));
    if before.iter().any(|&stream| unsettled(objects, stream)) {
        return None;
    }
    before.iter().filter_map(|stream| objects.streams.get(stream)).map(|s| s.tail).max()
}
