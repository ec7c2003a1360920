//! The device signal against the simulated NVML library.

use std::thread::sleep;
use std::time::Duration;

use gpu_sim_timeline::clock;
use whyidle::gpu::{DeviceSignal as _, GpuError, GpuThread, NvmlSignal, Polled};
use whyidle::timeline::lag;
use whyidle::trace::{Reading, ReadingSource, Span};
use whyidle_tests::device::{SimulatedDevice, script};
use whyidle_tests::signal::{
    assert_contiguous, clocks, counter, loaded, open, polls, row, true_percent, windows,
};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 166_666_667;

fn busy_ns(readings: &[Reading]) -> f64 {
    readings.iter().map(|r| r.busy_percent.expect("a value") / 100.0 * r.span.len() as f64).sum()
}

fn mean_percent(readings: &[Reading]) -> f64 {
    let whole: u64 = readings.iter().map(|r| r.span.len()).sum();
    100.0 * busy_ns(readings) / whole as f64
}

#[test]
fn windows_match_the_truth_whatever_clock_stamps_them() {
    for (clock, busy_ms) in [("realtime", 37), ("boottime", 80), ("monotonic", 99)] {
        let device = SimulatedDevice::new(&[("WHYIDLE_SIM_CLOCK", clock)]);
        let timeline = device.timeline();
        let _process = loaded(&timeline, busy_ms);
        let readings = windows(&mut open(&device), 12);
        assert_contiguous(&readings);
        for reading in &readings {
            assert_eq!(reading.source, ReadingSource::NvmlSamples);
            let truth = true_percent(&timeline, reading.span.start, reading.span.end);
            let given = reading.busy_percent.expect("a value");
            // Half a percent of rounding and half of a shift, which a period's error would far exceed.
            assert!((given - truth).abs() <= 1.0, "{clock}: {given} given, {truth} true: {reading:?}");
        }
        let (from, to) = (readings[0].span.start, readings[readings.len() - 1].span.end);
        let (mean, truth) = (mean_percent(&readings), true_percent(&timeline, from, to));
        assert!((mean - truth).abs() <= 0.6, "{clock}: {mean} given, {truth} true");
    }
}

#[test]
fn a_stretch_of_work_is_found_where_it_was() {
    let device = SimulatedDevice::new(&[]);
    let timeline = device.timeline();
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    let mut signal = open(&device);
    let from = clock::now() + 3 * PERIOD;
    let to = from + 5 * PERIOD + PERIOD / 3;
    script(&timeline, &process, from, to, to - from, to - from);
    let mut readings = windows(&mut signal, 3);
    while readings.last().is_none_or(|r| r.span.end < to + PERIOD) {
        readings.extend(windows(&mut signal, 1));
    }
    assert_contiguous(&readings);
    let (busy, long) = (busy_ns(&readings), (to - from) as f64);
    assert!((busy - long).abs() < 0.02 * long, "{busy} of {long}");
    let first = readings.iter().find(|r| r.busy_percent > Some(0.0)).expect("a busy window");
    let near = first.span.contains(from) || first.span.start.abs_diff(from) < PERIOD / 50;
    assert!(near, "{first:?}, from {from}");
}

#[test]
fn the_device_is_described() {
    let device = SimulatedDevice::new(&[]);
    let described = open(&device).devices().expect("a device");
    assert_eq!(described.len(), 1);
    let one = &described[0];
    assert_eq!((one.index, one.minor, one.mig), (0, Some(0), false));
    assert_eq!(one.power_limit_mw, Some(700_000));
    assert_eq!((one.pcie_width, one.pcie_width_max), (Some(16), Some(16)));
    assert!(one.uuid.starts_with("GPU-") && !one.name.is_empty() && !one.driver_version.is_empty());
}

#[test]
fn several_devices_have_windows_of_their_own() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_DEVICES", "3")]);
    let mut signal = open(&device);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 60);
    let minors: Vec<_> = signal.devices().expect("three").iter().map(|d| (d.index, d.minor)).collect();
    assert_eq!(minors, [(0, Some(2)), (1, Some(1)), (2, Some(0))]);
    let readings = windows(&mut signal, 12);
    for index in 0..3 {
        let own: Vec<Reading> = readings.iter().filter(|r| r.device == index).cloned().collect();
        assert!(own.len() >= 2, "{readings:?}");
        assert_contiguous(&own);
        assert_eq!(own.last().expect("some").busy_percent > Some(0.0), index == 0, "{own:?}");
    }
}

