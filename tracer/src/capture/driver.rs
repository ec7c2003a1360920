//! Watches the CUDA driver's calls: finds its libraries, attaches to them, and keeps what that costs within
//! the budget.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use super::cuda::bypass::Bypass;
use super::cuda::policy::{Change, Cost, Mode, Policy};
use super::cuda::runtime::is_runtime_call;
use super::cuda::{EntryPoint, Layer, Libraries, Library, LibraryError, driver_code, runtimes};
use super::host;
use super::kernel::trap::TrapCost;
use super::kernel::undo::Detaching;
use super::kernel::uprobes::{Attach, Runs};
use super::tracer::Tracer;
use crate::trace::{Counter, CudaWatch, GovernorStep, Ns, ProbeStatus, Record, Watched};

/// Ticks between two measurements, each one tick long: the kernel's statistics cost something themselves.
const MEASURE_EVERY: u32 = 12;
/// Ticks after which a process that a device lists should have mapped the driver.
const UNMAPPED: u32 = 30;

/// Whether the runtime's entry points stand in for the driver's.
#[derive(Debug)]
enum Runtime {
    Unused,
    /// The driver's exported entry points are not those in use.
    Attached(Vec<Library>),
    /// It was tried: there is no runtime to attach to, or the driver's are in use after all.
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct DriverCalls {
    mode: Mode,
    policy: Policy,
    cpus: f64,
    libraries: Libraries,
    found: Vec<Library>,
    tried: Option<TrapCost>,
    /// Returns may be probed.
    returns: bool,
    meter: Meter,
    detaching: Detaching,
    bypass: Bypass,
    runtime: Runtime,
    driver_is_called: bool,
    /// Processes a device lists that map no driver, by the ticks for which that was so.
    unmapped: HashMap<u32, u32>,
}

impl DriverCalls {
    #[must_use]
    pub fn new(mode: Mode, budget: f64, cpus: usize) -> Self {
        Self {
            mode,
            policy: Policy::new(mode, budget),
            cpus: cpus.max(1) as f64,
            libraries: Libraries::default(),
            found: Vec::new(),
            tried: None,
            returns: true,
            meter: Meter::default(),
            detaching: Detaching::default(),
            bypass: Bypass::default(),
            runtime: Runtime::Unused,
            driver_is_called: false,
            unmapped: HashMap::new(),
        }
    }

    /// Says that nothing is watched yet.
    pub fn begin(&self, at: Ns, sink: &mut dyn FnMut(Record)) {
        let reason = match self.mode {
            Mode::Off => "probes on the driver's calls are off (--cuda off)",
            Mode::Auto | Mode::On => "no watched process maps the CUDA driver yet",
        };
        if self.mode == Mode::Off {
            sink(row("cuda", reason.into()));
        }
        sink(Record::CudaWatch(CudaWatch { at, watched: Watched::Nothing, reason: reason.into() }));
    }

    /// Call every tick. `others`: share of the machine's processor time that the tracer takes for the rest.
    pub fn tick(
        &mut self,
        at: Ns,
        pids: impl IntoIterator<Item = u32>,
        on_device: &[u32],
        others: f64,
        tracer: &mut Tracer,
        sink: &mut dyn FnMut(Record),
    ) {
        if self.mode == Mode::Off {
            return;
        }
        for found in self.libraries.scan(pids) {
            self.attach_found(at, found, tracer, sink);
        }
        self.say_unmapped(on_device, sink);
        if self.found.is_empty() {
            return;
        }
        // While something is still being detached, its hits would be taken for those of the rest.
        let settled = self.detaching.done();
        if settled && let Some(measured) = self.meter.tick(at, tracer) {
            let cost = self.cost(measured, others);
            tracing::debug!(?cost, "driver calls");
            if let Some(change) = self.policy.judge(at, cost) {
                self.take(change, tracer, sink);
                self.meter.soon();
            }
        }
        if let Some(change) = self.policy.tick(at, self.detaching.done()) {
            self.take(change, tracer, sink);
            self.meter.soon();
        }
        self.check_bypass(at, tracer, sink);
    }

    /// Every record that is recorded, for what it tells of the driver.
    pub fn see(&mut self, record: &Record) {
        if self.mode == Mode::Off {
            return;
        }
        // From the first record on: a stack that was sent before a library was found is not sent again.
        self.bypass.see(record);
        if let (Runtime::Attached(_), Record::CudaCall(call)) = (&self.runtime, record)
            && !is_runtime_call(&call.name)
        {
            self.driver_is_called = true;
        }
    }

