//! Jobs on the simulated device, recorded with the real binary: idle time as it is placed, against when the
//! device was busy. Both are of the same run, so a slow machine changes neither's meaning.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use gpu_sim_timeline::truth::Truth;
use whyidle::eval::{Score, gaps, score};
use whyidle::idle::{DeviceIdle, Known, PlacedIdle, locate};
use whyidle::timeline::{Timeline, build, union};
use whyidle::trace::{Ns, Reader, Span, ThreadKey, Watched};

use crate::binary;
use crate::device::SimulatedDevice;
use crate::library::Library;
use crate::privileged::Child;

/// Where a call proves the device empty, and elsewhere.
pub const PROVED: f64 = 0.95;
pub const INFERRED: f64 = 0.75;

#[must_use]
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A process of a job, which prepares (`once`) before it is let go and then takes steps for ever, one every
/// `period`.
#[must_use]
pub fn job<T>(period: Duration, once: impl FnOnce() -> T, step: impl Fn(&T)) -> Child {
    let ready = OnceCell::new();
    let prepare = || assert!(ready.set(once()).is_ok());
    let steps = || {
        let made = ready.get().expect("prepared");
        let mut next = Instant::now();
        loop {
            step(made);
            next = (next + period).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    Child::fork_prepared(prepare, steps)
}

/// A setting of the simulated device for this process alone, which must be a fork of the test.
pub fn set(name: &str, value: &str) {
    // SAFETY: a forked child has one thread.
    unsafe { std::env::set_var(name, value) };
}

/// Until a probe is on this function, in the calling process.
pub fn until_probed(cuda: &Library, name: &str) {
    while !is_probed(cuda, name) {
        std::thread::sleep(ms(5));
    }
}

/// Whether a probe is on this function, in the calling process.
#[must_use]
pub fn is_probed(cuda: &Library, name: &str) -> bool {
    let code = std::ptr::with_exposed_provenance::<u8>(cuda.address(name));
    // The instruction that a probe puts in the place of the function's first.
    const BREAKPOINT: u8 = 0xcc;
    // SAFETY: code of a loaded library, which may change at any time.
    unsafe { code.read_volatile() == BREAKPOINT }
}

/// A recorded job.
#[derive(Debug)]
pub struct Recorded {
    pub timeline: Timeline,
    /// When each device was busy.
    pub truth: Vec<Truth>,
    /// The report, as JSON.
    pub report: serde_json::Value,
}

/// Arguments of a recording of these processes.
#[must_use]
pub fn pids(children: &[Child]) -> Vec<String> {
    children.iter().flat_map(|child| ["--pid".to_owned(), child.pid.to_string()]).collect()
}

/// Arguments of a recording on a device, up to what is watched.
#[must_use]
pub fn arguments(device: &SimulatedDevice, trace: &Path) -> Vec<String> {
    let nvml = device.nvml();
    let fixed = ["record", "--nvidia-major", "4000", "--nvml", &nvml.to_string_lossy()].map(str::to_owned);
    let to = ["-o".to_owned(), trace.to_string_lossy().into_owned()];
    fixed.into_iter().chain(to).collect()
}

/// Lets the job's processes go and records what `select` says for `duration`.
///
/// # Panics
/// The recording failed.
#[must_use]
pub fn record(
    device: &SimulatedDevice,
    children: &mut [Child],
    select: &[String],
    duration: &str,
) -> Recorded {
    let trace = device.folder().join("trace");
    let mut arguments = arguments(device, &trace);
    arguments.extend(["--duration".into(), duration.into()]);
    arguments.extend_from_slice(select);
    children.iter_mut().for_each(Child::go);
    let ran = binary::run(&arguments);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    Recorded::read(device, &trace)
}

impl Recorded {
    /// Of a recording that has just ended.
    ///
    /// # Panics
    /// It cannot be read.
    #[must_use]
    pub fn read(device: &SimulatedDevice, trace: &Path) -> Self {
        let truth = device.timeline().truth().expect("the truth");
        let json = binary::run(["report".as_ref(), trace.as_os_str(), "--format".as_ref(), "json".as_ref()]);
        let report = serde_json::from_str(&json.stdout).unwrap_or_else(|e| panic!("{e}: {json:?}"));
        let timeline = build(Reader::open(trace).expect("a trace").map(|r| r.expect("a record")));
        Self { timeline, truth, report }
    }

    /// What was found of a device, compared with when it was busy.
    ///
    /// # Panics
    /// Calls were watched for too little of it.
    #[must_use]
    pub fn found(&self, device: u32) -> Found {
        self.compared(device, &self.truth[device as usize])
    }

    /// Likewise, with the truth of an instance of a device.
    ///
    /// # Panics
    /// As for [`Self::found`].
    #[must_use]
    pub fn compared(&self, device: u32, truth: &Truth) -> Found {
        let mut all = locate(&self.timeline, None).into_iter().map(|located| located.idle);
        let idle = all.find(|idle| idle.device == device).expect("a device");
        // Attaching takes a part of a short recording; what is placed without calls is another matter.
        let watched = self.timeline.cuda_watches.iter().filter(|w| w.watched == Watched::All).map(|w| w.at);
        let watched = watched.max().expect("calls were watched");
        let mut readings = self.timeline.devices[&device].readings.iter().map(|r| r.span.start);
        let from = readings.find(|&start| start >= watched).expect("a window with calls");
        let latest = idle.window.end - idle.window.len() / 4;
        assert!(from < latest, "too little was watched: {from} of {:?}", idle.window);
        let busy = truth.busy.iter().map(|b| Span::new(b.start, b.end));
        // What is not known is nobody's.
        let unknown = idle.unknown.iter().map(|u| u.0);
        let outside = [Span::new(0, idle.window.start), Span::new(idle.window.end, u64::MAX)];
        let idle_truly = gaps(&union(busy.chain(unknown).chain(outside).collect()));
        let watched = Span::new(from, u64::MAX);
        let placed = union(idle.placed.iter().filter_map(|p| p.span.intersect(watched)).collect());
        let true_ns = idle_truly.iter().map(|s| s.len()).sum();
        let idle_truly: Vec<Span> = idle_truly.iter().filter_map(|s| s.intersect(watched)).collect();
        let pids = self.timeline.threads.values().map(|t| (t.key, t.pid)).collect();
        Found { placed: score(&placed, &idle_truly), true_ns, idle, from, pids }
    }

    /// Processes that the report names for a device's idle time, with how much of it.
    ///
    /// # Panics
    /// The report has no such device.
    #[must_use]
    pub fn blamed(&self, device: u32) -> Vec<(u64, u64)> {
        let gpus = self.report["gpus"].as_array().expect("a list");
        let gpu = gpus.iter().find(|gpu| gpu["index"] == device).expect("a device");
        let causes = gpu["causes"].as_array().expect("a list");
        causes.iter().filter_map(|c| Some((c["pid"].as_u64()?, c["ns"].as_u64()?))).collect()
    }
}

/// What was found of a device, and how it compares.
#[derive(Debug)]
pub struct Found {
    pub idle: DeviceIdle,
    pub placed: Score,
    /// Idle as it really was in the device's windows that could be read.
    pub true_ns: u64,
    /// Start of the first window in which calls were watched.
    pub from: Ns,
    /// Of each thread.
    pids: BTreeMap<ThreadKey, u32>,
}

impl Found {
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.idle.window.len() - self.idle.unknown_ns
    }

    /// Process of the thread whose submit ends a gap.
    #[must_use]
    pub fn feeder(&self, gap: &PlacedIdle) -> Option<u32> {
        self.pids.get(&gap.feeder?).copied()
    }

    #[must_use]
    pub fn known(&self, known: Known) -> u64 {
        self.idle.placed.iter().filter(|p| p.known == known).map(|p| p.span.len()).sum()
    }

    /// Edges were seen, the device's word is its own, and idle time lies where it was.
    ///
    /// # Panics
    /// One of that does not hold.
    #[track_caller]
    pub fn holds(&self, f1: f64) {
        let summary = format!(
            "F1 {:.3}, recall {:.3}, precision {:.3}; {} ms idle of {} ms, {} ms true; {} submits; drained {} ms",
            self.placed.f1,
            self.placed.recall,
            self.placed.precision,
            self.idle.idle_ns / 1_000_000,
            self.window_ns() / 1_000_000,
            self.true_ns / 1_000_000,
            self.idle.submits,
            self.known(Known::Drained) / 1_000_000,
        );
        eprintln!("{summary}");
        assert!(self.idle.submits > 20, "no edges: {summary}");
        assert!(self.window_ns() > 1_500_000_000, "the device was hardly read: {summary}");
        // Half a percent of rounding, and half of stamps that are some milliseconds off.
        assert!(self.idle.idle_ns.abs_diff(self.true_ns) < self.window_ns() / 100, "{summary}");
        assert!(self.placed.f1 >= f1, "under {f1}: {summary}");
    }
}
