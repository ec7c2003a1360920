//! Which device, which process: several of either on the simulated device, MPS and MIG, recorded with the real
//! probes and compared with what each process really did.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use gpu_sim_timeline::truth::Truth;
use serial_test::file_serial;
use whyidle::idle::{DeviceMap, On, UnknownReason, feeders};
use whyidle_tests::cuda::{BLOCKING_SYNC, Cuda};
use whyidle_tests::device::{SimulatedDevice, mps_server};
use whyidle_tests::library::Library;
use whyidle_tests::privileged::Child;
use whyidle_tests::scenario::{Found, INFERRED, PROVED, Recorded, job, ms, pids, record, set, until_probed};

const MS: u64 = 1_000_000;
/// Two processes that keep one another from the processors: where calls wait for longer than the device was busy,
/// idle time is not placed. What is placed is right all the same.
const SHARED: f64 = 0.85;
const TWO: (&str, &str) = ("WHYIDLE_SIM_DEVICES", "2");
/// Many windows in a short recording.
const SHORT_PERIOD: (&str, &str) = ("WHYIDLE_SIM_PERIOD_US", "100000");

/// A process that launches a kernel and waits for it, on its first device. It is named after the kernel: processes
/// of one name would be the workers of one pool to the report, which merges what they have in common.
fn feeder(library: &Path, period: u64, kernel: &'static str, settings: &[(&str, &str)]) -> Child {
    let prepare = || {
        std::fs::write("/proc/thread-self/comm", kernel).expect("one's own name");
        settings.iter().for_each(|(name, value)| set(name, value));
        let cuda = Cuda::load(library, BLOCKING_SYNC);
        (cuda, cuda.kernel(kernel))
    };
    job(ms(period), prepare, |(cuda, kernel)| {
        cuda.launch(*kernel, 0);
        cuda.synchronize();
    })
}

/// Whose kernel really ended each placed gap, told by how long it lasted, against whom the ledger has: by
/// process, how many gaps it ended and how many of those the ledger gives to it. Kernels that others overlap
/// tell nothing.
fn ended_by(found: &Found, truth: &Truth, kernels: &[(u32, u64)]) -> BTreeMap<u32, (usize, usize)> {
    let mut ended = BTreeMap::new();
    for gap in found.idle.placed.iter().filter(|gap| gap.span.start >= found.from) {
        let Some(submit) = gap.submit else { continue };
        let Some(busy) = truth.busy.iter().find(|busy| busy.end > gap.span.end) else { continue };
        if busy.start < submit {
            // The device was busy there: how much is placed where it was not is told by the score.
            continue;
        }
        let lasted = (busy.end - busy.start) / MS;
        let Some(&(pid, _)) = kernels.iter().find(|(_, kernel)| *kernel == lasted) else { continue };
        let (all, right) = ended.entry(pid).or_default();
        *all += 1;
        *right += usize::from(found.feeder(gap) == Some(pid));
    }
    ended
}

/// Each process ended gaps, and the ledger has nearly all of them as its.
#[track_caller]
fn assert_each_ends_its_own(ended: &BTreeMap<u32, (usize, usize)>, processes: &[u32]) {
    for pid in processes {
        let (all, right) = ended.get(pid).copied().unwrap_or_default();
        assert!(all >= 10 && right * 10 >= all * 9, "{pid}: {ended:?}");
    }
}

/// The report blames these processes, each for some of it, and no others.
#[track_caller]
fn assert_blamed(recorded: &Recorded, device: u32, processes: &[u32]) {
    let blamed = recorded.blamed(device);
    let ns = |pid: u32| blamed.iter().filter(|(of, _)| *of == u64::from(pid)).map(|(_, ns)| ns).sum::<u64>();
    assert!(processes.iter().all(|&pid| ns(pid) > 0), "{processes:?}: {blamed:?}");
    let others = blamed.iter().filter(|(pid, _)| processes.iter().all(|p| u64::from(*p) != *pid));
    assert_eq!(others.count(), 0, "{processes:?}: {blamed:?}");
}

