//! The operations. Each ends some time after the last rank has begun it: a latency, and what its bytes take.

use std::sync::atomic::Ordering;

use libc::{c_int, c_void};

use crate::abi::{Code, NcclResult, answer, width};
use crate::communicator::{Communicator, next_message, of};
use crate::driver::Meeting;
use crate::group::submit;

const LATENCY_NS: u64 = 20_000;
/// NVLink, one way.
const BYTES_PER_US: u64 = 300_000;

fn time(count: usize, datatype: c_int) -> Result<u64, Code> {
    let bytes = count.checked_mul(width(datatype)?).ok_or(Code::INVALID_ARGUMENT)? as u64;
    Ok(LATENCY_NS + bytes / BYTES_PER_US * 1000 + bytes % BYTES_PER_US * 1000 / BYTES_PER_US)
}

/// # Safety
/// `communicator` is null or one that was made and not destroyed.
unsafe fn collective(
    communicator: *mut Communicator,
    count: usize,
    datatype: c_int,
    stream: usize,
) -> Result<(), Code> {
    // SAFETY: by the caller's promise.
    let communicator = unsafe { of(communicator) }?;
    let sequence = communicator.sequence.fetch_add(1, Ordering::Relaxed);
    let meeting = Meeting {
        group: communicator.id,
        sequence,
        ranks: communicator.ranks.into(),
        ns: time(count, datatype)?,
    };
    submit(communicator, stream, meeting)
}

/// # Safety
/// As for [`collective`].
unsafe fn message(
    communicator: *mut Communicator,
    peer: c_int,
    sends: bool,
    (count, datatype): (usize, c_int),
    stream: usize,
) -> Result<(), Code> {
    // SAFETY: by the caller's promise.
    let communicator = unsafe { of(communicator) }?;
    let peer = u32::try_from(peer).map_err(|_negative| Code::INVALID_ARGUMENT)?;
    let (from, to) = if sends { (communicator.rank, peer) } else { (peer, communicator.rank) };
    let sequence = next_message(communicator, from, to);
    // A group of its own for each direction between two ranks.
    let group = communicator.id ^ (u64::from(from) + 1) << 40 ^ (u64::from(to) + 1) << 20;
    let meeting = Meeting { group, sequence, ranks: 2, ns: time(count, datatype)? };
    submit(communicator, stream, meeting)
}

/// `(sendbuff, recvbuff, count, datatype, <more>, comm, stream)`.
macro_rules! collective {
    ($($name:ident($($more:ident),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _send: *const c_void,
            _receive: *mut c_void,
            count: usize,
            datatype: c_int,
            $($more: c_int,)*
            communicator: *mut Communicator,
            stream: usize,
        ) -> NcclResult {
            // Functions that do the same would be made one, with one address for all names.
            std::hint::black_box(stringify!($name));
            // SAFETY: the caller's communicator, as the API demands it.
            answer(|| unsafe { collective(communicator, count, datatype, stream) })
        }
    )*};
}

collective! {
    ncclAllReduce(_op);
    ncclReduceScatter(_op);
    ncclReduce(_op, _root);
    ncclBroadcast(_root);
    ncclAllGather();
    ncclAlltoAll();
}

/// In place, so with one buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    _buffer: *mut c_void,
    count: usize,
    datatype: c_int,
    _root: c_int,
    communicator: *mut Communicator,
    stream: usize,
) -> NcclResult {
    // SAFETY: the caller's communicator, as the API demands it.
    answer(|| unsafe { collective(communicator, count, datatype, stream) })
}

/// `(buffer, count, datatype, peer, comm, stream)`.
macro_rules! message {
    ($name:ident, $sends:expr, $buffer:ty) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _buffer: $buffer,
            count: usize,
            datatype: c_int,
            peer: c_int,
            communicator: *mut Communicator,
            stream: usize,
        ) -> NcclResult {
            // SAFETY: the caller's communicator, as the API demands it.
            answer(|| unsafe { message(communicator, peer, $sends, (count, datatype), stream) })
        }
    };
}

message!(ncclSend, true, *const c_void);
message!(ncclRecv, false, *mut c_void);
