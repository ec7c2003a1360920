//! The door to the kernel side: load, attach, targets, drain, detach.

use std::path::Path;
use std::time::Duration;

use super::CaptureError;
use super::cuda::EntryPoint;
use crate::trace::{ProbeStatus, Record, TargetKind};

/// What the kernel side is told at load time.
#[derive(Clone, Debug)]
pub struct Config {
    /// Off-CPU intervals shorter than this become totals.
    pub threshold_ns: u64,
    /// CPU samples a second, 0 for none.
    pub sample_hz: u64,
    /// Every thread on the host is a target (own process excepted).
    pub all: bool,
    /// Character-device majors taken as the NVIDIA driver's.
    pub nvidia_majors: Vec<u32>,
    /// Threads that may be adopted because they wake targets often.
    pub adopt_cap: u32,
    /// Bytes per ring buffer, a power of two.
    pub ring_bytes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threshold_ns: 100_000,
            sample_hz: 99,
            all: false,
            nvidia_majors: vec![195],
            adopt_cap: 64,
            ring_bytes: 8 << 20,
        }
    }
}

/// The attached kernel side. Dropping it detaches everything.
#[derive(Debug)]
pub struct Tracer {}

impl Tracer {
    /// Loads the object for the running kernel and attaches every probe that can be.
    ///
    /// # Errors
    /// Not root, no BTF, kernel too old, or nothing at all could be attached.
    pub fn attach(config: &Config) -> Result<Self, CaptureError> {
        let _ = config;
        Err(CaptureError::NotPermitted)
    }

    /// Which probes are in place, and why the others are not.
    #[must_use]
    pub fn probes(&self) -> Vec<ProbeStatus> {
        Vec::new()
    }

    /// Makes all threads of a process targets; children and new threads inherit it in the kernel.
    ///
    /// # Errors
    /// The target map is full.
    pub fn add_process(&mut self, pid: u32, kind: TargetKind) -> Result<(), CaptureError> {
        let _ = (pid, kind);
        Ok(())
    }

    /// Attaches the CUDA entry points of one library, all processes that map it.
    /// Returns one status per entry point that could not be attached.
    pub fn attach_cuda(&mut self, library: &Path, entry_points: &[EntryPoint]) -> Vec<ProbeStatus> {
        let _ = (library, entry_points);
        Vec::new()
    }

    /// Waits until a ring holds enough to be worth a wake-up, or for `timeout`.
    ///
    /// # Errors
    /// `poll` failed.
    pub fn wait(&self, timeout: Duration) -> Result<(), CaptureError> {
        let _ = timeout;
        Ok(())
    }

    /// Hands over every record now in the rings, in the order of their rings (not of time).
    ///
    /// # Errors
    /// A ring could not be read.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let _ = sink;
        Ok(())
    }

    /// Flushes the kernel's tables: totals, block devices, who ran instead. Call every tick.
    /// Losses go out with it, at most once a second.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn tick(&mut self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let _ = sink;
        Ok(())
    }

    /// Detaches, then hands over what is still open: waits (as `cut_end`), runs of submits, last losses.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn finish(self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let _ = sink;
        Ok(())
    }
}
