//! Driver calls on the simulated device, as the probes see them: each family and its fields.

use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::trace::{CopyDirection, CudaContext, CudaFamily, Record, SubmitGroup};
use whyidle_tests::board::Board;
use whyidle_tests::calls::{calls, groups, runs, sums_hold, watched};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::library::{LaunchConfig, Library};
use whyidle_tests::privileged::Child;

const MS: u64 = 1_000_000;
const MIB: usize = 1 << 20;
const NOT_READY: i32 = 600;
/// A run as old as this ends when a kind finds all its groups taken.
const FULL_NS: u64 = MS;

#[test]
#[file_serial(probes)]
fn launches_say_function_grid_and_stream() {
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(4, 0);
        for (at, made) in
            [cuda.function("a_1us"), cuda.function("b_1us"), cuda.stream()].into_iter().enumerate()
        {
            board.set(at, made as u64);
        }
    };
    let scenario = |cuda: &Library| {
        let [a, b, stream] = [0, 1, 2].map(|at| board.get(at) as usize);
        for _ in 0..5 {
            cuda.launch(a, [3, 4, 5], stream);
            cuda.launch(b, [3, 4, 5], 0);
        }
        cuda.ok("cuLaunchKernel_ptsz", &[a, 1, 1, 1, 1, 1, 1, 0, 0]);
        cuda.ok("cuLaunchCooperativeKernel", &[b, 70_000, 1, 1, 1, 1, 1, 0, stream]);
        let config = LaunchConfig { grid: [7, 8, 9], block: [1; 3], stream, ..LaunchConfig::default() };
        cuda.ok("cuLaunchKernelEx", &[(&raw const config).addr(), b]);
        let config = LaunchConfig { stream: 0, ..config };
        cuda.ok("cuLaunchKernelEx_ptsz", &[(&raw const config).addr(), b]);
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    let [a, b, stream] = [0, 1, 2].map(|at| board.get(at));
    let count = |function: u64, grid: [u32; 3], stream: u64| {
        let alike = |g: &&&SubmitGroup| (g.function, g.grid, g.stream) == (function, grid, stream) && !g.rest;
        groups(&seen).iter().filter(alike).map(|g| g.count).sum::<u64>()
    };
    assert_eq!(count(a, [3, 4, 5], stream), 5);
    assert_eq!(count(b, [3, 4, 5], 0), 5);
    assert_eq!(count(a, [1, 1, 1], 2), 1, "the thread's own stream");
    assert_eq!(count(b, [70_000, 1, 1], stream), 1);
    assert_eq!(count(b, [7, 8, 9], stream), 1);
    assert_eq!(count(b, [7, 8, 9], 2), 1);
    assert_eq!(runs(&seen).iter().map(|r| r.launches).sum::<u64>(), 14);
    let timed: u64 = groups(&seen).iter().map(|g| g.timed).sum();
    assert!(timed == 14 && groups(&seen).iter().all(|g| g.call_ns > 0), "returns are seen: {timed}");
}

#[test]
#[file_serial(probes)]
fn ten_thousand_launches_are_few_records() {
    const LAUNCHES: u64 = 10_000;
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(0, 0);
        board.set(0, cuda.function("k_1ns") as u64);
    };
    let scenario = |cuda: &Library| {
        // More grids than a run has groups.
        for i in 0..LAUNCHES as usize {
            cuda.launch(board.get(0) as usize, [1 + i % 50, 1, 1], 0);
        }
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    let runs = runs(&seen);
    assert_eq!(runs.iter().map(|r| r.launches).sum::<u64>(), LAUNCHES);
    // A thread that is kept from running makes silences too, so not as few as there might be.
    let records = runs.len() + calls(&seen, CudaFamily::Launch).len();
    assert!(records as u64 * 10 < LAUNCHES, "{records} records");
    let rest: Vec<_> = groups(&seen).into_iter().filter(|g| g.rest).collect();
    assert!(!rest.is_empty() && rest.iter().all(|g| g.function == 0 && g.grid == [0; 3]), "{rest:?}");
    assert!(runs.windows(2).all(|w| w[0].last < w[1].first), "in order, apart");
    for run in &runs {
        let late = run.groups.iter().find(|g| g.rest && g.last - run.first >= FULL_NS);
        assert!(late.is_none(), "the rest of a run this old is the next run's: {late:?}");
    }
}

