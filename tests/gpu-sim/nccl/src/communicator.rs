//! Communicators: made by all ranks together, as the real ones are.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpu_sim_timeline::{Key, Meeting, clock};
use libc::{c_char, c_int, c_void};

use crate::abi::{Code, ID_BYTES, NcclResult, UniqueId, answer, give};
use crate::driver::Driver;
use crate::group;

/// What a `ncclComm_t` points to.
pub struct Communicator {
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) context: usize,
    device: c_int,
    pub(crate) kernel: usize,
    /// Collectives so far.
    pub(crate) sequence: AtomicU64,
    /// Messages so far from one rank to another.
    pub(crate) messages: Mutex<HashMap<(u32, u32), u64>>,
}

const VERSION: c_int = 22_703;
/// Group of the meetings at which communicators are made.
const BIRTHS: u64 = 0x6269_7274_6873;
const LOOK: Duration = Duration::from_millis(20);

/// The same in all ranks.
fn hash(id: &UniqueId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.0.hash(&mut hasher);
    hasher.finish()
}

/// A birth that not all ranks have come to yet.
pub(crate) struct Birth(Meeting);

impl Birth {
    /// Sleeps until all ranks are there.
    pub(crate) fn wait(self) -> Result<(), Code> {
        let timeline = &Driver::get()?.timeline;
        loop {
            let seen = timeline.arrivals();
            if timeline.met(&self.0).is_some() {
                timeline.part(self.0);
                return Ok(());
            }
            timeline.wait_for_arrival(seen, LOOK);
        }
    }
}

fn make(
    communicator: *mut *mut Communicator,
    id: &UniqueId,
    rank: c_int,
    ranks: c_int,
) -> Result<Birth, Code> {
    let driver = Driver::get()?;
    let (rank, ranks) = match (u32::try_from(rank), u32::try_from(ranks)) {
        (Ok(rank), Ok(ranks)) if rank < ranks => (rank, ranks),
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    let made = Communicator {
        id: hash(id),
        rank,
        ranks,
        context: driver.current()?,
        device: driver.device()?,
        kernel: driver.kernel()?,
        sequence: AtomicU64::new(0),
        messages: Mutex::default(),
    };
    let key = Key { group: BIRTHS, sequence: made.id };
    let birth = driver.timeline.arrive(key, ranks, 0).map_err(|_full| Code::SYSTEM_ERROR)?;
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(communicator, Box::into_raw(Box::new(made))) }?;
    Ok(Birth(birth))
}

/// # Safety
/// `communicator` is null or one that was made and not destroyed.
pub(crate) unsafe fn of<'made>(communicator: *mut Communicator) -> Result<&'made Communicator, Code> {
    // SAFETY: by the caller's promise.
    unsafe { communicator.as_ref() }.ok_or(Code::INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> NcclResult {
    // SAFETY: the caller's pointer, as the API demands it.
    answer(|| unsafe { give(version, VERSION) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetErrorString(result: NcclResult) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// Different each time, on this host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> NcclResult {
    static MADE: AtomicU64 = AtomicU64::new(0);
    answer(|| {
        let mut bytes = [0; ID_BYTES];
        let words = [clock::now(), std::process::id().into(), MADE.fetch_add(1, Ordering::Relaxed)];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(id, UniqueId(bytes)) }
    })
}

fn init_rank(communicator: *mut *mut Communicator, ranks: c_int, id: &UniqueId, rank: c_int) -> NcclResult {
    answer(|| group::birth(make(communicator, id, rank, ranks)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    communicator: *mut *mut Communicator,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
) -> NcclResult {
    init_rank(communicator, ranks, &id, rank)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut *mut Communicator,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    _config: *mut c_void,
) -> NcclResult {
    init_rank(communicator, ranks, &id, rank)
}

/// One communicator for each of this process's devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(
    communicators: *mut *mut Communicator,
    count: c_int,
    devices: *const c_int,
) -> NcclResult {
    answer(|| {
        let driver = Driver::get()?;
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: a valid pointer.
        unsafe { ncclGetUniqueId(&raw mut id) };
        let before = driver.current().unwrap_or(0);
        let mut births = Vec::new();
        for rank in 0..count {
            let at = usize::try_from(rank).map_err(|_negative| Code::INVALID_ARGUMENT)?;
            // SAFETY: null, or `count` ordinals, as the API demands them.
            let device = if devices.is_null() { rank } else { unsafe { devices.add(at).read() } };
            driver.set_current(driver.primary(device)?)?;
            // SAFETY: the caller's array of `count`.
            births.push(make(unsafe { communicators.add(at) }, &id, rank, count)?);
        }
        driver.set_current(before)?;
        births.into_iter().try_for_each(Birth::wait)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(communicator: *mut Communicator) -> NcclResult {
    answer(|| {
        if communicator.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: made by `make`, and not destroyed before, as the API demands it.
        drop(unsafe { Box::from_raw(communicator) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(communicator: *mut Communicator) -> NcclResult {
    // SAFETY: the caller's communicator, as the API demands it.
    unsafe { ncclCommDestroy(communicator) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(communicator: *mut Communicator, count: *mut c_int) -> NcclResult {
    // SAFETY: the caller's pointers, as the API demands them.
    answer(|| unsafe { give(count, of(communicator)?.ranks.cast_signed()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(communicator: *mut Communicator, rank: *mut c_int) -> NcclResult {
    // SAFETY: the caller's pointers, as the API demands them.
    answer(|| unsafe { give(rank, of(communicator)?.rank.cast_signed()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(communicator: *mut Communicator, device: *mut c_int) -> NcclResult {
    // SAFETY: the caller's pointers, as the API demands them.
    answer(|| unsafe { give(device, of(communicator)?.device) })
}

/// Takes the next number of messages between two ranks.
pub(crate) fn next_message(communicator: &Communicator, from: u32, to: u32) -> u64 {
    let mut messages = communicator.messages.lock().unwrap_or_else(PoisonError::into_inner);
    let next = messages.entry((from, to)).or_insert(0);
    *next += 1;
    *next - 1
}
