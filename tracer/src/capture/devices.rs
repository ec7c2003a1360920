//! The device signal as the recorder sees it: readings come by themselves, and never keep it waiting.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::host::TICK;
use crate::gpu::{GpuError, GpuThread, NvmlSignal, Polled};
use crate::trace::{Device, Ns};

/// A driver that has to wake its devices first takes seconds to initialise.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long the first list of processes is waited for.
const FIRST: Duration = Duration::from_secs(2);
/// NVML's sample periods end at 1 s.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);

/// Readings from a thread of their own, or the reason why there are none.
pub trait Feed {
    /// In NVML index order; empty where no device answers.
    fn devices(&self) -> &[Device];

    /// Processes that any device lists, as last heard, in the host's pid namespace.
    fn processes(&self) -> Vec<u32>;

    /// Everything that came since the last call, without waiting.
    fn take(&mut self) -> Vec<Polled>;

    /// The last readings: waits until every device's windows reach `end`, at most `deadline`.
    fn last(&mut self, end: Ns, deadline: Duration) -> Vec<Polled>;

    /// How long before `end` the last reading of the quietest device ended, where that is longer than any
    /// device's window.
    fn silent_before(&self, end: Ns) -> Option<Duration>;

    /// Why there are no readings now; `None` while all is well.
    fn trouble(&self) -> Option<String>;
}

/// No device library: off-CPU analysis goes on without readings.
#[derive(Clone, Debug)]
pub struct NoDevices {
    pub reason: String,
}

impl Feed for NoDevices {
    fn devices(&self) -> &[Device] {
        &[]
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn take(&mut self) -> Vec<Polled> {
        Vec::new()
    }

    fn last(&mut self, _end: Ns, _deadline: Duration) -> Vec<Polled> {
        Vec::new()
    }

    fn silent_before(&self, _end: Ns) -> Option<Duration> {
        None
    }

    fn trouble(&self) -> Option<String> {
        Some(self.reason.clone())
    }
}

/// Readings of an NVML library.
#[derive(Debug)]
pub struct Nvml {
    thread: GpuThread,
    /// Answers taken before anybody asked for them.
    early: Vec<Polled>,
    listed: Vec<u32>,
    /// End of each device's latest window.
    reached: BTreeMap<u32, Ns>,
    failed: Option<String>,
}

impl Nvml {
    /// Opens the library at `path`, or the system's, and waits for its first answer.
    ///
    /// # Errors
    /// There is none, it is none, or it does not answer.
    pub fn open(path: Option<&Path>) -> Result<Self, GpuError> {
        let path = path.map(Path::to_owned);
        let thread = GpuThread::start(move || NvmlSignal::open(path.as_deref()), TICK, DEADLINE)?;
        let (early, listed, reached) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut nvml = Self { thread, early, listed, reached, failed: None };
        if let Some(answer) = nvml.thread.recv_timeout(FIRST) {
            let first = nvml.hear(answer);
            nvml.early.extend(first);
        }
        Ok(nvml)
    }

    fn hear(&mut self, answer: Result<Polled, GpuError>) -> Option<Polled> {
        match answer {
            Ok(polled) => {
                self.failed = None;
                self.listed = polled.processes.iter().map(|p| p.pid).collect();
                for reading in &polled.readings {
                    self.reached.insert(reading.device, reading.span.end);
                }
                Some(polled)
            }
            Err(error) => {
                self.failed = Some(error.to_string());
                None
            }
        }
    }
}

impl Feed for Nvml {
    fn devices(&self) -> &[Device] {
        self.thread.devices()
    }

    fn processes(&self) -> Vec<u32> {
        self.listed.clone()
    }

    fn take(&mut self) -> Vec<Polled> {
        let mut taken = std::mem::take(&mut self.early);
        while let Some(answer) = self.thread.try_recv() {
            taken.extend(self.hear(answer));
        }
        taken
    }

    fn last(&mut self, end: Ns, deadline: Duration) -> Vec<Polled> {
        let until = Instant::now() + deadline;
        let mut taken = self.take();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let devices = self.thread.devices();
            let all =
                devices.iter().all(|d| self.reached.get(&d.index).is_some_and(|reached| *reached >= end));
            if all || left.is_zero() {
                return taken;
            }
            // An answer, or the end of the time there is.
            if let Some(answer) = self.thread.recv_timeout(left) {
                taken.extend(self.hear(answer));
            } else if self.thread.stalled_for().is_some() {
                return taken;
            }
        }
    }

    fn silent_before(&self, end: Ns) -> Option<Duration> {
        let last = |d: &Device| self.reached.get(&d.index).copied().unwrap_or(0);
        let quietest = self.thread.devices().iter().map(last).min()?;
        let silent = Duration::from_nanos(end.saturating_sub(quietest));
        (silent > LONGEST_WINDOW * 2).then_some(silent)
    }

    fn trouble(&self) -> Option<String> {
        // Without the time it has been: each change of this text is written into the trace.
        let stalled = self.thread.stalled_for().map(|_| "the NVML library does not answer".to_owned());
        stalled.or_else(|| self.failed.clone())
    }
}