#[test]
#[file_serial(probes)]
fn a_run_ends_when_a_kind_finds_no_room() {
    const LAUNCHES: usize = 2_000;
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(0, 0);
        board.set(0, cuda.function("k_1ns") as u64);
    };
    let scenario = |cuda: &Library| {
        for i in 0..LAUNCHES {
            cuda.launch(board.get(0) as usize, [1 + i % 50, 1, 1], 0);
            // So that 32 of them take longer than a full run is kept for.
            let next = Instant::now() + Duration::from_micros(40);
            while Instant::now() < next {
                std::hint::spin_loop();
            }
        }
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    let groups = groups(&seen);
    assert!(groups.iter().all(|g| !g.rest), "each launch keeps its kind");
    assert_eq!(groups.iter().map(|g| g.count).sum::<u64>(), LAUNCHES as u64);
    assert!(runs(&seen).iter().any(|r| r.groups.len() == 32), "runs are full");
    let timed: u64 = groups.iter().map(|g| g.timed).sum();
    assert_eq!(timed, LAUNCHES as u64, "the call that begins a run is timed in it");
}

#[test]
#[file_serial(probes)]
fn copies_say_direction_bytes_and_whether_pinned() {
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    // In a process that begins while it is watched, so that all that was pinned is known.
    let scenario = |cuda: &Library| {
        let inner = Child::fork(|| {
            let _context = cuda.context(4, 0);
            let (bytes, stream) = (4 * MIB, cuda.stream());
            let on_device = cuda.made("cuMemAlloc_v2", &[bytes]);
            let pinned = cuda.made("cuMemHostAlloc", &[bytes, 0]);
            let registered = vec![1_u8; bytes];
            let pageable = vec![2_u8; bytes];
            cuda.ok("cuMemHostRegister_v2", &[registered.as_ptr().addr(), bytes, 0]);
            cuda.ok("cuMemcpyHtoDAsync_v2", &[on_device, pinned, bytes, stream]);
            cuda.ok("cuStreamSynchronize", &[stream]);
            cuda.ok("cuMemcpyHtoD_v2", &[on_device, pinned + 8, bytes - 8]);
            cuda.ok("cuMemcpyHtoD_v2", &[on_device, registered.as_ptr().addr(), bytes]);
            cuda.ok("cuMemcpyDtoH_v2_ptds", &[pageable.as_ptr().addr(), on_device, bytes]);
            cuda.ok("cuMemcpyHtoDAsync_v2", &[on_device, pageable.as_ptr().addr(), bytes / 2, stream]);
            cuda.ok("cuMemcpyAsync", &[on_device, pinned, 16, stream]);
            cuda.ok("cuStreamSynchronize", &[stream]);
            board.set(0, stream as u64);
        });
        let mut inner = inner;
        inner.go();
        assert!(inner.finished(Duration::from_secs(30)), "the copies are made");
    };
    let Some(seen) = watched(&[&device.cuda()], |_| {}, scenario) else { return };
    sums_hold(&seen);
    let stream = board.get(0);
    let total = |direction: CopyDirection, stream: u64| {
        let alike = |g: &&&SubmitGroup| g.direction == Some(direction) && g.stream == stream;
        let all = groups(&seen);
        let alike: Vec<_> = all.iter().filter(alike).collect();
        (alike.iter().map(|g| g.count).sum::<u64>(), alike.iter().map(|g| g.bytes).sum::<u64>())
    };
    let mib = MIB as u64;
    assert_eq!(total(CopyDirection::HostToDevice, stream), (2, 6 * mib));
    assert_eq!(total(CopyDirection::HostToDevice, 0), (2, 8 * mib - 8));
    assert_eq!(total(CopyDirection::DeviceToHost, 2), (1, 4 * mib));
    assert_eq!(total(CopyDirection::Unified, stream), (1, 16));
    let copies = calls(&seen, CudaFamily::Copy);
    let pinned = |name: &str, bytes: usize| {
        let call = copies.iter().find(|c| c.name == name && c.bytes == bytes as u64);
        call.unwrap_or_else(|| panic!("{name} of {bytes}: {copies:?}")).pinned
    };
    assert_eq!(pinned("cuMemcpyHtoD_v2", 4 * MIB - 8), Some(true));
    assert_eq!(pinned("cuMemcpyHtoD_v2", 4 * MIB), Some(true));
    assert_eq!(pinned("cuMemcpyDtoH_v2_ptds", 4 * MIB), Some(false));
    assert_eq!(pinned("cuMemcpyHtoDAsync_v2", 2 * MIB), Some(false));
    let host = calls(&seen, CudaFamily::HostAllocate);
    assert_eq!(host.iter().map(|c| c.bytes).collect::<Vec<_>>(), [4 * mib, 4 * mib]);
}

