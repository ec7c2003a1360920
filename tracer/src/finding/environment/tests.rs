//! The rules on hand-made traces.

use super::words;
use crate::timeline::build;
use crate::timeline::testing::{MS, TraceBuilder};
use crate::trace::{
    Device, DeviceActivity, DeviceEvent, DeviceEventKind, DeviceState, Mapping, Record, Span,
};

const S: u64 = 1_000 * MS;

/// Ten seconds, busy from the third on.
fn trace() -> TraceBuilder {
    let described = Device {
        driver_version: "570.00.00".into(),
        cuda_version: Some(12_080),
        pcie_width: Some(16),
        pcie_width_max: Some(16),
        pcie_generation: Some(1),
        pcie_generation_max: Some(5),
        ..Device::default()
    };
    let trace = TraceBuilder::new(0, 10 * S).record(Record::Device(described));
    (0..10).fold(trace, |trace, second| {
        let busy = if second < 2 { 0.0 } else { 90.0 };
        trace.reading_with(0, second * S, (second + 1) * S, |r| {
            r.busy_percent = Some(busy);
            r.throttle_reasons = Some(if second < 2 { 1 } else { 0 });
        })
    })
}

fn state(at: u64, generation: u32, width: u32) -> DeviceState {
    let (pcie_generation, pcie_width) = (Some(generation), Some(width));
    DeviceState { at, pcie_generation, pcie_width, ..DeviceState::default() }
}

fn said(trace: TraceBuilder) -> String {
    words(&build(trace.records()), false).expect("a device")
}

fn event(at: u64, kind: DeviceEventKind, value: u64) -> Record {
    Record::DeviceEvent(DeviceEvent { at, device: 0, kind, value })
}

#[test]
fn a_link_that_sleeps_at_rest_and_is_whole_under_load_is_no_fault() {
    let text = said(trace().record(Record::DeviceState(state(0, 1, 16))).record(Record::DeviceState(state(
        2 * S,
        5,
        16,
    ))));
    assert!(text.contains("PCIe x16 of x16 under load"), "{text}");
    assert!(text.contains("driver 570.00.00, CUDA 12.8"), "{text}");
}

#[test]
fn a_narrow_link_under_load_is_named_with_its_time_and_what_to_do() {
    let text = said(trace().record(Record::DeviceState(state(0, 3, 8))));
    assert!(
        text.contains("PCIe x8 of x16, generation 3 of 5 for 8.00 s of 8.00 s under load (reseat"),
        "{text}"
    );
}

#[test]
fn the_moment_in_which_a_link_wakes_up_is_no_fault() {
    let late = trace().record(Record::DeviceState(state(0, 1, 16))).record(Record::DeviceState(state(
        2 * S + 700 * MS,
        5,
        16,
    )));
    assert!(said(late).contains("PCIe x16 of x16 under load"));
}

#[test]
fn without_states_the_link_is_as_it_was_at_the_start() {
    assert!(said(trace()).contains("PCIe x16 of x16, generation 1 of 5"), "{}", said(trace()));
}

#[test]
fn throttling_has_its_time_and_its_remedy() {
    assert!(said(trace()).contains("clocks not throttled"));
    let hot = (0..4).fold(TraceBuilder::new(0, 4 * S).device(0), |trace, second| {
        trace.reading_with(0, second * S, (second + 1) * S, |r| {
            r.throttle_reasons = Some(if second == 3 { 0x40 } else { 0 });
        })
    });
    let text = said(hot);
    assert!(text.contains("hardware thermal slowdown for 1.00 s of 4.00 s (look at cooling"), "{text}");
}

#[test]
fn errors_are_counted_and_explained() {
    let text = said(
        trace()
            .record(event(3 * S, DeviceEventKind::Xid, 79))
            .record(event(4 * S, DeviceEventKind::Xid, 31))
            .record(event(5 * S, DeviceEventKind::Xid, 31))
            .record(event(6 * S, DeviceEventKind::Xid, 7_777)),
    );
    assert!(text.contains("Xid 79 after 3.00 s: the device has fallen off the bus (look at power"), "{text}");
    assert!(text.contains("Xid 31 2 times, first after 4.00 s: "), "{text}");
    assert!(text.contains("Xid 7777 after 6.00 s: see NVIDIA's list"), "{text}");
}

#[test]
fn memory_errors_of_before_and_of_this_recording_are_told_apart() {
    let counts = |at, corrected, uncorrected| {
        let (ecc_corrected, ecc_uncorrected) = (Some(corrected), Some(uncorrected));
        Record::DeviceState(DeviceState { at, ecc_corrected, ecc_uncorrected, ..DeviceState::default() })
    };
    let text = said(trace().record(counts(0, 100, 2)).record(counts(5 * S, 107, 3)));
    assert!(text.contains("3 uncorrected memory errors since the driver was loaded, 1 of them in"), "{text}");
    assert!(text.contains("7 corrected memory errors in this recording"), "{text}");
    assert!(!said(trace().record(counts(0, 100, 0))).contains("memory error"));
    let by_event = said(trace().record(event(S, DeviceEventKind::EccDoubleBit, 0)));
    assert!(by_event.contains("1 uncorrected and 0 corrected memory errors in this recording"), "{by_event}");
}

#[test]
fn tensor_cores_are_known_where_they_are_measured() {
    let with = |percent: f64| {
        let activity = DeviceActivity {
            span: Span::new(2 * S, 6 * S),
            tensor_percent: Some(percent),
            ..Default::default()
        };
        said(trace().record(Record::DeviceActivity(activity)))
    };
    assert!(with(45.0).contains("tensor cores in use 50 % of the busy time"), "{}", with(45.0));
    assert!(with(0.2).contains("tensor cores not in use ("));
    assert!(!with(45.0).contains("compilation, tensor cores"));
    assert!(said(trace()).contains("not known: run-time compilation, tensor cores, whether"));
}

#[test]
fn a_runtime_newer_than_the_driver_is_named() {
    let mapped = |name: &str| {
        let path = format!("/opt/venv/lib/{name}");
        let mapping =
            Mapping { at: 0, pid: 7, image: 0, start: 0, end: 1, offset: 0, path, build_id: Vec::new() };
        said(trace().record(Record::Mapping(mapping)))
    };
    assert!(mapped("libcudart.so.13").contains("a CUDA 13 runtime runs on a driver made for CUDA 12.8"));
    assert!(!mapped("libcudart.so.12.8.90").contains("runtime runs"));
}