    /// The runtime's entry points where the driver's are not in use, and no longer where they are.
    fn check_bypass(&mut self, at: Ns, tracer: &mut Tracer, sink: &mut dyn FnMut(Record)) {
        let users: HashSet<u32> = self.libraries.users().collect();
        self.bypass.keep(&users);
        for pid in users {
            if self.bypass.knows(pid) {
                continue;
            }
            let code = driver_code(pid);
            // A library that is being mapped may have no code yet.
            if !code.is_empty() {
                self.bypass.maps(pid, code);
            }
        }
        if self.policy.watched() != Watched::All {
            // A lack of hits says nothing where nothing is attached.
            self.bypass.begin(at);
            return;
        }
        match &self.runtime {
            Runtime::Unused if self.bypass.found(at) => self.use_runtime(tracer, sink),
            Runtime::Attached(libraries) if self.driver_is_called => {
                let paths: Vec<_> = libraries.iter().map(Library::attach_path).collect();
                self.detaching.and(tracer.detach_cuda(|path, _| paths.iter().any(|p| p == path)));
                sink(row("cuda_runtime", "the driver's own entry points are in use after all".into()));
                self.runtime = Runtime::Done;
            }
            _ => {}
        }
    }

    fn use_runtime(&mut self, tracer: &mut Tracer, sink: &mut dyn FnMut(Record)) {
        let mut libraries = Vec::new();
        for found in runtimes(self.libraries.users()) {
            match found {
                Ok(library) => libraries.push(library),
                Err(e) => sink(row("cuda_runtime", e.to_string())),
            }
        }
        let driver = "libcuda.so is mapped and at work, but none of its exported functions is called";
        if libraries.is_empty() {
            sink(row("cuda", format!("{driver}, and no libcudart.so is mapped: driver calls are not seen")));
            self.runtime = Runtime::Done;
            return;
        }
        sink(row("cuda", format!("{driver}: library mapped, driver calls seen through runtime only")));
        for library in &libraries {
            for layer in Layer::ALL {
                self.attach(library, layer, tracer, sink);
            }
        }
        self.runtime = Runtime::Attached(libraries);
    }

    /// Share of the machine's processor time that probes on driver calls took when last measured.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.meter.share
    }

    fn attach_found(
        &mut self,
        at: Ns,
        found: Result<Library, LibraryError>,
        tracer: &mut Tracer,
        sink: &mut dyn FnMut(Record),
    ) {
        let library = match found {
            Ok(library) => library,
            Err(e) => return sink(row("cuda", e.to_string())),
        };
        if self.tried.is_none() && !self.try_out(at, tracer, sink) {
            return;
        }
        let name = library.path.display();
        tracing::info!(
            "{name}: {} entry points, {} names absent",
            library.entry_points.len(),
            library.missing.len()
        );
        tracing::debug!("{name}: has no {}", library.missing.join(", "));
        // Of another library nothing is watched either once nothing of the budget is left.
        let begins = self.found.is_empty() && self.policy.watched() == Watched::Nothing;
        let watched = if begins { Watched::All } else { self.policy.watched() };
        for layer in layers(watched) {
            self.attach(&library, *layer, tracer, sink);
        }
        if begins {
            // Attaching takes its time, in which nothing is seen yet.
            let change = self.policy.begin(host::now());
            self.say(change, sink);
        }
        self.found.push(library);
        self.bypass.begin(at);
        self.meter.soon();
    }

    /// Tries probes on ourselves first; `false` if there can be none.
    fn try_out(&mut self, at: Ns, tracer: &mut Tracer, sink: &mut dyn FnMut(Record)) -> bool {
        let tried = match tracer.try_uprobes() {
            Ok(tried) => tried,
            Err(reason) => {
                self.mode = Mode::Off;
                sink(row("cuda", format!("no probe can be put on functions here: {reason}")));
                return false;
            }
        };
        let TrapCost { entry_ns, return_ns } = tried.cost;
        tracing::info!("a probe costs {entry_ns} ns on a call's entry, {return_ns} ns more on its return");
        for (name, value) in [("cuda_trap_entry_ns", entry_ns), ("cuda_trap_return_ns", return_ns)] {
            sink(Record::Counter(Counter { at, name: name.into(), value }));
        }
        if let Some(reason) = tried.no_returns {
            self.returns = false;
            sink(row("cuda_return", format!("{reason}: a call's end is taken from the thread's next")));
        }
        self.detaching.and(tried.detaching);
        self.tried = Some(tried.cost);
        true
    }