#[test]
#[file_serial(probes)]
fn memsets_and_graphs_are_counted_beside_launches() {
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(4, 0);
        let (stream, kernel) = (cuda.stream(), cuda.function("k_1us"));
        cuda.ok("cuStreamBeginCapture_v2", &[stream, 0]);
        cuda.launch(kernel, [1; 3], stream);
        let mut graph = 0_usize;
        cuda.ok("cuStreamEndCapture", &[stream, (&raw mut graph).addr()]);
        board.set(0, cuda.made("cuGraphInstantiateWithFlags", &[graph, 0]) as u64);
        board.set(1, stream as u64);
        board.set(2, cuda.made("cuMemAlloc_v2", &[MIB]) as u64);
    };
    let scenario = |cuda: &Library| {
        let [exec, stream, memory] = [0, 1, 2].map(|at| board.get(at) as usize);
        cuda.ok("cuGraphLaunch", &[exec, stream]);
        cuda.ok("cuGraphLaunch", &[exec, stream]);
        cuda.ok("cuMemsetD32Async", &[memory, 0, 100, stream]);
        cuda.ok("cuMemsetD8_v2", &[memory, 0, 100]);
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    let groups = groups(&seen);
    let graphs: Vec<_> = groups.iter().filter(|g| g.family == CudaFamily::GraphLaunch).collect();
    assert!(graphs.iter().all(|g| g.function == board.get(0) && g.stream == board.get(1)), "{graphs:?}");
    assert_eq!(graphs.iter().map(|g| g.count).sum::<u64>(), 2);
    let bytes: Vec<_> =
        groups.iter().filter(|g| g.family == CudaFamily::Memset).map(|g| (g.stream, g.bytes)).collect();
    assert_eq!(bytes, [(board.get(1), 400), (0, 100)]);
}

