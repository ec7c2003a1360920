//! The door to the kernel side: load, attach, targets, drain, detach.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use aya::maps::MapData;
use aya::{Ebpf, maps};
use tracer_ebpf::wire::{CudaState, PythonLayout, PythonThread, RunState, ThreadState};

use super::CaptureError;
use super::adopt::Adoption;
use super::btf::Kernel;
use super::copies::Copies;
use super::decode::Decoder;
use super::ioctls::Ioctls;
use super::kallsyms::Entries;
use super::log::{self, KernelLog};
use super::now::now;
use super::pool::Pool;
use super::python::Pythons;
use super::reads::Reads;
use super::rings::Rings;
use super::tables::{Tables, take};
use super::targets::{self, Pids};
use super::tracer_python::named;
use super::undo::Detaching;
use super::unwind::{Unwinder, Unwinding};
use super::uprobes::Uprobes;
use super::{load, misses, open, probes};
use crate::capture::host;
use crate::trace::{Loss, LossCause, LossClass, Ns, ProbeStatus, Record, TargetKind};

pub use super::config::Config;

/// Losses go out at most this often.
const LOSSES_EVERY: Ns = 1_000_000_000;

/// Longer than any program runs.
const LAST_RUN: Duration = Duration::from_millis(2);

/// The attached kernel side. Dropping it detaches everything.
pub struct Tracer {
    pub(super) uprobes: Uprobes,
    ebpf: Ebpf,
    rings: Rings,
    tables: Tables,
    pub(super) pids: Pids,
    pub(super) threads: maps::HashMap<MapData, u32, ThreadState>,
    cuda: maps::HashMap<MapData, u32, CudaState>,
    runs: maps::HashMap<MapData, u32, RunState>,
    reads: Reads,
    /// `None`: stacks are walked by frame pointers alone.
    unwinder: Option<Unwinder>,
    pub(super) python: Pythons,
    pub(super) python_wanted: bool,
    pub(super) python_threads: maps::HashMap<MapData, u32, PythonThread>,
    pub(super) python_layouts: maps::Array<MapData, PythonLayout>,
    /// Of the rows in `python_layouts`, those that are filled.
    pub(super) python_known: usize,
    pub(super) decoder: Decoder,
    adoption: Adoption,
    ioctls: Ioctls,
    pub(super) probes: Vec<ProbeStatus>,
    /// Records made here, handed out with the next drain.
    pending: Vec<Record>,
    /// Processes with targets, for the last look at `/proc`.
    processes: HashSet<u32>,
    misses: misses::Misses,
    log: Option<KernelLog>,
    losses_at: Ns,
    undecodable: u64,
    all: bool,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("probes", &self.probes).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Loads the object for the running kernel and attaches every probe that can be.
    ///
    /// # Errors
    /// Not root, no BTF, kernel too old, or nothing at all could be attached.
    pub fn attach(config: &Config) -> Result<Self, CaptureError> {
        load::check()?;
        let kernel = Kernel::running()?;
        let (mut ebpf, btf, globals) = load::load(config, &kernel)?;
        load::fill_tables(&mut ebpf, config)?;
        let mut copies = Copies::new(&ebpf, globals)
            .map_err(|e| CaptureError::Kernel { what: "uprobe programs".into(), source: e.into() })?;
        let attached_at = now();
        let log = log::open(&mut ebpf);
        let rings = Rings::new(&mut ebpf)?;
        let mut tables = Tables::new(&mut ebpf, attached_at)?;
        tables.set_threshold_ns(config.threshold_ns)?;
        let pids = Pids::new(&mut ebpf)?;
        // Maps that are not needed stay where they are: without them no program could be loaded.
        let unwinder = if config.tables { Some(unwinder(&mut ebpf)?) } else { None };
        let threads = take(&mut ebpf, "THREADS")?;
        let cuda = take(&mut ebpf, "CUDA")?;
        let runs = take(&mut ebpf, "RUNS")?;
        let python_threads = take(&mut ebpf, "PYTHON")?;
        let python_layouts = take(&mut ebpf, "PYTHON_LAYOUTS")?;
        let cpus = aya::util::online_cpus()
            .map_err(|(path, e)| CaptureError::Kernel { what: path.into(), source: Box::new(e) })?;
        let statuses = probes::attach(&mut ebpf, &btf, &kernel, config.sample_hz, &cpus);
        if let Some(first) = statuses.first()
            && statuses.iter().all(|s| !s.attached)
        {
            return Err(CaptureError::NoProbe { reason: format!("{}: {}", first.name, first.reason) });
        }
        copies.take_types(&ebpf);
        let driver = host::has_majors(&config.nvidia_majors);
        let ioctls = Ioctls::new(&mut ebpf, &statuses, config.ioctls, driver, attached_at)?;
        let reads = Reads::new(&mut ebpf, config.reads, &statuses)?;
        let mut tracer = Self {
            uprobes: Uprobes::new(copies, load::uprobe_links(config, &kernel)),
            rings,
            tables,
            pids,
            threads,
            cuda,
            runs,
            reads,
            unwinder,
            python: Pythons::default(),
            python_wanted: config.python,
            python_threads,
            python_layouts,
            python_known: 0,
            decoder: Decoder::new(Entries::running(), attached_at),
            adoption: Adoption::new(config.adopt_cap),
            ioctls,
            probes: statuses,
            pending: Vec::new(),
            processes: HashSet::new(),
            misses: misses::Misses::default(),
            log,
            losses_at: attached_at,
            undecodable: 0,
            all: config.all,
            ebpf,
        };
        tracer.watch_syscalls(attached_at)?;
        if config.all {
            for pid in targets::processes() {
                tracer.add_process(pid, TargetKind::Named)?;
            }
        }
        Ok(tracer)
    }

