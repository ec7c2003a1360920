//! Shapes of jobs on the simulated device, recorded with the real probes: idle time as it is placed, against
//! when the device was busy. Both are of the same run, so a slow machine changes neither's meaning.

use std::time::Duration;

use serial_test::file_serial;
use whyidle::idle::Known;
use whyidle_tests::cuda::{BLOCKING_SYNC, Cuda};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::scenario::{Found, INFERRED, PROVED, job, ms, pids, record};

/// How long each job is recorded.
const DURATION: &str = "4000ms";

/// A job of one process, recorded on a device of its own.
fn alone<T>(period: Duration, once: impl FnOnce(&Cuda) -> T, step: impl Fn(&Cuda, &T)) -> Found {
    let device = SimulatedDevice::new(&[]);
    let prepare = || {
        let cuda = Cuda::load(&device.cuda(), BLOCKING_SYNC);
        let made = once(&cuda);
        (cuda, made)
    };
    let mut jobs = [job(period, prepare, |(cuda, made)| step(cuda, made))];
    let select = pids(&jobs);
    record(&device, &mut jobs, &select, DURATION).found(0)
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