#[test]
fn the_period_is_measured_from_the_stamps() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_PERIOD_US", "50000")]);
    let _timeline = device.timeline();
    // Some periods of history, so that there is a buffer to measure.
    sleep(Duration::from_millis(400));
    let described = open(&device).devices().expect("a device");
    assert_eq!(described[0].sample_period_ns, Some(50_000_000));
}

#[test]
fn processes_with_a_context_are_listed() {
    let device = SimulatedDevice::new(&[]);
    let timeline = device.timeline();
    let mut signal = open(&device);
    let pids = |polled: Polled| polled.processes.iter().map(|p| p.pid).collect::<Vec<_>>();
    assert_eq!(pids(signal.poll().expect("answers")), Vec::<u32>::new());
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    process.memory_changed(0, 4096);
    let polled = signal.poll().expect("answers");
    assert_eq!(polled.processes[0].used_memory, Some(4096));
    assert_eq!(pids(polled), [std::process::id()]);
    process.leave().expect("the file is there");
    assert_eq!(pids(signal.poll().expect("answers")), Vec::<u32>::new());
}

#[test]
fn power_is_a_mean_that_follows_the_load() {
    let device = SimulatedDevice::new(&[]);
    let timeline = device.timeline();
    let mut signal = open(&device);
    assert!(windows(&mut signal, 2).iter().all(|r| r.power_mw == Some(72_000)));
    let _process = loaded(&timeline, 100);
    let busy = windows(&mut signal, 9);
    assert!(busy.windows(2).all(|w| w[0].power_mw <= w[1].power_mw), "{busy:?}");
    assert!(busy[0].power_mw < Some(700_000), "{busy:?}");
    // The context is no older than the work, but the first moments between the two had none.
    assert!(busy[8].power_mw > Some(690_000), "{busy:?}");
}

#[test]
fn idle_without_samples_is_filled_by_rates() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "idle-not-found")]);
    let timeline = device.timeline();
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    let start = clock::now();
    for from in [start, start + 3_000 * MS] {
        script(&timeline, &process, from, from + 1_000 * MS, 1_000 * MS, 1_000 * MS);
    }
    let mut signal = open(&device);
    let mut readings = windows(&mut signal, 4);
    while readings.last().is_none_or(|r| r.span.end < start + 4_000 * MS) {
        readings.extend(windows(&mut signal, 1));
    }
    let idle: Vec<&Reading> = readings.iter().filter(|r| r.busy_percent == Some(0.0)).collect();
    assert!(idle.len() > 3, "{readings:?}");
    assert!(idle.iter().all(|r| r.source == ReadingSource::NvmlRates), "{readings:?}");
    let (from, to) = (readings[0].span.start, readings[readings.len() - 1].span.end);
    // Only a test kept from its processor for over a period leaves holes: rates tell of one period.
    let covered: u64 = readings.iter().map(|r| r.span.len()).sum();
    assert!(covered * 4 > (to - from) * 3, "{readings:?}");
    let (mean, truth) = (mean_percent(&readings), true_percent(&timeline, from, to));
    // Rates tell of a period that ended up to one earlier: at most a period at each of the three edges.
    let bound = 300.0 * PERIOD as f64 / (to - from) as f64;
    assert!((mean - truth).abs() <= bound, "{mean} given, {truth} true");
}

#[test]
fn without_sample_buffers_the_rates_are_read() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "no-samples")]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 50);
    let readings = windows(&mut open(&device), 8);
    assert!(readings.iter().all(|r| r.source == ReadingSource::NvmlRates), "{readings:?}");
    // The first window's rates may be of a period before the load.
    let mean = mean_percent(&readings[3..]);
    assert!((mean - 50.0).abs() < 20.0, "{mean}: {readings:?}");
}

#[test]
fn nonsense_is_no_value() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "garbage")]);
    let readings = windows(&mut open(&device), 3);
    assert!(readings.iter().all(|r| r.busy_percent.is_none()), "{readings:?}");
}

/// Sample periods short enough for many windows, and for a ring that a slow reader still gets whole.
const SHORT: (&str, &str) = ("WHYIDLE_SIM_PERIOD_US", "50000");