    /// Which probes are in place, and why the others are not.
    #[must_use]
    pub fn probes(&self) -> Vec<ProbeStatus> {
        self.probes.clone()
    }

    /// Time the kernel spent in each program and how often it ran, as `(name, ns, runs)`; zeros unless the
    /// kernel's statistics are on (`aya::sys::enable_stats`).
    #[must_use]
    pub fn run_times(&self) -> Vec<(String, u64, u64)> {
        let own = self.ebpf.programs().filter_map(|(name, program)| {
            let info = program.info().ok()?;
            Some((name.to_owned(), u64::try_from(info.run_time().as_nanos()).ok()?, info.run_count()))
        });
        let copies = self.uprobes.infos().into_iter().map(|(name, i)| (name.to_owned(), i.run_ns, i.runs));
        own.chain(copies).collect()
    }

    /// Changes [`Config::threshold_ns`] while recording.
    ///
    /// # Errors
    /// A map could not be written.
    pub fn set_threshold_ns(&mut self, ns: u64) -> Result<(), CaptureError> {
        self.tables.set_threshold_ns(ns)
    }

    /// One CPU sample in `every` is taken from now on, and stands for as many periods.
    ///
    /// # Errors
    /// A map could not be written.
    pub fn set_sample_every(&mut self, every: u64) -> Result<(), CaptureError> {
        self.tables.set_sample_every(every)
    }

    /// Of so many stays that follow one shorter than the threshold the user stack of one is walked from now on.
    ///
    /// # Errors
    /// A map could not be written.
    pub fn set_stack_every(&mut self, every: u64) -> Result<(), CaptureError> {
        self.tables.set_stack_every(every)
    }

    /// System calls are watched no more, but where that was asked for.
    pub fn stop_bursts(&mut self) {
        self.reads.stop_bursts(&mut self.ebpf);
        self.ioctls.stop_bursts(&mut self.ebpf);
    }

    /// Takes one program out while the others go on; `false` if it was not in place.
    pub fn detach_probe(&mut self, program: &str, reason: &str) -> bool {
        let Some(status) = self.probes.iter_mut().find(|s| s.name == program && s.attached) else {
            return false;
        };
        if !probes::detach_one(&mut self.ebpf, program) {
            return false;
        }
        status.attached = false;
        status.reason = reason.into();
        true
    }

    /// Kernel ids of the loaded programs.
    #[must_use]
    pub fn program_ids(&self) -> Vec<u32> {
        let own = self.ebpf.programs().filter_map(|(_, p)| p.info().ok()).map(|info| info.id());
        own.chain(self.uprobes.infos().into_iter().filter_map(|(_, info)| info.program)).collect()
    }

    /// Instructions the verifier walked for each loaded program (its limit is a million).
    #[must_use]
    pub fn verified(&self) -> Vec<(String, u32)> {
        let count = |p: &aya::programs::Program| p.info().ok()?.verified_instruction_count();
        self.ebpf.programs().filter_map(|(name, p)| Some((name.to_owned(), count(p)?))).collect()
    }

    /// Makes all threads of a process targets; children and new threads inherit it in the kernel.
    /// A process that is gone, and the tracer's own, are left out.
    ///
    /// # Errors
    /// The target map is full.
    pub fn add_process(&mut self, pid: u32, kind: TargetKind) -> Result<(), CaptureError> {
        if pid == std::process::id() {
            return Ok(());
        }
        self.processes.insert(pid);
        self.decoder.faults.add(now(), pid);
        // Threads born while the list was read are on the next one, or children of targets already.
        loop {
            let mut added = false;
            for tid in targets::threads(pid) {
                if self.pids.contains(tid) {
                    continue;
                }
                let at = now();
                let Some(seen) = targets::identity(at, pid, tid, kind) else { continue };
                added |= self.pids.add(tid);
                self.decoder.since.insert(seen.key, at);
                self.pending.push(Record::Thread(seen));
            }
            if !added {
                return Ok(());
            }
        }
    }

