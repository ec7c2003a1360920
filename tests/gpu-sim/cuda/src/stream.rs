//! Streams.

use std::collections::VecDeque;
use std::sync::Arc;

use gpu_sim_timeline::{Lane, clock};
use libc::{c_int, c_uint};

use crate::abi::{Code, CuResult, NullStream, answer, give};
use crate::driver::Driver;
use crate::graph::Graph;
use crate::queue::{Item, Queue, mark, ready, settle, submit, unsettled};
use crate::wait::wait_for;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    /// Waits for the legacy default stream, and that one for it.
    pub(crate) blocking: bool,
    /// Taken with the first work.
    pub(crate) lane: Option<Lane>,
    /// When all settled work is done.
    pub(crate) tail: u64,
    /// Ends of the settled work that may still be queued.
    pub(crate) queued: VecDeque<u64>,
    pub(crate) capture: Option<Graph>,
}

impl Stream {
    pub(crate) fn new(context: usize, blocking: bool) -> Self {
        Self { context, blocking, lane: None, tail: 0, queued: VecDeque::new(), capture: None }
    }
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

fn create(stream: *mut usize, flags: c_uint) -> Result<(), Code> {
    let mut objects = Driver::get()?.objects();
    let (context, _) = objects.current()?;
    let handle = objects.handle();
    objects.streams.insert(handle, Stream::new(context, flags & NON_BLOCKING == 0));
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(stream, handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, flags: c_uint) -> CuResult {
    answer(|| create(stream, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut usize, flags: c_uint, _: c_int) -> CuResult {
    answer(|| create(stream, flags))
}

/// Returns at once; what is queued still runs. Unlike the real one it waits for collectives under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: usize) -> CuResult {
    answer(|| {
        let driver = Driver::get()?;
        let mut objects = driver.objects();
        while unsettled(&objects, stream) {
            let mark = mark(driver, &mut objects, Queue::Stream(stream))?;
            drop(objects);
            wait_for(driver, &mark, 0);
            objects = driver.objects();
        }
        let gone = objects.streams.remove(&stream).ok_or(Code::INVALID_HANDLE)?;
        if let Some(context) = objects.contexts.get_mut(&gone.context) {
            context.orphaned = context.orphaned.max(gone.tail);
        }
        if let Some(lane) = gone.lane {
            lane.give_back(driver.timeline);
        }
        Ok(())
    })
}

fn synchronize(stream: usize, null: NullStream) -> Result<(), Code> {
    let driver = Driver::get()?;
    let mut objects = driver.objects();
    let stream = objects.stream(stream, null)?;
    let context = objects.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?.context;
    let flags = objects.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)?.flags;
    let done = mark(driver, &mut objects, Queue::Stream(stream))?;
    drop(objects);
    wait_for(driver, &done, flags);
    Ok(())
}

fn query(stream: usize, null: NullStream) -> Result<(), Code> {
    let driver = Driver::get()?;
    let mut objects = driver.objects();
    let stream = objects.stream(stream, null)?;
    settle(driver, &mut objects)?;
    match ready(&objects, stream) {
        Some(end) if end <= clock::now() => Ok(()),
        _ => Err(Code::NOT_READY),
    }
}

fn wait_event(stream: usize, event: usize, null: NullStream) -> Result<(), Code> {
    let recorded = Driver::get()?.objects().events.get(&event).ok_or(Code::INVALID_HANDLE)?.clone();
    recorded.map_or(Ok(()), |mark| submit(stream, null, Item::After(Arc::clone(&mark))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: usize) -> CuResult {
    answer(|| synchronize(stream, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize_ptsz(stream: usize) -> CuResult {
    answer(|| synchronize(stream, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: usize) -> CuResult {
    answer(|| query(stream, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery_ptsz(stream: usize) -> CuResult {
    answer(|| query(stream, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _: c_uint) -> CuResult {
    answer(|| wait_event(stream, event, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent_ptsz(stream: usize, event: usize, _: c_uint) -> CuResult {
    answer(|| wait_event(stream, event, NullStream::PerThread))
}