#[test]
#[file_serial(probes)]
fn queries_are_records_when_their_result_is_news() {
    const POLLS: u64 = 2_000;
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(4, 0);
        board.set(0, cuda.stream() as u64);
        board.set(1, cuda.made("cuEventCreate", &[0]) as u64);
        board.set(2, cuda.function("k_2s") as u64);
        board.set(3, cuda.function("k_1us") as u64);
    };
    let scenario = |cuda: &Library| {
        let [stream, event, slow, quick] = [0, 1, 2, 3].map(|at| board.get(at) as usize);
        cuda.launch(slow, [1; 3], stream);
        cuda.ok("cuEventRecord", &[event, stream]);
        for _ in 0..POLLS {
            assert_eq!(cuda.call("cuEventQuery", &[event]), NOT_READY);
        }
        cuda.ok("cuEventSynchronize", &[event]);
        cuda.ok("cuEventQuery", &[event]);
        cuda.launch(quick, [1; 3], stream);
        cuda.ok("cuStreamSynchronize", &[stream]);
        cuda.ok("cuStreamQuery", &[stream]);
        cuda.ok("cuCtxSynchronize", &[]);
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    let [stream, event] = [0, 1].map(|at| board.get(at));
    let queries = calls(&seen, CudaFamily::EventQuery);
    let of_event: Vec<_> = queries.iter().filter(|c| c.name == "cuEventQuery").collect();
    let not_ready: Vec<_> = of_event.iter().filter(|c| c.result == Some(NOT_READY)).collect();
    assert!(not_ready.len() as u64 * 10 < POLLS, "{} records", not_ready.len());
    let done: Vec<_> = of_event.iter().filter(|c| c.result == Some(0)).collect();
    assert_eq!(done.len(), 1);
    let said: u64 = of_event.iter().map(|c| c.repeats + 1).sum();
    assert_eq!(said, POLLS + 1, "each query is a record's own or counted in a later one");
    let of_stream: Vec<_> = queries.iter().filter(|c| c.name == "cuStreamQuery").collect();
    assert_eq!((of_stream.len(), of_stream[0].stream, of_stream[0].result), (1, Some(stream), Some(0)));

    let waits = calls(&seen, CudaFamily::Synchronize);
    assert_eq!(
        waits.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"]
    );
    assert!(waits.iter().all(|c| c.result == Some(0) && c.returned().is_some()));
    let launched = runs(&seen)[0].first;
    for call in of_event.iter().map(|c| **c).chain([waits[0]]) {
        assert_eq!((call.object, call.stream), (event, Some(stream)), "the stream it was recorded in");
        assert!(launched < call.recorded_at && call.recorded_at < call.entry, "{call:?}");
    }
    assert_eq!((waits[1].stream, waits[1].recorded_at), (Some(stream), 0));
    assert!(!seen.stack(waits[1].user_stack).is_empty());
}

