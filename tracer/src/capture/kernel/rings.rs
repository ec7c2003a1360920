//! The two rings and the poll that waits for them.

use std::os::fd::AsFd;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Map, MapData, RingBuf};
use rustix::event::epoll;

use super::CaptureError;

/// Lifecycle first, so that a thread is known before its waits.
const NAMES: [&str; 2] = ["LIFECYCLE", "RING"];

pub struct Rings {
    rings: Vec<RingBuf<MapData>>,
    epoll: std::os::fd::OwnedFd,
}

impl Rings {
    /// Takes the rings out of the loaded object.
    ///
    /// # Errors
    /// The object has no such rings, or `epoll` failed.
    pub fn new(ebpf: &mut Ebpf) -> Result<Self, CaptureError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed("epoll_create", e.into()))?;
        let mut rings = Vec::new();
        for name in NAMES {
            let map: Map = ebpf.take_map(name).ok_or_else(|| missing(name))?;
            let ring = RingBuf::try_from(map)
                .map_err(|e| CaptureError::Kernel { what: name.into(), source: Box::new(e) })?;
            // Edge-triggered: a ring that holds a little does not end the wait, only a wake-up does.
            epoll::add(
                &epoll,
                ring.as_fd(),
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN | epoll::EventFlags::ET,
            )
            .map_err(|e| failed("epoll_ctl", e.into()))?;
            rings.push(ring);
        }
        Ok(Self { rings, epoll })
    }

    /// Until the kernel side thinks a wake-up is worth it, or for `timeout`.
    ///
    /// # Errors
    /// `epoll_wait` failed.
    pub fn wait(&self, timeout: Duration) -> Result<(), CaptureError> {
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        match epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(failed("epoll_wait", e.into())),
        }
    }

    /// Hands over all records now there.
    pub fn drain(&mut self, mut sink: impl FnMut(&[u8])) {
        for ring in &mut self.rings {
            while let Some(item) = ring.next() {
                sink(&item);
            }
        }
    }
}

pub(super) fn missing(map: &str) -> CaptureError {
    failed(map, std::io::Error::other("no such map in the kernel object"))
}

fn failed(what: &str, error: std::io::Error) -> CaptureError {
    CaptureError::Kernel { what: what.into(), source: Box::new(error) }
}
