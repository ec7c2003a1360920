//! What a device says beside its sample buffers, against the simulated NVML library: GPM, MIG, MPS, its state,
//! its errors, and what is said where one of these is not to be had.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use gpu_sim_timeline::{Event, Interval, Lane, Mps, State, Timeline, Work, clock};
use whyidle::gpu::DeviceSignal as _;
use whyidle::trace::{DeviceActivity, DeviceEventKind, Reading, ReadingSource, Record};
use whyidle_tests::device::{SimulatedDevice, script};
use whyidle_tests::signal::{
    assert_contiguous, clocks, events, loaded, open, polls, row, rows, states, true_percent, windows,
};

const MS: u64 = 1_000_000;
const GPM: (&str, &str) = ("WHYIDLE_SIM_GPM", "1");
/// NVML's bits: Xid, double-bit error, clock change.
const XID: u64 = 8;
const DOUBLE_BIT: u64 = 2;
const CLOCK_CHANGE: u64 = 16;

fn activities(others: &[Record]) -> Vec<&DeviceActivity> {
    let all = others.iter();
    all.filter_map(|r| if let Record::DeviceActivity(activity) = r { Some(activity) } else { None }).collect()
}

fn of(readings: &[Reading], device: u32) -> Vec<Reading> {
    readings.iter().filter(|r| r.device == device).cloned().collect()
}

/// All together, as the library looks at its clock somewhere within the call: a thread kept from its processor
/// there moves a border between two windows, and no more.
#[track_caller]
fn assert_true(timeline: &Timeline, readings: &[Reading]) {
    let (from, to) = (readings[0].span.start, readings[readings.len() - 1].span.end);
    let busy: f64 =
        readings.iter().map(|r| r.busy_percent.expect("a value") / 100.0 * r.span.len() as f64).sum();
    let (given, truth) = (100.0 * busy / (to - from) as f64, true_percent(timeline, from, to));
    assert!((given - truth).abs() <= 3.0, "{given} given, {truth} true: {readings:?}");
}

#[test]
fn gpm_gives_the_busy_time_finely_and_the_units_beside_it() {
    let device = SimulatedDevice::new(&[GPM]);
    let timeline = device.timeline();
    let process = loaded(&timeline, 37);
    let copies = Lane::take(&timeline, &process, 0, clock::now()).expect("a lane");
    let now = clock::now();
    copies.push(&timeline, Work::Copy, Interval { start: now, end: now + 20_000 * MS });
    let polled = polls(&mut open(&device), |all| all.readings.len() >= 12);
    assert_contiguous(&polled.readings);
    for reading in &polled.readings {
        assert_eq!(reading.source, ReadingSource::Gpm);
        assert!(reading.span.len() >= 100 * MS && reading.power_mw.is_some(), "{reading:?}");
    }
    assert_true(&timeline, &polled.readings);
    // Not in whole percent.
    assert!(polled.readings.iter().any(|r| r.busy_percent.is_some_and(|busy| busy.fract() > 0.0)));
    let beside = activities(&polled.others);
    assert_eq!(beside.len(), polled.readings.len());
    for (activity, reading) in beside.iter().zip(&polled.readings) {
        assert_eq!(activity.span, reading.span);
        let busy = reading.busy_percent.expect("a value");
        for (share, of_busy) in
            [(activity.sm_percent, 0.8), (activity.tensor_percent, 0.4), (activity.dram_percent, 0.3)]
        {
            assert!((share.expect("measured") - of_busy * busy).abs() < 1e-6, "{activity:?}");
        }
        let rx = activity.pcie_rx_bytes.expect("measured");
        assert!(rx <= 24_000.0 * 1_048_576.0 && activity.pcie_tx_bytes == Some(0.0), "{activity:?}");
    }
    let full = 24_000.0 * 1_048_576.0;
    assert!(beside.last().expect("some").pcie_rx_bytes == Some(full), "{beside:?}");
    assert!(row(&polled, "gpm").attached);
    // The samples are still read: their clock is known.
    assert!(clocks(&polled).iter().any(|clock| clock.domain == "realtime"), "{:?}", clocks(&polled));
}

#[test]
fn gpm_samples_lie_100_ms_apart_however_often_the_device_is_polled() {
    let device = SimulatedDevice::new(&[GPM]);
    let _timeline = device.timeline();
    let mut signal = open(&device);
    let mut readings = Vec::new();
    while readings.len() < 5 {
        sleep(Duration::from_millis(5));
        readings.extend(signal.poll().expect("answers").readings);
    }
    // A shorter distance would be an error in the simulated library, and a hole.
    assert_contiguous(&readings);
    assert!(readings.iter().all(|r| r.span.len() >= 100 * MS), "{readings:?}");
}