#[test]
#[file_serial(probes)]
fn a_launch_that_blocks_is_a_call() {
    let (device, board) = (SimulatedDevice::new(&[("WHYIDLE_SIM_DEPTH", "4")]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(4, 0);
        board.set(0, cuda.function("lazy40ms_k_1us") as u64);
        board.set(1, cuda.function("k_10ms") as u64);
        board.set(2, cuda.stream() as u64);
    };
    let scenario = |cuda: &Library| {
        let [lazy, slow, stream] = [0, 1, 2].map(|at| board.get(at) as usize);
        cuda.launch(lazy, [1; 3], stream);
        // The fifth does not fit.
        for _ in 0..5 {
            cuda.launch(slow, [1; 3], stream);
        }
        let mut module = 0_usize;
        cuda.ok("cuModuleLoadData", &[(&raw mut module).addr(), c"load_20ms".as_ptr().addr()]);
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    let launches = calls(&seen, CudaFamily::Launch);
    let longest = |function: u64| {
        let of = launches.iter().filter(|c| c.object == function);
        of.map(|c| c.exit.expect("seen") - c.entry).max().unwrap_or(0)
    };
    assert!(longest(board.get(0)) >= 40 * MS, "loads: {launches:?}");
    assert!(longest(board.get(1)) >= MS, "waits for room: {launches:?}");
    assert!(launches.iter().all(|c| c.stream == Some(board.get(2)) && c.user_stack != 0));
    let loads = calls(&seen, CudaFamily::Load);
    assert!(loads.iter().any(|c| c.exit.is_some_and(|exit| exit - c.entry >= 20 * MS)), "{loads:?}");
    let timed: u64 = groups(&seen).iter().map(|g| g.call_ns).sum();
    assert!(timed >= 41 * MS, "and counted in their groups: {timed}");
}

#[test]
#[file_serial(probes)]
fn a_thread_has_a_run_in_each_context() {
    const TURNS: u64 = 100;
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_DEVICES", "2")]);
    let board = Board::new();
    let scenario = |cuda: &Library| {
        cuda.ok("cuInit", &[0]);
        let primary = [0, 1].map(|at| cuda.made("cuDevicePrimaryCtxRetain", &[at]));
        let kernels = primary.map(|context| {
            cuda.ok("cuCtxSetCurrent", &[context]);
            cuda.function("k_1us")
        });
        cuda.made("cuDevicePrimaryCtxRetain", &[1]);
        for _ in 0..TURNS {
            for (context, kernel) in primary.into_iter().zip(kernels) {
                cuda.ok("cuCtxSetCurrent", &[context]);
                cuda.launch(kernel, [1; 3], 0);
            }
        }
        // Back to the first by way of a third.
        cuda.ok("cuCtxSetCurrent", &[primary[0]]);
        let third = cuda.made("cuCtxCreate_v4", &[0, 0, 1]);
        cuda.ok("cuCtxPushCurrent_v2", &[primary[1]]);
        cuda.ok("cuCtxPopCurrent_v2", &[0]);
        let kernel = cuda.function("k_1us");
        cuda.launch(kernel, [1; 3], 0);
        cuda.ok("cuCtxPopCurrent_v2", &[0]);
        cuda.launch(kernels[0], [1; 3], 0);
        for (at, value) in [primary[0], primary[1], third].into_iter().enumerate() {
            board.set(at, value as u64);
        }
    };
    let Some(seen) = watched(&[&device.cuda()], |_| {}, scenario) else { return };
    sums_hold(&seen);
    let [first, second, third] = [0, 1, 2].map(|at| board.get(at));
    let contexts: Vec<CudaContext> = seen
        .records
        .iter()
        .filter_map(|r| if let Record::CudaContext(c) = r { Some(*c) } else { None })
        .collect();
    let known: Vec<_> = contexts.iter().map(|c| (c.context, c.ordinal)).collect();
    assert_eq!(known, [(first, 0), (second, 1), (third, 1)], "each once");
    let launched =
        |context: u64| groups(&seen).iter().filter(|g| g.context == context).map(|g| g.count).sum::<u64>();
    assert_eq!([first, second, third, 0].map(launched), [TURNS + 1, TURNS, 1, 0]);
    assert!(runs(&seen).iter().all(|r| r.groups.iter().all(|g| g.context == r.groups[0].context)));
    // A change of context ends no run.
    assert!(runs(&seen).len() as u64 * 4 < 2 * TURNS, "{} runs", runs(&seen).len());
}

#[test]
#[file_serial(probes)]
fn a_thread_that_ends_leaves_its_last_run() {
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        board.set(1, cuda.context(4, 0) as u64);
        board.set(0, cuda.function("k_1us") as u64);
    };
    let scenario = |cuda: &Library| {
        for _ in 0..10 {
            let (function, context) = (board.get(0) as usize, board.get(1) as usize);
            let address = std::ptr::from_ref(cuda).addr();
            let thread = std::thread::spawn(move || {
                // SAFETY: the scenario's own library, which outlives the thread that it waits for.
                let cuda = unsafe { &*std::ptr::with_exposed_provenance::<Library>(address) };
                cuda.ok("cuCtxSetCurrent", &[context]);
                for _ in 0..7 {
                    cuda.launch(function, [1; 3], 0);
                }
            });
            thread.join().expect("ends");
        }
    };
    let Some(seen) = watched(&[&device.cuda()], prepare, scenario) else { return };
    sums_hold(&seen);
    assert_eq!(runs(&seen).iter().map(|r| r.launches).sum::<u64>(), 70);
}
