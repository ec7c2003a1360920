//! Shapes of jobs on the simulated device, recorded with the real probes: idle time as it is placed, against
//! when the device was busy. Both are of the same run, so a slow machine changes neither's meaning.

use std::cell::OnceCell;
use std::path::Path;
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::eval::{Score, gaps, score};
use whyidle::idle::{DeviceIdle, Known, locate};
use whyidle::timeline::{build, union};
use whyidle::trace::{Reader, Span, Watched};
use whyidle_tests::binary;
use whyidle_tests::cuda::{BLOCKING_SYNC, Cuda};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::privileged::Child;

/// How long each job is recorded.
const DURATION: &str = "4000ms";
/// Where a call proves the device empty, and elsewhere.
const PROVED: f64 = 0.95;
const INFERRED: f64 = 0.75;

/// A process of a job, which prepares (`once`) and then takes steps for ever, one every `period`.
fn job<T>(
    library: &Path,
    period: Duration,
    once: impl FnOnce(&Cuda) -> T,
    step: impl Fn(&Cuda, &T),
) -> Child {
    let ready = OnceCell::new();
    let prepare = || {
        let cuda = Cuda::load(library, BLOCKING_SYNC);
        let made = once(&cuda);
        assert!(ready.set((cuda, made)).is_ok());
    };
    let steps = || {
        let (cuda, made) = ready.get().expect("prepared");
        let mut next = Instant::now();
        loop {
            step(cuda, made);
            next = (next + period).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    Child::fork_prepared(prepare, steps)
}

/// What was found of a recorded job, and how it compares.
#[derive(Debug)]
struct Found {
    idle: DeviceIdle,
    placed: Score,
    /// Idle as it really was in the device's windows that could be read.
    true_ns: u64,
}

impl Found {
    fn window_ns(&self) -> u64 {
        self.idle.window.len() - self.idle.unknown_ns
    }

    fn known(&self, known: Known) -> u64 {
        self.idle.placed.iter().filter(|p| p.known == known).map(|p| p.span.len()).sum()
    }

    /// Edges were seen, the device's word is its own, and idle time lies where it was.
    #[track_caller]
    fn holds(&self, f1: f64) {
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

/// Lets the job's processes go and records them.
fn record(device: &SimulatedDevice, children: &mut [Child]) -> Found {
    let trace = device.folder().join("trace");
    let mut arguments = vec!["record".to_owned(), "--duration".into(), DURATION.into()];
    arguments.extend([
        "--nvidia-major".into(),
        "4000".into(),
        "--nvml".into(),
        device.nvml().display().to_string(),
    ]);
    arguments.extend(["-o".into(), trace.display().to_string()]);
    for child in &mut *children {
        arguments.extend(["--pid".into(), child.pid.to_string()]);
        child.go();
    }
    let ran = binary::run(&arguments);
    let truth = device.timeline().truth().expect("the truth").remove(0);
    assert_eq!(ran.status, Some(0), "{ran:?}");

    let timeline = build(Reader::open(&trace).expect("a trace").map(|r| r.expect("a record")));
    let idle = locate(&timeline, None).remove(0).idle;
    // Attaching takes a part of a short recording; what is placed without calls is another matter.
    let watched = timeline.cuda_watches.iter().filter(|w| w.watched == Watched::All).map(|w| w.at).max();
    let watched = watched.expect("calls were watched");
    let mut readings = timeline.devices[&0].readings.iter().map(|r| r.span.start);
    let from = readings.find(|&start| start >= watched).expect("a window with calls");
    assert!(
        from < idle.window.end - idle.window.len() / 4,
        "too little was watched: {from} of {:?}",
        idle.window
    );
    let busy = truth.busy.iter().map(|b| Span::new(b.start, b.end));
    // What is not known is nobody's.
    let unknown = idle.unknown.iter().map(|u| u.0);
    let outside = [Span::new(0, idle.window.start), Span::new(idle.window.end, u64::MAX)];
    let idle_truly = gaps(&union(busy.chain(unknown).chain(outside).collect()));
    let watched = Span::new(from, u64::MAX);
    let placed = union(idle.placed.iter().filter_map(|p| p.span.intersect(watched)).collect());
    let true_ns = idle_truly.iter().map(|s| s.len()).sum();
    let idle_truly: Vec<Span> = idle_truly.iter().filter_map(|s| s.intersect(watched)).collect();
    Found { placed: score(&placed, &idle_truly), true_ns, idle }
}

/// A job of one process, recorded on a device of its own.
fn alone<T>(period: Duration, once: impl FnOnce(&Cuda) -> T, step: impl Fn(&Cuda, &T)) -> Found {
    let device = SimulatedDevice::new(&[]);
    let job = job(&device.cuda(), period, once, step);
    record(&device, &mut [job])
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
#[file_serial(probes)]
fn a_job_that_synchronises_every_step() {
    let found = alone(
        ms(25),
        |cuda| cuda.kernel("k_9ms"),
        |cuda, kernel| {
            cuda.launch(*kernel, 0);
            cuda.synchronize();
        },
    );
    found.holds(PROVED);
    assert!(found.known(Known::Drained) > found.idle.idle_ns / 2, "{found:?}");
}

#[test]
#[file_serial(probes)]
fn a_job_that_never_synchronises() {
    let found = alone(
        ms(30),
        |cuda| cuda.kernel("k_700us"),
        |cuda, kernel| {
            for _ in 0..20 {
                cuda.launch(*kernel, 0);
            }
        },
    );
    found.holds(INFERRED);
    assert_eq!(found.known(Known::Drained), 0, "nothing proves anything");
}

#[test]
#[file_serial(probes)]
fn a_job_of_graphs_that_waits_for_each() {
    let once = |cuda: &Cuda| {
        let stream = cuda.stream();
        let kernel = cuda.kernel("k_1ms");
        (cuda.graph(&[kernel; 12], stream), stream)
    };
    let found = alone(ms(30), once, |cuda, (graph, stream)| {
        cuda.launch_graph(*graph, *stream);
        cuda.synchronize_stream("cuStreamSynchronize", *stream);
    });
    found.holds(PROVED);
}

#[test]
#[file_serial(probes)]
fn a_job_on_two_streams_at_once() {
    let once = |cuda: &Cuda| {
        let (short, long) = (cuda.kernel("k_1ms"), cuda.kernel("k_3ms"));
        [(short, cuda.stream()), (long, cuda.stream())]
    };
    let found = alone(ms(30), once, |cuda, streams| {
        for _ in 0..4 {
            for (kernel, stream) in streams {
                cuda.launch(*kernel, *stream);
            }
        }
    });
    found.holds(INFERRED);
}

#[test]
#[file_serial(probes)]
fn two_processes_on_one_device() {
    let device = SimulatedDevice::new(&[]);
    let process = |period, name: &'static str| {
        job(
            &device.cuda(),
            ms(period),
            |cuda| cuda.kernel(name),
            |cuda, kernel| {
                cuda.launch(*kernel, 0);
                cuda.synchronize();
            },
        )
    };
    let mut jobs = [process(30, "k_8ms"), process(43, "k_9ms")];
    record(&device, &mut jobs).holds(PROVED);
}

#[test]
#[file_serial(probes)]
fn a_server_that_only_launches_graphs_and_has_time() {
    let once = |cuda: &Cuda| {
        let stream = cuda.stream();
        let kernel = cuda.kernel("k_500us");
        (cuda.graph(&[kernel; 20], stream), stream)
    };
    let found = alone(ms(28), once, |cuda, (graph, stream)| cuda.launch_graph(*graph, *stream));
    found.holds(INFERRED);
}

#[test]
#[file_serial(probes)]
fn a_saturated_server_that_only_launches_graphs_is_not_idle() {
    let once = |cuda: &Cuda| {
        let stream = cuda.stream();
        let kernel = cuda.kernel("k_5ms");
        // Several in flight, so that the host's own pauses do not reach the device.
        let graphs = [(); 8].map(|()| (cuda.graph(&[kernel; 8], stream), cuda.event()));
        for (graph, event) in &graphs {
            cuda.launch_graph(*graph, stream);
            cuda.record(*event, stream);
        }
        (graphs, stream)
    };
    let found = alone(Duration::ZERO, once, |cuda, (graphs, stream)| {
        for (graph, event) in graphs {
            cuda.wait_for(*event);
            cuda.launch_graph(*graph, *stream);
            cuda.record(*event, *stream);
        }
    });
    assert!(found.idle.submits > 20, "no edges: {found:?}");
    assert!(found.true_ns * 100 < found.window_ns(), "the job itself let the device stand: {found:?}");
    assert!(found.idle.idle_ns * 100 < found.window_ns(), "a busy device was called idle: {found:?}");
}

#[test]
#[file_serial(probes)]
fn launches_by_cu_launch_kernel_ex() {
    let once = |cuda: &Cuda| (cuda.kernel("k_9ms"), cuda.stream());
    let found = alone(ms(25), once, |cuda, (kernel, stream)| {
        cuda.launch_ex("cuLaunchKernelEx", *kernel, *stream);
        cuda.synchronize_stream("cuStreamSynchronize", *stream);
    });
    found.holds(PROVED);
}

#[test]
#[file_serial(probes)]
fn launches_into_a_default_stream_per_thread() {
    let found = alone(
        ms(25),
        |cuda| cuda.kernel("k_9ms"),
        |cuda, kernel| {
            cuda.launch_ex("cuLaunchKernelEx_ptsz", *kernel, 0);
            cuda.synchronize_stream("cuStreamSynchronize_ptsz", 0);
        },
    );
    found.holds(PROVED);
}