#[track_caller]
fn assert_inferred(found: &Found, inferred: bool) {
    assert!(!found.idle.placed.is_empty());
    // A launch made when the probes had come and its context had been set before is on either device.
    let first_ones = found.from + 200 * MS;
    let other =
        found.idle.placed.iter().find(|p| p.device_inferred != inferred && p.span.start >= first_ones);
    assert_eq!(other, None, "of {} placed from {}", found.idle.placed.len(), found.from);
}

#[test]
#[file_serial(probes)]
fn on_a_shared_device_the_gap_is_whose_kernel_ends_it() {
    let device = SimulatedDevice::new(&[]);
    let mut jobs = [feeder(&device.cuda(), 50, "k_8ms", &[]), feeder(&device.cuda(), 71, "k_13ms", &[])];
    let [first, second] = [0, 1].map(|i| jobs[i].pid);
    let select = pids(&jobs);
    let recorded = record(&device, &mut jobs, &select, "4000ms");
    let found = recorded.found(0);
    found.holds(SHARED);
    assert!(found.placed.precision >= PROVED, "{found:?}");
    assert_inferred(&found, false);
    let ended = ended_by(&found, &recorded.truth[0], &[(first, 8), (second, 13)]);
    assert_each_ends_its_own(&ended, &[first, second]);
    assert_blamed(&recorded, 0, &[first, second]);
}

/// A process with a context on each of two devices, by CUDA's ordinals.
struct Pair {
    cuda: Library,
    contexts: [usize; 2],
    kernels: [usize; 2],
    turn: Cell<usize>,
}

impl Pair {
    fn load(library: &Path) -> Library {
        let cuda = Library::load(library);
        cuda.ok("cuInit", &[0]);
        cuda
    }

    /// Kernels of 9 ms on the first of its devices, of 4 ms on the other.
    fn new(cuda: Library) -> Self {
        let contexts = [0, 1].map(|ordinal| cuda.made("cuCtxCreate_v2", &[BLOCKING_SYNC, ordinal]));
        let kernels = [(0, "k_9ms"), (1, "k_4ms")].map(|(at, name)| {
            cuda.ok("cuCtxSetCurrent", &[contexts[at]]);
            cuda.function(name)
        });
        Self { cuda, contexts, kernels, turn: Cell::new(0) }
    }

    fn launch(&self, at: usize) {
        self.cuda.ok("cuCtxSetCurrent", &[self.contexts[at]]);
        self.cuda.launch(self.kernels[at], [1; 3], 0);
    }

    fn wait(&self, at: usize) {
        self.cuda.ok("cuCtxSetCurrent", &[self.contexts[at]]);
        self.cuda.ok("cuCtxSynchronize", &[]);
    }

    /// Twenty steps on one device, then twenty on the other.
    fn in_turns(&self) {
        let turn = self.turn.replace(self.turn.get() + 1);
        let at = turn / 20 % 2;
        self.launch(at);
        self.wait(at);
    }

    fn in_step(&self) {
        [0, 1].into_iter().for_each(|at| self.launch(at));
        [0, 1].into_iter().for_each(|at| self.wait(at));
    }
}

/// Records a process with two devices for some seconds.
fn on_two(prepare: impl FnOnce(&Path) -> Pair, step: impl Fn(&Pair)) -> (u32, Recorded) {
    let device = SimulatedDevice::new(&[TWO, SHORT_PERIOD]);
    let mut jobs = [job(ms(20), || prepare(&device.cuda()), step)];
    let select = pids(&jobs);
    let recorded = record(&device, &mut jobs, &select, "6000ms");
    (jobs[0].pid, recorded)
}

/// How many of the submits to these kernels lie on each device, as the ledger has it and in truth.
fn submits(recorded: &Recorded) -> [(u64, usize); 2] {
    [0, 1].map(|device| {
        let found = recorded.found(device);
        let window = found.idle.window;
        let busy = &recorded.truth[device as usize].busy;
        (found.idle.submits, busy.iter().filter(|b| b.start >= found.from && b.end <= window.end).count())
    })
}

