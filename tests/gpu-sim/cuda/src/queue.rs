//! How work queues up: in order within a stream, streams side by side, the legacy default stream after and
//! before everything of its context except non-blocking streams.

use gpu_sim_timeline::{Interval, Lane, Work, clock};

use crate::abi::{Code, NullStream};
use crate::driver::Driver;
use crate::objects::Objects;
use crate::wait::wait_until;

/// Work a stream holds before a submit has to wait for the device, as with the real driver.
const DEPTH: usize = 1024;

/// Appends `duration` ns of work to a stream and returns when it will be done. Waits while the queue is full.
pub(crate) fn submit(stream: usize, null: NullStream, work: Work, duration: u64) -> Result<u64, Code> {
    let driver = Driver::get()?;
    loop {
        let mut objects = driver.objects();
        let stream = objects.stream(stream, null)?;
        if let Some(captured) = objects.streams.get_mut(&stream).and_then(|s| s.capture.as_mut()) {
            captured.push(work, duration);
            return Ok(0);
        }
        let now = clock::now();
        let Some(room_at) = full_until(&mut objects, stream, now) else {
            return append(driver, &mut objects, stream, work, duration, now);
        };
        let flags = objects.current().map_or(0, |(_, context)| context.flags);
        drop(objects);
        wait_until(room_at, flags);
    }
}

/// When the oldest of the stream's work is done, if the stream is full.
fn full_until(objects: &mut Objects, stream: usize, now: u64) -> Option<u64> {
    let queued = &mut objects.streams.get_mut(&stream)?.queued;
    while queued.front().is_some_and(|&end| end <= now) {
        queued.pop_front();
    }
    if queued.len() < DEPTH { None } else { queued.front().copied() }
}

fn append(
    driver: &Driver,
    objects: &mut Objects,
    handle: usize,
    work: Work,
    duration: u64,
    now: u64,
) -> Result<u64, Code> {
    let start = now.max(ready(objects, handle)?);
    let stream = objects.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
    let device = objects.contexts.get(&stream.context).ok_or(Code::INVALID_CONTEXT)?.device;
    if stream.lane.is_none() {
        let lane = Lane::take(driver.timeline, &driver.process, device, now);
        stream.lane = Some(lane.map_err(|_full| Code::OUT_OF_MEMORY)?);
    }
    let end = start.saturating_add(duration);
    if let Some(lane) = &stream.lane {
        lane.push(driver.timeline, work, Interval { start, end });
    }
    stream.tail = end;
    stream.queued.push_back(end);
    Ok(end)
}

/// When everything the stream's next work has to wait for is done.
pub(crate) fn ready(objects: &Objects, handle: usize) -> Result<u64, Code> {
    let stream = objects.streams.get(&handle).ok_or(Code::INVALID_HANDLE)?;
    let context = objects.contexts.get(&stream.context).ok_or(Code::INVALID_CONTEXT)?;
    let tail = |handle: usize| objects.streams.get(&handle).map_or(0, |s| s.tail);
    if handle == context.null_stream {
        let blocking = objects.streams.values().filter(|s| s.context == stream.context && s.blocking);
        return Ok(blocking.map(|s| s.tail).max().unwrap_or(0));
    }
    Ok(if stream.blocking { stream.tail.max(tail(context.null_stream)) } else { stream.tail })
}

/// When everything submitted to a context so far is done.
pub(crate) fn context_done(objects: &Objects, context: usize) -> u64 {
    let orphaned = objects.contexts.get(&context).map_or(0, |c| c.orphaned);
    objects.streams.values().filter(|s| s.context == context).map(|s| s.tail).fold(orphaned, u64::max)
}
