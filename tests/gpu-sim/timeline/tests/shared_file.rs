//! The shared file: what is written is read back, whatever becomes of the writer.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_sim_timeline::signal::{Recent, period_ends};
use gpu_sim_timeline::{DEVICES, Interval, Lane, Process, RING, Timeline, Work, clock, truth};
use tempfile::TempDir;

const MS: u64 = 1_000_000;

struct Shared {
    folder: TempDir,
}

impl Shared {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    fn open(&self) -> Timeline {
        Timeline::open(&self.path(), 2).expect("opens")
    }
}

fn lane(timeline: &Timeline, process: &Process<'_>, device: u32) -> Lane {
    Lane::take(timeline, process, device, clock::now()).expect("a free lane")
}

fn interval(start: u64, end: u64) -> Interval {
    Interval { start, end }
}

#[test]
fn the_truth_is_the_union_over_lanes_and_mappings_up_to_now() {
    let shared = Shared::new();
    let (one, two) = (shared.open(), shared.open());
    let (mine, theirs) = (one.enter().expect("enters"), two.enter().expect("enters"));
    let (a, b) = (lane(&one, &mine, 0), lane(&two, &theirs, 0));
    let other = lane(&one, &mine, 1);
    a.push(&one, Work::Kernel, interval(10, 20));
    a.push(&one, Work::Kernel, interval(20, 30));
    b.push(&two, Work::Kernel, interval(25, 40));
    b.push(&two, Work::Copy, interval(50, 60));
    other.push(&one, Work::Kernel, interval(100, 110));
    b.push(&two, Work::Kernel, interval(clock::now() - 5, clock::now() + 3_600_000 * MS));
    let truths = one.truth().expect("readable");
    assert_eq!(truths[0].busy[0], interval(10, 40));
    assert!(truths[0].busy[1].end <= clock::now(), "{truths:?}");
    assert_eq!(truths[1].busy, [interval(100, 110)]);

    let mut text = Vec::new();
    truth::write(&truths, &mut text).expect("writable");
    let parsed = truth::parse(text.as_slice()).expect("its own form");
    assert_eq!(parsed, truths);
    assert!(text.starts_with(br#"{"device":0,"start_ns":10,"end_ns":40}"#));
}

#[test]
fn a_full_ring_keeps_the_newest_and_says_from_when() {
    let shared = Shared::new();
    let timeline = shared.open();
    let process = timeline.enter().expect("enters");
    let lane = lane(&timeline, &process, 0);
    let written = RING as u64 + 1000;
    for k in 1..=written {
        lane.push(&timeline, Work::Kernel, interval(k * 10, k * 10 + 5));
    }
    let truth = &timeline.truth().expect("readable")[0];
    assert_eq!(truth.busy.len(), RING - 1);
    assert_eq!(truth.busy.last(), Some(&interval(written * 10, written * 10 + 5)));
    assert_eq!(truth.complete_from, truth.busy[0].start);
}

#[test]
fn a_reader_never_sees_half_a_write() {
    let shared = Shared::new();
    let timeline = shared.open();
    let process = timeline.enter().expect("enters");
    let lane = lane(&timeline, &process, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for k in 1..=3 * RING as u64 {
                lane.push(&timeline, Work::Kernel, interval(k * 10, k * 10 + 5));
            }
            done.store(true, Ordering::Release);
        });
        let mut reads = 0;
        while !done.load(Ordering::Acquire) || reads == 0 {
            reads += 1;
            let truth = &timeline.truth().expect("readable")[0];
            for pair in truth.busy.windows(2) {
                assert!(pair[0].end - pair[0].start == 5 && pair[0].end < pair[1].start, "{pair:?}");
            }
        }
    });
}

#[test]
fn lanes_come_back_only_once_their_work_is_over_and_keep_their_device() {
    let shared = Shared::new();
    let timeline = shared.open();
    let process = timeline.enter().expect("enters");
    let now = clock::now();
    for round in 0..500 {
        let lane = Lane::take(&timeline, &process, round % 2, now).expect("lanes are used again");
        lane.push(&timeline, Work::Kernel, interval(1, 2));
        lane.give_back(&timeline);
    }
    let busy = lane(&timeline, &process, 0);
    busy.push(&timeline, Work::Kernel, interval(now, now + 3_600_000 * MS));
    busy.give_back(&timeline);
    let next = lane(&timeline, &process, 0);
    next.push(&timeline, Work::Kernel, interval(now - 100, now - 50));
    let truth = &timeline.truth().expect("readable")[0];
    assert_eq!(truth.busy[..2], [interval(1, 2), interval(now - 100, now - 50)]);
}