#[test]
#[file_serial(probes)]
fn readings_tell_apart_two_devices_that_work_at_different_times() {
    // CUDA counts them the other way round, and the contexts are older than the recording.
    let prepare = |library: &Path| {
        set("CUDA_VISIBLE_DEVICES", "1,0");
        Pair::new(Pair::load(library))
    };
    let (pid, recorded) = on_two(prepare, Pair::in_turns);
    assert_eq!(recorded.timeline.cuda_contexts, []);
    for (device, lasted) in [(0, 4), (1, 9)] {
        let truth = &recorded.truth[device as usize];
        // The last was cut by the look at it.
        let (_, whole) = truth.busy.split_last().expect("work");
        let other: Vec<_> = whole.iter().filter(|b| (b.end - b.start) / MS != lasted).collect();
        assert!(other.len() * 20 <= whole.len(), "the job is another: {other:?}");
        let found = recorded.found(device);
        found.holds(INFERRED);
        assert_inferred(&found, false);
        let ended = ended_by(&found, truth, &[(pid, lasted)]);
        assert_each_ends_its_own(&ended, &[pid]);
        assert_blamed(&recorded, device, &[pid]);
    }
    for (given, true_count) in submits(&recorded) {
        assert!(given.abs_diff(true_count as u64) * 10 <= given, "{:?}", submits(&recorded));
    }
}

/// Contexts made where the probes are in place already.
fn under_probes(library: &Path, pair: &std::cell::OnceCell<Pair>) {
    if pair.get().is_none() {
        let cuda = Pair::load(library);
        until_probed(&cuda, "cuCtxSetCurrent");
        assert!(pair.set(Pair::new(cuda)).is_ok());
    }
}

#[test]
#[file_serial(probes)]
fn contexts_seen_when_they_are_made_tell_apart_devices_that_work_in_step() {
    let device = SimulatedDevice::new(&[TWO, SHORT_PERIOD]);
    let library = device.cuda();
    let prepare = || {
        let _mapped = Library::load(&library);
        std::cell::OnceCell::new()
    };
    let step = |pair: &std::cell::OnceCell<Pair>| {
        under_probes(&library, pair);
        pair.get().expect("made").in_step();
    };
    let mut jobs = [job(ms(20), prepare, step)];
    let (pid, select) = (jobs[0].pid, pids(&jobs));
    let recorded = record(&device, &mut jobs, &select, "5000ms");
    let ordinals: Vec<_> = recorded.timeline.cuda_contexts.iter().map(|c| (c.pid, c.ordinal)).collect();
    assert_eq!(ordinals, [(pid, 0), (pid, 1)]);
    for (device, lasted) in [(0, 9), (1, 4)] {
        let found = recorded.found(device);
        found.holds(PROVED);
        assert_inferred(&found, false);
        let ended = ended_by(&found, &recorded.truth[device as usize], &[(pid, lasted)]);
        assert_each_ends_its_own(&ended, &[pid]);
    }
}

#[test]
#[file_serial(probes)]
fn what_nothing_tells_apart_is_said_to_be_inferred() {
    let (pid, recorded) = on_two(|library| Pair::new(Pair::load(library)), Pair::in_step);
    assert_eq!(recorded.timeline.cuda_contexts, []);
    for device in [0, 1] {
        assert_inferred(&recorded.found(device), true);
        assert_blamed(&recorded, device, &[pid]);
    }
}

/// A server as it comes with the simulated device, until it is dropped.
struct Server(std::process::Child);

