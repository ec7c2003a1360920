//! Records: ties the kernel side, the process table and the device signal together, one tick at a time.

use std::time::Duration;

use super::CaptureError;
use super::bottom_halves::BottomHalves;
use super::cuda::policy::Mode;
use super::devices::Feed;
use super::driver::DriverCalls;
use super::governor::{Governor, SAMPLE_EVERY, STACK_EVERY, Step};
use super::host::{self, TICK};
use super::kernel::undo::Detaching;
use super::kernel_cost::KernelCost;
use super::process;
use super::selection::Targets;
use super::sink::Sink;
use super::stop::Stop;
use super::tracer::{Config, Tracer};
use super::utilisation::Utilisation;
use crate::trace::{
    Counter, End, GovernorStep, Loss, LossCause, LossClass, Ns, ProbeStatus, Record, TargetKind, TraceError,
    Writer,
};

/// Ticks between two looks for new targets; the governor stretches it.
const RESCAN: u64 = 6;
/// How long the last device windows are waited for.
const LAST_READINGS: Duration = Duration::from_millis(700);

/// Reason of an ending: nothing watched runs any more.
pub const TARGETS_EXITED: &str = "targets exited";
/// Likewise, and the group whose members were watched is no more.
pub const GROUP_REMOVED: &str = "the control group was removed";

/// What to record, once its targets and its file have been found good.
pub struct Plan {
    pub config: Config,
    pub targets: Targets,
    pub devices: Box<dyn Feed>,
    pub duration: Option<Duration>,
    /// Share of the machine's processor time, 0.01 for 1 %.
    pub budget: f64,
    /// Whether the CUDA driver's calls are watched.
    pub cuda: Mode,
    /// For the trace: the command, or how targets were chosen.
    pub command: String,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("targets", &self.targets)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// Why a recording could not start or did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Why a recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub reason: String,
    /// Exit status of the command given to `whyidle run`.
    pub exit_status: Option<i32>,
}

/// How far a recording is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub elapsed: Duration,
    pub records: u64,
    pub bytes: u64,
    /// Latest reading of each device in percent, `None` while it gives none.
    pub busy: Vec<(u32, Option<f64>)>,
    /// Processes watched and running.
    pub processes: usize,
    /// Records lost so far, of every class.
    pub lost: u64,
}

/// Somebody who looks on, and may end the recording.
pub trait Watch {
    /// Called every tick.
    fn tick(&mut self, progress: &Progress) -> Option<Ending>;

    /// Called once before the trace is brought to its end.
    fn ending(&mut self) {}
}

/// An attached recorder. Dropping it detaches everything; the trace then has no end.
pub struct Recorder {
    tracer: Tracer,
    sink: Sink,
    devices: Box<dyn Feed>,
    governor: Governor,
    stop: Stop,
    start: Ns,
    threshold_ns: u64,
    duration: Option<Duration>,
    ticks: u64,
    rescan: u64,
    host_every: u64,
    driver: DriverCalls,
    utilisation: Utilisation,
    trouble: Option<String>,
    kernel_cost: KernelCost,
    bottom_halves: BottomHalves,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("tracer", &self.tracer)
            .field("ticks", &self.ticks)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Writes what is known beforehand, and begins to watch the targets.
    ///
    /// # Errors
    /// The kernel side has no room for the targets, or the trace cannot be written.
    pub fn start(plan: Plan, mut tracer: Tracer, writer: Writer, stop: Stop) -> Result<Self, RecordError> {
        // Where there are devices their driver will be called: a recording that has begun is no time to load.
        if plan.cuda != Mode::Off && !plan.devices.devices().is_empty() {
            tracer.load_driver_programs();
        }
        let start = host::now();
        let mut sink = Sink::new(writer, plan.targets);
        let about = host::describe(&plan.config, &plan.command, start);
        let cpus = about.online_cpus.len();
        sink.append(&Record::Host(about));
        for probe in tracer.probes() {
            sink.append(&Record::Probe(probe));
        }
        for device in plan.devices.devices() {
            sink.append(&Record::Device(device.clone()));
        }
        let mut recorder = Self {
            tracer,
            sink,
            devices: plan.devices,
            governor: Governor::new(plan.budget, cpus),
            stop,
            start,
            threshold_ns: plan.config.threshold_ns,
            duration: plan.duration,
            ticks: 0,
            rescan: RESCAN,
            host_every: 1,
            driver: DriverCalls::new(plan.cuda, plan.budget, cpus),
            utilisation: Utilisation::default(),
            trouble: None,
            kernel_cost: KernelCost::default(),
            bottom_halves: BottomHalves::default(),
        };
        recorder.say_devices();
        recorder.driver.begin(start, &mut |record| recorder.sink.append(&record));
        recorder.new_targets()?;
        // Before the first tick, so that a job that launches from the start is seen from the start.
        recorder.driver_calls(start);
        recorder.sink.flush(start)?;
        Ok(recorder)
    }