#[test]
fn a_few_bad_samples_cost_their_own_windows_and_are_counted_by_class() {
    for (word, class) in [
        ("garbage=5", "not_a_percentage"),
        ("backward=5", "stamp_backward"),
        ("future=5", "stamp_in_the_future"),
        ("duplicate=5", "stamp_twice"),
    ] {
        let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", word), SHORT]);
        let timeline = device.timeline();
        let _process = loaded(&timeline, 37);
        // Some history, so that the clock is known from the start.
        sleep(Duration::from_millis(400));
        let polled = polls(&mut open(&device), |all| all.readings.len() >= 40);
        let counted = counter(&polled, &format!("gpu0_samples_{class}"));
        assert!(counted.is_some_and(|count| count >= 5), "{word}: {counted:?}");
        let others = ["not_a_percentage", "stamp_backward", "stamp_in_the_future", "stamp_twice"];
        for other in others.iter().filter(|other| **other != class) {
            assert_eq!(counter(&polled, &format!("gpu0_samples_{other}")), None, "{word}");
        }
        let readings = &polled.readings;
        assert!(readings.windows(2).all(|w| w[0].span.end <= w[1].span.start), "{word}: {readings:?}");
        for reading in readings.iter().filter(|r| r.source == ReadingSource::NvmlSamples) {
            let Some(given) = reading.busy_percent else { continue };
            let truth = true_percent(&timeline, reading.span.start, reading.span.end);
            assert!((given - truth).abs() <= 2.0, "{word}: {given} given, {truth} true: {reading:?}");
        }
        let known: u64 = readings.iter().filter(|r| r.busy_percent.is_some()).map(|r| r.span.len()).sum();
        let whole = readings[readings.len() - 1].span.end - readings[0].span.start;
        assert!(known * 10 > whole * 7, "{word}: {known} of {whole} known");
    }
}

#[test]
fn values_of_every_documented_type_are_read_and_others_refused() {
    for (kind, works) in [("0", true), ("1", true), ("3", true), ("9", false)] {
        let word = format!("value-type={kind}");
        let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", &word)]);
        let timeline = device.timeline();
        let _process = loaded(&timeline, 50);
        let polled = polls(&mut open(&device), |all| all.readings.len() >= 5);
        let said = row(&polled, "nvml_samples");
        assert_eq!(said.attached, works, "{kind}: {said:?}");
        let source = if works { ReadingSource::NvmlSamples } else { ReadingSource::NvmlRates };
        assert!(polled.readings.iter().all(|r| r.source == source), "{kind}: {:?}", polled.readings);
        let last = polled.readings.last().and_then(|r| r.busy_percent).expect("a value");
        assert!((last - 50.0).abs() <= 31.0, "{kind}: {last}");
    }
}

#[test]
fn the_clock_of_the_stamps_is_told_with_offset_and_age() {
    for name in ["realtime", "boottime", "monotonic"] {
        let device = SimulatedDevice::new(&[("WHYIDLE_SIM_CLOCK", name), SHORT]);
        let _timeline = device.timeline();
        sleep(Duration::from_millis(200));
        let polled = polls(&mut open(&device), |all| all.readings.len() >= 6);
        let told = clocks(&polled);
        let last = told.last().expect("a clock");
        // Where the machine never slept, the clocks of boot and of monotonic time are one.
        let fits = last.domain == name || (name == "boottime" && last.domain == "monotonic");
        assert!(fits && last.lag_ns.is_none(), "{told:?}");
        assert_eq!(last.period_ns, Some(50_000_000));
        assert_eq!(last.offset_ns < 0, name == "realtime", "{last:?}");
        assert!(told.len() < 4, "{told:?}");
    }
}

#[test]
fn stamps_on_a_clock_of_the_drivers_own_are_placed_by_their_arrival() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_CLOCK", "own"), SHORT]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 37);
    let polled = polls(&mut open(&device), |all| all.readings.len() >= 60);
    let told = clocks(&polled);
    assert!(told.last().is_some_and(|clock| clock.domain.starts_with("not settled: none")), "{told:?}");
    let readings = &polled.readings;
    let (from, to) = (readings[0].span.start, readings[readings.len() - 1].span.end);
    let (mean, truth) = (mean_percent(readings), true_percent(&timeline, from, to));
    // A poll late at most at either end.
    let bound = 100.0 * 250e6 / (to - from) as f64;
    assert!((mean - truth).abs() <= bound, "{mean} given, {truth} true, {bound}");
}