    fn attach(&self, library: &Library, layer: Layer, tracer: &mut Tracer, sink: &mut dyn FnMut(Record)) {
        let of_layer = |p: &&EntryPoint| Layer::of(p.family) == layer;
        let points: Vec<_> = library.entry_points.iter().filter(of_layer).cloned().collect();
        let path = library.attach_path();
        let wanted = Attach { library: &path, points: &points, returns: self.returns };
        for status in tracer.attach_driver(wanted) {
            sink(Record::Probe(status));
        }
    }

    fn take(&mut self, change: Change, tracer: &mut Tracer, sink: &mut dyn FnMut(Record)) {
        let wanted = layers(change.watch.watched);
        for layer in Layer::ALL {
            if !wanted.contains(&layer) {
                self.detaching.and(tracer.detach_cuda(|_, l| l == layer));
                continue;
            }
            let runtime = if let Runtime::Attached(libraries) = &self.runtime { &libraries[..] } else { &[] };
            for library in self.found.iter().chain(runtime) {
                if tracer.attached_cuda(&library.attach_path(), layer) == 0 {
                    self.attach(library, layer, tracer, sink);
                }
            }
        }
        self.say(change, sink);
    }

    fn say(&self, change: Change, sink: &mut dyn FnMut(Record)) {
        let CudaWatch { at, watched, reason } = &change.watch;
        if change.step {
            tracing::info!("{reason}");
            sink(Record::Step(GovernorStep { at: *at, what: reason.clone() }));
            if *watched == Watched::Nothing {
                sink(row("cuda", reason.clone()));
            }
        }
        sink(Record::CudaWatch(change.watch));
    }

    fn cost(&mut self, measured: Measured, others: f64) -> Cost {
        let trap = self.tried.unwrap_or_default();
        let share = |runs: Runs| {
            let ns = runs.entries * trap.entry_ns + runs.returns * trap.return_ns + runs.ns;
            ns as f64 / measured.ns as f64 / self.cpus
        };
        let hits = measured.runs.iter().map(|r| r.entries).sum::<u64>() as f64 * 1e9 / measured.ns as f64;
        let [rare, frequent] = measured.runs.map(share);
        self.meter.share = rare + frequent;
        Cost { rare, frequent, others, hits }
    }

    /// A process that works on a device must have the driver somewhere.
    fn say_unmapped(&mut self, on_device: &[u32], sink: &mut dyn FnMut(Record)) {
        for pid in on_device {
            let ticks = self.unmapped.entry(*pid).or_default();
            if *ticks > UNMAPPED {
                continue;
            }
            *ticks = if self.libraries.maps_driver(*pid) { 0 } else { *ticks + 1 };
            if *ticks > UNMAPPED {
                let reason = format!(
                    "process {pid} works on a device and maps no file named libcuda.so: its driver calls are not \
                     seen"
                );
                sink(row("cuda", reason));
            }
        }
        self.unmapped.retain(|pid, _| on_device.contains(pid));
    }
}

fn layers(watched: Watched) -> &'static [Layer] {
    match watched {
        Watched::Nothing => &[],
        Watched::Rare => &[Layer::Rare],
        Watched::Burst | Watched::All => &Layer::ALL,
    }
}

fn row(name: &str, reason: String) -> Record {
    Record::Probe(ProbeStatus { name: name.into(), attached: false, reason })
}

/// Counts runs of the programs by the kernel's own statistics, now and then.
#[derive(Debug, Default)]
struct Meter {
    open: Option<Open>,
    /// Ticks to wait.
    wait: u32,
    share: f64,
}

#[derive(Debug)]
struct Open {
    began: Ns,
    runs: [Runs; 2],
    /// The statistics are kept while this is open.
    _statistics: OwnedFd,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    ns: u64,
    /// By layer, rare first.
    runs: [Runs; 2],
}

impl Meter {
    /// What is attached has changed: what was being measured is void, and the next tick begins anew.
    fn soon(&mut self) {
        (self.open, self.wait) = (None, 0);
    }

    fn tick(&mut self, at: Ns, tracer: &Tracer) -> Option<Measured> {
        let now = || Layer::ALL.map(|layer| tracer.cuda_runs(layer));
        if let Some(open) = self.open.take() {
            self.wait = MEASURE_EVERY;
            let (before, after) = (open.runs, now());
            let runs = [after[0].since(before[0]), after[1].since(before[1])];
            return Some(Measured { ns: at.saturating_sub(open.began).max(1), runs });
        }
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
            Ok(statistics) => self.open = Some(Open { began: at, runs: now(), _statistics: statistics }),
            Err(error) => tracing::debug!(%error, "the kernel keeps no statistics of programs"),
        }
        None
    }
}