#[test]
fn where_gpm_is_not_to_be_had_the_samples_serve_and_the_reason_is_said() {
    for (settings, reason) in [
        (vec![GPM, ("WHYIDLE_SIM_NVML", "no-permission")], "administrators"),
        (vec![], "does not support it (Hopper and later do)"),
    ] {
        let device = SimulatedDevice::new(&settings);
        let timeline = device.timeline();
        let _process = loaded(&timeline, 40);
        let polled = polls(&mut open(&device), |all| all.readings.len() >= 5);
        let said = row(&polled, "gpm");
        assert!(!said.attached && said.reason.contains(reason), "{said:?}");
        assert!(polled.readings.iter().all(|r| r.source == ReadingSource::NvmlSamples), "{polled:?}");
        assert_contiguous(&polled.readings);
    }
}

#[test]
fn a_driver_older_than_a_call_costs_that_signal_alone() {
    let device = SimulatedDevice::new(&[GPM]);
    for symbol in ["nvmlGpmQueryDeviceSupport", "nvmlEventSetCreate", "nvmlDeviceGetTotalEccErrors"] {
        take_symbol(&device.nvml(), symbol);
    }
    let timeline = device.timeline();
    let _process = loaded(&timeline, 40);
    let polled = polls(&mut open(&device), |all| all.readings.len() >= 3);
    for name in ["gpm", "nvml_events", "nvml_ecc"] {
        let said = row(&polled, name);
        assert!(!said.attached && said.reason.contains("older than this call"), "{said:?}");
    }
    for name in ["nvml_device", "nvml_samples", "nvml_pcie", "nvml_throttle"] {
        assert!(row(&polled, name).attached, "{name}");
    }
    assert!(polled.readings.iter().all(|r| r.busy_percent.is_some()), "{polled:?}");
    assert!(states(&polled).iter().all(|s| s.ecc_corrected.is_none() && s.pcie_width == Some(16)));
}

/// The library without one of its functions: its name is spelt in another way.
fn take_symbol(library: &Path, symbol: &str) {
    let mut bytes = std::fs::read(library).expect("readable");
    let name: Vec<u8> = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "{symbol}");
    for at in places {
        bytes[at + symbol.len()] = b'_';
    }
    std::fs::write(library, bytes).expect("writable");
}

#[test]
fn a_simple_device_says_what_it_lacks_and_is_read_all_the_same() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "bare")]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 40);
    let polled = polls(&mut open(&device), |all| all.readings.len() >= 4);
    for name in ["nvml_throttle", "nvml_pcie", "nvml_ecc", "nvml_events", "gpm"] {
        let said = row(&polled, name);
        assert!(!said.attached && said.reason.contains("does not support it"), "{said:?}");
    }
    assert!(polled.readings.iter().all(|r| r.busy_percent.is_some()), "{polled:?}");
    let said = states(&polled);
    assert_eq!((said[0].pcie_width, said[0].throttle_reasons, said[0].ecc_corrected), (None, None, None));
    // Said once, not at every poll.
    let names: Vec<_> = rows(&polled).iter().map(|row| row.name.clone()).collect();
    let mut once = names.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{names:?}");
}

#[test]
fn a_state_is_written_at_first_and_when_it_changes() {
    let device = SimulatedDevice::new(&[]);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 40);
    let mut signal = open(&device);
    let first = polls(&mut signal, |all| !states(all).is_empty() && all.readings.len() > 8);
    let before = states(&first);
    assert_eq!((before[0].pcie_generation, before[0].pcie_width), (Some(5), Some(16)));
    assert_eq!((before[0].ecc_corrected, before[0].ecc_uncorrected), (Some(0), Some(0)));
    assert_eq!((before[0].sm_clock_max_mhz, before[0].temperature_c), (Some(1980), Some(54)));
    let changed = State {
        throttle: 0x40,
        link_generation: 3,
        link_width: 8,
        ecc_corrected: 7,
        ecc_uncorrected: 1,
        lost: false,
    };
    timeline.set_state(0, changed);
    let found = |s: &whyidle::trace::DeviceState| {
        s.throttle_reasons.is_some_and(|bits| bits & 0x40 != 0)
            && (s.pcie_generation, s.pcie_width) == (Some(3), Some(8))
            && (s.ecc_corrected, s.ecc_uncorrected) == (Some(7), Some(1))
    };
    let after = polls(&mut signal, |all| states(all).iter().any(|s| found(s)));
    assert!(after.readings.len() < 100, "{after:?}");
}

#[test]
fn errors_are_told_when_the_driver_raises_them() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_DEVICES", "2")]);
    let mut signal = open(&device);
    let timeline = device.timeline();
    // Before anybody asked.
    assert!(events(&signal.poll().expect("answers")).is_empty());
    timeline.raise(1, Event { kind: CLOCK_CHANGE, value: 0 });
    timeline.raise(1, Event { kind: XID, value: 79 });
    timeline.raise(0, Event { kind: DOUBLE_BIT, value: 0 });
    let polled = polls(&mut signal, |all| events(all).len() >= 2);
    let mut told: Vec<_> = events(&polled).iter().map(|e| (e.device, e.kind, e.value)).collect();
    told.sort();
    assert_eq!(told, [(0, DeviceEventKind::EccDoubleBit, 0), (1, DeviceEventKind::Xid, 79)]);
    assert!(events(&polled).iter().all(|event| event.at <= clock::now()));
    assert!(events(&signal.poll().expect("answers")).is_empty());
}