#[test]
fn polls_far_apart_lose_no_sample() {
    let device = SimulatedDevice::new(&[SHORT]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 30);
    let mut signal = open(&device);
    let mut readings = windows(&mut signal, 3);
    for _ in 0..2 {
        sleep(Duration::from_millis(3_500));
        readings.extend(signal.poll().expect("answers").readings);
    }
    assert_contiguous(&readings);
    assert!(readings.len() > 100, "{}", readings.len());
}

#[test]
fn jitter_of_the_stamps_leaves_no_holes() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "jitter=0.02")]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 60);
    let readings = windows(&mut open(&device), 12);
    assert_contiguous(&readings);
    assert!((mean_percent(&readings) - 60.0).abs() < 8.0, "{readings:?}");
}

#[test]
fn a_lag_of_the_stamps_is_found_by_fit_against_the_work() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "stamp-lag=0.030"), SHORT]);
    let timeline = device.timeline();
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    let start = clock::now();
    // Bursts of many lengths, so that no other shift fits.
    for n in 0..40 {
        let (from, busy) = (start + n * 131 * MS, (20 + n * 37 % 90) * MS);
        script(&timeline, &process, from, from + busy, busy, busy).give_back(&timeline);
    }
    let mut signal = open(&device);
    let mut readings = windows(&mut signal, 3);
    while readings.last().is_none_or(|r| r.span.end < start + 4_500 * MS) {
        readings.extend(windows(&mut signal, 1));
    }
    let truth = timeline.truth().expect("readable");
    let work: Vec<Span> = truth[0].busy.iter().map(|busy| Span::new(busy.start, busy.end)).collect();
    let found = lag(&readings, &work).expect("a fit");
    assert!(found.ns.abs_diff(30 * MS as i64) <= 3 * MS && found.confidence > 0.3, "{found:?}");
}

#[test]
fn a_device_that_always_says_0_shows_its_power() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "unknown-device")]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 90);
    let readings = windows(&mut open(&device), 3);
    // Whether that contradicts the 0 is for `idle` to say.
    assert!(readings.iter().all(|r| r.busy_percent == Some(0.0)), "{readings:?}");
    assert!(readings.iter().all(|r| r.power_mw > Some(700_000 * 35 / 100)), "{readings:?}");
}

#[test]
fn mig_and_lost_devices_have_windows_without_values() {
    for fault in ["mig", "lost"] {
        let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", fault)]);
        let mut signal = open(&device);
        let described = signal.devices().expect("one device");
        assert_eq!((described.len(), described[0].mig), (1, fault == "mig"));
        let readings = windows(&mut signal, 3);
        assert!(readings.iter().all(|r| r.busy_percent.is_none() && r.device == 0), "{fault}: {readings:?}");
    }
}

#[test]
fn a_driver_that_is_not_loaded_is_named() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "no-driver")]);
    let error = NvmlSignal::open(Some(&device.nvml())).expect_err("no driver");
    assert!(matches!(error, GpuError::Call { call: "nvmlInit_v2", .. }), "{error:?}");
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn the_other_simulated_library_is_no_nvml() {
    let device = SimulatedDevice::new(&[]);
    let error = NvmlSignal::open(Some(&device.cuda())).expect_err("CUDA, not NVML");
    assert!(matches!(error, GpuError::NotNvml { .. }), "{error:?}");
}

#[test]
fn a_library_that_hangs_at_once_is_given_up() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "hang=30")]);
    let path = device.nvml();
    let open = move || NvmlSignal::open(Some(&path));
    let started = GpuThread::start(open, Duration::from_millis(166), Duration::from_millis(300));
    let error = started.expect_err("hangs");
    assert!(matches!(error, GpuError::NoAnswer { .. }), "{error:?}");
}

#[test]
fn a_library_that_hangs_later_stalls_and_is_left_behind() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "hang=30,hang-after=24")]);
    let path = device.nvml();
    let open = move || NvmlSignal::open(Some(&path));
    let thread = GpuThread::start(open, Duration::from_millis(50), Duration::from_secs(1)).expect("starts");
    assert_eq!(thread.devices().len(), 1);
    assert!(thread.recv_timeout(Duration::from_secs(10)).is_some_and(|answer| answer.is_ok()));
    while thread.stalled_for().is_none() {
        sleep(Duration::from_millis(20));
    }
    // Returns although the library will not for half a minute.
    drop(thread);
}