#[test]
fn a_process_that_leaves_drops_its_queue_and_its_contexts() {
    let shared = Shared::new();
    let timeline = shared.open();
    let process = timeline.enter().expect("enters");
    process.context_made(0);
    assert_eq!(timeline.running(0).len(), 1);
    let lane = lane(&timeline, &process, 0);
    let now = clock::now();
    lane.push(&timeline, Work::Kernel, interval(now, now + 3_600_000 * MS));
    lane.push(&timeline, Work::Copy, interval(now, now + 3_600_000 * MS));
    assert!(process.leave().expect("the file is there"), "it was the last");
    let left = clock::now();
    assert!(timeline.running(0).is_empty());
    let truth = &timeline.truth().expect("readable")[0];
    assert!(truth.busy.last().expect("it ran for a moment").end <= left);
}

#[test]
fn utilization_is_of_the_period_rounded_and_power_a_mean() {
    let shared = Shared::new();
    let timeline = shared.open();
    let process = timeline.enter().expect("enters");
    process.context_made(0);
    let lane = lane(&timeline, &process, 0);
    let second = 1_000 * MS;
    let start = clock::now();
    // 99.6 % of the first half second, then half of the next; a copy all along.
    lane.push(&timeline, Work::Kernel, interval(start, start + 498 * MS));
    lane.push(&timeline, Work::Kernel, interval(start + 500 * MS, start + 750 * MS));
    lane.push(&timeline, Work::Copy, interval(start, start + second));
    let recent = Recent::new(&timeline, 0, start, start + second);
    assert_eq!(recent.utilization(start + 500 * MS, 500 * MS), 100);
    assert_eq!(recent.utilization(start + 1_000 * MS, 500 * MS), 50);
    assert_eq!(recent.utilization(start + 2_000 * MS, 500 * MS), 0);
    assert_eq!(recent.memory(start + 1_000 * MS, 500 * MS), 100);
    let power = recent.power_mw(start + second);
    assert!((554_000..=555_000).contains(&power), "122 W and 74.8 % of the rest: {power}");
    // A period is out only once it is over, and a driver keeps a hundred.
    let ends = period_ends(&timeline, 0, 1_000, 0, timeline.created() + 500_500);
    assert_eq!(ends.len(), 100);
    assert_eq!(ends.last(), Some(&(timeline.created() + 500_000)));
    let newest = *ends.last().expect("some");
    assert!(period_ends(&timeline, 0, 1_000, newest, timeline.created() + 500_500).is_empty());
}

#[test]
fn what_is_no_shared_file_is_refused() {
    let shared = Shared::new();
    assert!(truth::read(&shared.path()).is_err(), "missing");
    std::fs::write(shared.path(), "some text").expect("writable");
    assert!(Timeline::open(&shared.path(), 1).is_err(), "text");
    assert!(truth::read(&shared.path()).is_err(), "text");
    std::fs::write(shared.path(), "").expect("writable");
    assert!(truth::read(&shared.path()).is_err(), "empty");
    let many = Timeline::open(&shared.path(), 1_000_000).expect("an empty file is made one");
    assert_eq!(many.devices(), DEVICES as u32);
}

#[test]
fn the_binary_prints_the_truth_as_json_lines() {
    let shared = Shared::new();
    let timeline = shared.open();
    let process = timeline.enter().expect("enters");
    lane(&timeline, &process, 1).push(&timeline, Work::Kernel, interval(7, 9));
    let printed = Command::new(env!("CARGO_BIN_EXE_sim-truth")).arg(shared.path()).output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), "{\"device\":1,\"start_ns\":7,\"end_ns\":9}\n");
    let refused = Command::new(env!("CARGO_BIN_EXE_sim-truth")).arg("/nowhere").output().expect("runs");
    assert!(!refused.status.success() && refused.stdout.is_empty());
}