#[test]
fn a_device_that_falls_off_the_bus_is_unknown_until_it_is_back() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_DEVICES", "2")]);
    let mut signal = open(&device);
    let timeline = device.timeline();
    let _process = loaded(&timeline, 50);
    polls(&mut signal, |all| all.readings.len() >= 6);
    timeline.set_state(0, State { lost: true, ..State::default() });
    let lost = polls(&mut signal, |all| all.readings.len() >= 12);
    let said = row(&lost, "nvml_device:0");
    assert!(!said.attached && said.reason.contains("fallen off the bus"), "{said:?}");
    assert!(of(&lost.readings, 0).iter().all(|r| r.busy_percent.is_none()), "{lost:?}");
    assert!(of(&lost.readings, 1).iter().all(|r| r.busy_percent.is_some()), "{lost:?}");
    timeline.set_state(0, State::default());
    let back = polls(&mut signal, |all| of(&all.readings, 0).iter().any(|r| r.busy_percent.is_some()));
    assert!(row(&back, "nvml_device:0").attached);
}

#[test]
fn instances_are_devices_of_their_own_measured_by_gpm() {
    let device = SimulatedDevice::new(&[GPM, ("WHYIDLE_SIM_NVML", "mig=2")]);
    let mut signal = open(&device);
    let timeline = device.timeline();
    let process = timeline.enter().expect("a free slot");
    process.enter_instance(1);
    process.context_made(0);
    let now = clock::now();
    script(&timeline, &process, now, now + 20_000 * MS, 100 * MS, 30 * MS);
    let described = signal.devices().expect("three");
    let named: Vec<_> = described.iter().map(|d| (d.index, d.mig, d.name.as_str())).collect();
    assert_eq!(
        named,
        [
            (0, true, "Simulated GPU 80GB"),
            (1, true, "Simulated GPU 80GB MIG 1g.10gb (MIG instance 7 of GPU 0)"),
            (2, true, "Simulated GPU 80GB MIG 1g.10gb (MIG instance 8 of GPU 0)"),
        ]
    );
    assert!(described[1].uuid.starts_with("MIG-") && described[1].uuid != described[2].uuid);
    let polled = polls(&mut signal, |all| of(&all.readings, 2).len() >= 10);
    assert!(of(&polled.readings, 0).iter().all(|r| r.busy_percent.is_none()), "{polled:?}");
    for (index, busy) in [(1, false), (2, true)] {
        let readings = of(&polled.readings, index);
        assert_contiguous(&readings);
        assert!(readings.iter().all(|r| r.source == ReadingSource::Gpm), "{readings:?}");
        if busy {
            assert_true(&timeline, &readings);
        } else {
            assert!(readings.iter().all(|r| r.busy_percent == Some(0.0)), "{readings:?}");
        }
    }
    // In the instance, and nowhere else.
    assert!(!polled.processes.is_empty());
    assert!(polled.processes.iter().all(|p| (p.device, p.pid) == (2, std::process::id())), "{polled:?}");
}

#[test]
fn without_gpm_instances_are_named_and_unknown() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_NVML", "mig=1")]);
    let mut signal = open(&device);
    assert_eq!(signal.devices().expect("two").len(), 2);
    let polled = polls(&mut signal, |all| of(&all.readings, 1).len() >= 4);
    assert!(polled.readings.iter().all(|r| r.busy_percent.is_none()), "{polled:?}");
    assert_contiguous(&of(&polled.readings, 1));
    assert!(!row(&polled, "gpm:1").attached);
}

#[test]
fn clients_of_an_mps_server_are_listed_beside_it() {
    let device = SimulatedDevice::new(&[]);
    let timeline = device.timeline();
    let mut signal = open(&device);
    let process = timeline.enter().expect("a free slot");
    process.context_made(0);
    for part in [Mps::Server, Mps::Client] {
        process.set_mps(part);
        let pids: Vec<u32> = signal.poll().expect("answers").processes.iter().map(|p| p.pid).collect();
        assert_eq!(pids, [std::process::id()], "{part:?}");
    }
}

#[test]
fn a_library_that_hangs_in_gpm_stalls_like_any_other() {
    use whyidle::gpu::{GpuThread, NvmlSignal};
    let device = SimulatedDevice::new(&[GPM, ("WHYIDLE_SIM_NVML", "hang=30,hang-after=24")]);
    let path = device.nvml();
    let open = move || NvmlSignal::open(Some(&path));
    let thread = GpuThread::start(open, Duration::from_millis(50), Duration::from_secs(1)).expect("starts");
    while thread.stalled_for().is_none() {
        sleep(Duration::from_millis(20));
    }
    // Returns although the library will not for half a minute.
    drop(thread);
}

#[test]
fn windows_of_an_idle_device_by_gpm_are_idle_not_unknown() {
    let device = SimulatedDevice::new(&[GPM]);
    let _timeline = device.timeline();
    let readings = windows(&mut open(&device), 3);
    assert!(readings.iter().all(|r| r.busy_percent == Some(0.0)), "{readings:?}");
    assert!(readings.iter().all(|r| r.memory_percent == Some(0.0)), "{readings:?}");
}