    /// Waits until a ring holds enough to be worth a wake-up, or for `timeout`.
    ///
    /// # Errors
    /// `poll` failed.
    pub fn wait(&self, timeout: Duration) -> Result<(), CaptureError> {
        self.rings.wait(timeout)
    }

    /// Hands over every record now in the rings, in the order of their rings (not of time).
    ///
    /// # Errors
    /// A ring could not be read.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let at = now();
        for record in self.pending.drain(..) {
            self.python.see(at, &record);
            if let Some(unwinder) = &self.unwinder {
                unwinder.see(&record);
            }
            sink(record);
        }
        let Self { rings, decoder, adoption, processes, undecodable, pids, python, reads, unwinder, .. } =
            self;
        rings.drain(|bytes| match named(python, bytes).map_or_else(|| decoder.decode(bytes), Ok) {
            Ok(record) => {
                if let Record::Thread(seen) = &record
                    && seen.kind == TargetKind::Inherited
                {
                    processes.insert(seen.pid);
                }
                python.see(at, &record);
                if let Some(unwinder) = unwinder {
                    unwinder.see(&record);
                }
                reads.see(&record);
                let adopted = adoption.see(&record, pids);
                sink(record);
                if let Some(seen) = adopted {
                    decoder.since.insert(seen.key, seen.at);
                    processes.insert(seen.pid);
                    sink(Record::Thread(seen));
                }
            }
            Err(error) => {
                *undecodable += 1;
                tracing::debug!(%error, "a record from the kernel");
            }
        });
        Ok(())
    }

    /// Flushes the kernel's tables: totals, block devices, who ran instead. Call every tick.
    /// Losses go out with it, at most once a second.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn tick(&mut self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let at = now();
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.reads.before_turn(&mut self.ebpf, at);
        self.ioctls.before_turn(&mut self.ebpf, at);
        let turn = self.tables.flush(at, sink)?;
        self.ioctls.flush(turn, sink)?;
        self.reads.flush(turn, sink)?;
        self.watch_syscalls(at)?;
        self.decoder.faults.tick(at, sink);
        self.look_at_pythons(at);
        self.python.lost(at).into_iter().for_each(&mut *sink);
        if at >= self.losses_at + LOSSES_EVERY {
            self.losses(at, sink)?;
        }
        Ok(())
    }

    fn watch_syscalls(&mut self, at: Ns) -> Result<(), CaptureError> {
        self.reads.after_turn(&mut self.ebpf, at)?;
        self.ioctls.after_turn(&mut self.ebpf, at)
    }

    /// How far the tables are that user stacks are walked by.
    #[must_use]
    pub fn unwinding(&self) -> Unwinding {
        self.unwinder.as_ref().map(Unwinder::so_far).unwrap_or_default()
    }

    fn losses(&mut self, at: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        self.losses_at = at;
        self.tables.losses(at, sink)?;
        self.misses.read(&self.ebpf, &self.uprobes, at, sink);
        if self.undecodable > 0 {
            let count = std::mem::take(&mut self.undecodable);
            let (class, cause) = (LossClass::OffCpu, LossCause::Undecodable);
            sink(Record::Loss(Loss { at, class, cpu: None, cause, count, ns_at_risk: 0 }));
        }
        Ok(())
    }

    /// Detaches, then hands over what is still open: waits (as `cut_end`), runs of submits, last losses.
    /// Driver functions go on being let go of behind the caller's back, until what is returned is dropped.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn finish(mut self, sink: &mut dyn FnMut(Record)) -> Result<Detaching, CaptureError> {
        // `/proc` is asked while the threads still are what they were.
        let end = now();
        let switched = open::switched(&self.threads);
        let sleepers = open::look(&self.processes, &self.pids, self.all);
        // Skipped runs are counted at the programs, which are gone after this.
        self.misses.read(&self.ebpf, &self.uprobes, end, sink);
        let ids = self.program_ids();
        let mut detaching = self.uprobes.detach_all();
        detaching.expect_gone(ids, Vec::new());
        probes::detach(&mut self.ebpf);
        // A program may be in the middle of a record, behind which a ring cannot be read.
        std::thread::sleep(LAST_RUN);
        self.drain(sink)?;
        let turn = self.tables.flush(now(), sink)?;
        self.tables.rest(end, sink)?;
        self.ioctls.flush(turn, sink)?;
        self.ioctls.rest(end, sink)?;
        self.reads.flush(turn, sink)?;
        self.reads.rest(sink)?;
        self.decoder.faults.finish(end, sink);
        self.losses(now(), sink)?;
        open::waits(&self.threads, &self.decoder, sleepers, &switched, end, sink)?;
        open::cuda(&self.cuda, &self.runs, &mut self.decoder, sink)?;
        Ok(detaching)
    }
}

fn unwinder(ebpf: &mut Ebpf) -> Result<Unwinder, CaptureError> {
    Unwinder::start(Pool::new(ebpf)?)
        .map_err(|e| CaptureError::Kernel { what: "a thread".into(), source: Box::new(e) })
}