impl Server {
    fn start(device: &SimulatedDevice) -> Self {
        let mut command = Command::new(mps_server());
        command.env("WHYIDLE_SIM", device.shared()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("WHYIDLE_SIM_DEVICES", "2");
        let mut child = command.spawn().expect("the server, which is built with the simulated device");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut said).expect("readable");
        assert_eq!(said, "ready\n");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
#[file_serial(probes)]
fn an_mps_server_feeds_nothing_and_its_clients_end_the_gaps() {
    let device = SimulatedDevice::new(&[TWO]);
    let server = Server::start(&device);
    let client = [("WHYIDLE_SIM_MPS", "client"), ("CUDA_VISIBLE_DEVICES", "1")];
    let mut jobs =
        [feeder(&device.cuda(), 50, "k_8ms", &client), feeder(&device.cuda(), 71, "k_13ms", &client)];
    let [first, second] = [0, 1].map(|i| jobs[i].pid);
    let recorded = record(&device, &mut jobs, &["--gpu-procs".into()], "4000ms");
    let (timeline, server) = (&recorded.timeline, server.0.id());
    // It was found by the device's lists, and watched, as its clients were.
    for pid in [server, first, second] {
        assert!(timeline.devices[&1].processes.iter().any(|p| p.pid == pid), "{pid} is in no list");
        assert!(timeline.threads.values().any(|t| t.pid == pid), "{pid} was not watched");
    }
    let map = DeviceMap::new(timeline);
    assert!(map.is_between(server) && map.of_process(server).is_none());
    let fed = |device| {
        let (threads, inferred) = feeders(timeline, &map, device);
        let mut pids: Vec<u32> = threads.iter().map(|t| t.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        (pids, inferred)
    };
    let mut clients = vec![first, second];
    clients.sort_unstable();
    assert_eq!([fed(0), fed(1)], [(vec![], false), (clients, false)]);
    let found = recorded.found(1);
    found.holds(SHARED);
    assert!(found.placed.precision >= PROVED, "{found:?}");
    assert_inferred(&found, false);
    let ended = ended_by(&found, &recorded.truth[1], &[(first, 8), (second, 13)]);
    assert_each_ends_its_own(&ended, &[first, second]);
    assert_blamed(&recorded, 1, &[first, second]);
    assert_blamed(&recorded, 0, &[]);
}

/// A process in each of two instances, recorded.
fn on_instances(settings: &[(&str, &str)]) -> ([u32; 2], [Truth; 2], Recorded) {
    let device = SimulatedDevice::new(settings);
    let instance = |number| [("WHYIDLE_SIM_INSTANCE", number)];
    let mut jobs = [
        feeder(&device.cuda(), 50, "k_8ms", &instance("0")),
        feeder(&device.cuda(), 31, "k_13ms", &instance("1")),
    ];
    let (pids_of, select) = ([jobs[0].pid, jobs[1].pid], pids(&jobs));
    let recorded = record(&device, &mut jobs, &select, "4000ms");
    let timeline = device.timeline();
    let truth = [0, 1].map(|instance| timeline.truth_of_instance(0, instance).expect("the truth"));
    (pids_of, truth, recorded)
}

#[test]
#[file_serial(probes)]
fn instances_that_are_measured_have_gaps_of_their_own() {
    let settings = [("WHYIDLE_SIM_NVML", "mig=2"), ("WHYIDLE_SIM_GPM", "1")];
    let (pids, truth, recorded) = on_instances(&settings);
    // Of the device as a whole nothing is known, and nobody's calls are for it.
    let whole = &recorded.timeline.devices[&0];
    assert!(whole.readings.iter().all(|r| r.busy_percent.is_none()) && whole.processes.is_empty());
    for ((device, pid), (truth, lasted)) in [1, 2].into_iter().zip(pids).zip(truth.iter().zip([8, 13])) {
        let found = recorded.compared(device, truth);
        found.holds(PROVED);
        assert_inferred(&found, false);
        let ended = ended_by(&found, truth, &[(pid, lasted)]);
        assert_each_ends_its_own(&ended, &[pid]);
        assert_blamed(&recorded, device, &[pid]);
    }
}

#[test]
#[file_serial(probes)]
fn instances_that_are_not_measured_are_unknown_and_keep_their_processes() {
    let (pids, _, recorded) = on_instances(&[("WHYIDLE_SIM_NVML", "mig=2")]);
    let map = DeviceMap::new(&recorded.timeline);
    for (device, pid) in [1, 2].into_iter().zip(pids) {
        let found = recorded.compared(device, &Truth::default());
        let idle = &found.idle;
        assert_eq!((idle.idle_ns, idle.busy_ns, idle.unknown_ns), (0, 0, idle.window.len()));
        assert!(idle.unknown.iter().all(|(_, why)| *why == UnknownReason::Mig), "{:?}", idle.unknown);
        assert!(idle.submits > 20, "{found:?}");
        assert_eq!(map.of_process(pid).and_then(On::only), Some(device));
        assert_eq!(recorded.blamed(device), []);
    }
}