    /// Watches one more process and its children.
    ///
    /// # Errors
    /// The kernel side has no room for it.
    pub fn add(&mut self, pid: u32) -> Result<(), RecordError> {
        self.sink.targets.watch(pid);
        Ok(self.tracer.add_process(pid, TargetKind::Named)?)
    }

    /// Records until the duration is over, a signal asks to stop, nothing watched runs any more, or `watch`
    /// says so.
    ///
    /// # Errors
    /// A ring cannot be read or the trace cannot be written; call [`Self::finish`] all the same.
    pub fn run(&mut self, watch: &mut dyn Watch) -> Result<Ending, RecordError> {
        let tick = u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX);
        let mut next = self.start + tick;
        loop {
            let left = next.saturating_sub(host::now());
            if left > 0 && !self.stop.asked() {
                self.tracer.wait(Duration::from_nanos(left))?;
            }
            self.tracer.drain(&mut |record| {
                self.driver.see(&record);
                self.sink.take(record);
            })?;
            let now = host::now();
            if self.stop.asked() {
                return Ok(Ending { reason: "interrupted".into(), exit_status: None });
            }
            if now < next {
                continue;
            }
            self.tick(now)?;
            // Ticks that could not be kept are left out, not made up for.
            next = now + tick - (now - self.start) % tick;
            if let Some(ending) = self.over(now).or_else(|| watch.tick(&self.progress(now))) {
                return Ok(ending);
            }
        }
    }

    /// Detaches, takes what is still open, names addresses, and ends the trace.
    ///
    /// # Errors
    /// The trace's last part cannot be written.
    pub fn finish(self, ending: Ending) -> Result<Detaching, RecordError> {
        let Self { tracer, mut sink, mut devices, governor, .. } = self;
        let at = host::now();
        let unwinding = tracer.unwinding();
        let detached = tracer.finish(&mut |record| sink.take(record));
        for polled in devices.last(at, LAST_READINGS) {
            polled.readings.into_iter().for_each(|r| sink.take(Record::Reading(r)));
            polled.others.into_iter().for_each(|r| sink.take(r));
        }
        if let Some(silent) = devices.silent_before(at) {
            let reason =
                format!("no reading came in the last {:.1} s of the recording", silent.as_secs_f64());
            sink.append(&Record::Probe(ProbeStatus { name: "nvml".into(), attached: false, reason }));
        }
        sink.name_addresses(at);
        for (name, value) in [
            ("own_cpu_ns", super::governor::own_cpu()),
            ("cost_worst_ppm", (governor.worst() * 1e6) as u64),
            ("kernel_cost_ppm", (governor.kernel_share() * 1e6) as u64),
            ("unwind_cpu_ns", unwinding.cpu_ns),
            ("unwind_bytes", unwinding.bytes),
            ("unwind_table_bytes", unwinding.table_bytes),
            ("unwind_tables", unwinding.tables),
            ("unwind_without_table", unwinding.without),
            ("records", sink.records),
            ("cgroups_left_out", sink.cgroups.left_out),
        ] {
            sink.append(&Record::Counter(Counter { at, name: name.into(), value }));
        }
        let flushed = sink.flush(at);
        if let Err(TraceError::Write { records, .. }) = &flushed {
            let (class, cause) = (LossClass::Stored, LossCause::Userspace);
            let loss = Loss { at, class, cpu: None, cause, count: *records, ns_at_risk: 0 };
            sink.append(&Record::Loss(loss));
        }
        // After a full disk this small frame often still fits, and says why the trace ends here.
        sink.append(&Record::End(End { at, reason: ending.reason, exit_status: ending.exit_status }));
        let finished = sink.finish();
        let detaching = detached?;
        flushed?;
        finished?;
        Ok(detaching)
    }

    fn tick(&mut self, now: Ns) -> Result<(), RecordError> {
        self.ticks += 1;
        self.tracer.tick(&mut |record| self.sink.take(record))?;
        self.device_readings();
        if self.ticks.is_multiple_of(self.rescan) {
            self.new_targets()?;
        }
        self.driver_calls(now);
        if self.ticks.is_multiple_of(self.host_every) {
            self.sink.append(&Record::HostTick(host::tick()));
            for tick in self.sink.cgroups.tick() {
                self.sink.append(&Record::CgroupTick(tick));
            }
        }
        for counter in self.bottom_halves.tick(now) {
            self.sink.append(&Record::Counter(counter));
        }
        self.sink.enricher.tick();
        if let Some(per_time) = self.kernel_cost.tick(self.ticks, now, &self.tracer) {
            self.governor.kernel(per_time);
        }
        let (step, what) = self.governor.tick(self.tracer.unwinding().cpu_ns);
        if let Some(step) = step {
            self.take_step(step)?;
            self.kernel_cost.again();
        }
        if let Some(what) = what {
            tracing::info!("{what}");
            self.sink.append(&Record::Step(GovernorStep { at: now, what }));
        }
        Ok(self.sink.flush(now)?)
    }

    fn take_step(&mut self, step: Step) -> Result<(), RecordError> {
        match step {
            Step::FewerRescans => self.rescan = RESCAN * 8,
            Step::FewerHostTicks => self.host_every = RESCAN,
            Step::NoBursts => self.tracer.stop_bursts(),
            Step::Threshold1Ms => self.tracer.set_threshold_ns(self.threshold_ns.max(1_000_000))?,
            Step::Threshold10Ms => self.tracer.set_threshold_ns(self.threshold_ns.max(10_000_000))?,
            Step::FewerSamples => self.tracer.set_sample_every(SAMPLE_EVERY)?,
            Step::FewerStacks => self.tracer.set_stack_every(STACK_EVERY)?,
            Step::NoDisks | Step::NoSamples => self.take_out(step.programs()),
        }
        Ok(())
    }

    fn take_out(&mut self, programs: &[&str]) {
        let reason = "taken out to stay within the budget";
        for name in programs {
            if self.tracer.detach_probe(name, reason) {
                let (name, reason) = ((*name).to_owned(), reason.to_owned());
                self.sink.append(&Record::Probe(ProbeStatus { name, attached: false, reason }));
            }
        }
    }

    fn device_readings(&mut self) {
        for polled in self.devices.take() {
            for reading in polled.readings {
                self.utilisation.reading(&reading);
                self.sink.take(Record::Reading(reading));
            }
            polled.others.into_iter().for_each(|r| self.sink.take(r));
            for process in self.utilisation.processes(polled.processes) {
                self.sink.take(Record::DeviceProcess(process));
            }
        }
        if self.devices.trouble() != self.trouble {
            self.say_devices();
        }
    }

    fn say_devices(&mut self) {
        self.trouble = self.devices.trouble();
        let (attached, reason) = (self.trouble.is_none(), self.trouble.clone().unwrap_or_default());
        self.sink.append(&Record::Probe(ProbeStatus { name: "nvml".into(), attached, reason }));
    }

    fn new_targets(&mut self) -> Result<(), RecordError> {
        let new = self.sink.targets.new_processes(&self.devices.processes());
        for pid in &new {
            self.tracer.add_process(*pid, TargetKind::Named)?;
        }
        // Children born before their parent was a target did not inherit it; later ones do.
        let mut parents = new;
        while !parents.is_empty() {
            let children = process::children(&parents);
            parents = children.into_iter().filter(|pid| self.sink.targets.watch(*pid)).collect();
            for pid in &parents {
                self.tracer.add_process(*pid, TargetKind::Inherited)?;
            }
        }
        Ok(())
    }

    fn driver_calls(&mut self, at: Ns) {
        let Self { driver, sink, tracer, devices, governor, .. } = self;
        let pids: Vec<_> = sink.targets.pids().collect();
        let on_device: Vec<_> = devices.processes().into_iter().filter(|pid| pids.contains(pid)).collect();
        driver.tick(at, pids, &on_device, governor.share(), tracer, &mut |record| sink.append(&record));
        governor.driver(driver.share());
    }

    fn over(&mut self, now: Ns) -> Option<Ending> {
        let ending = |reason: &str| Some(Ending { reason: reason.into(), exit_status: None });
        if self.duration.is_some_and(|d| u128::from(now - self.start) >= d.as_nanos()) {
            return ending("duration");
        }
        let targets = &mut self.sink.targets;
        if !targets.can_run_out() || targets.running() > 0 {
            return None;
        }
        ending(if targets.group_is_gone() { GROUP_REMOVED } else { TARGETS_EXITED })
    }

    fn progress(&mut self, now: Ns) -> Progress {
        Progress {
            elapsed: Duration::from_nanos(now - self.start),
            records: self.sink.records,
            bytes: self.sink.bytes(),
            busy: self.utilisation.latest(),
            processes: self.sink.targets.pids().count(),
            lost: self.sink.lost,
        }
    }
}
