//! Nothing is lost unseen: every switch of a thread is a record, part of a total, or a counted loss.

use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{Loss, LossCause, LossClass, OffCpu, State, TargetKind, WaitTotal};
use whyidle_tests::privileged::{Child, Observed, attach};

const PAGE: u32 = 4096;
const NAPS: u32 = 300;
/// A nap whose timer fires before the thread has left the processor is no switch.
const LEAST: u64 = NAPS as u64 / 2;
const THRESHOLD_NS: u64 = 100_000;

struct Counted {
    switches: u64,
    delivered: u64,
    totalled: u64,
    dropped: u64,
    seen: Observed,
}

/// Runs a scenario without reading the ring until it is over, and counts what came of each switch.
fn count(ring_bytes: u32, threshold_ns: u64, scenario: impl FnOnce()) -> Counted {
    let mut child = Child::fork(scenario);
    let config = Config { ring_bytes, threshold_ns, sample_hz: 0, ..Config::default() };
    let mut tracer = attach(&config);
    tracer.add_process(child.pid, TargetKind::Named).expect("the child becomes a target");
    // Asleep at the barrier: this switch-out was before, its switch-in comes after.
    let before = child.switches();
    child.go();
    let begun = Instant::now();
    while !child.finished(Duration::from_secs(1)) {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    child.until_asleep();
    // Asleep for good: this switch-out has no switch-in.
    let switches = child.switches() - before;
    let mut records = Vec::new();
    drop(tracer.finish(&mut |r| records.push(r)).expect("finish"));
    let seen = Observed { pid: child.pid, records };
    let main = seen.main_thread();
    let delivered = seen.waits().filter(|w| w.thread == main && !w.cut_end).count() as u64;
    let totalled = seen.totals().filter(|t| t.thread == main).map(|t| t.count).sum();
    let lost = |l: &&Loss| matches!(l.class, LossClass::OffCpu | LossClass::WaitTotal);
    let dropped = seen.losses().filter(lost).map(|l| l.count).sum();
    Counted { switches, delivered, totalled, dropped, seen }
}

fn naps(n: u32) -> impl FnOnce() {
    move || (0..n).for_each(|_| std::thread::sleep(Duration::from_millis(1)))
}

#[test]
#[file_serial(probes)]
fn a_ring_that_holds_all_drops_nothing() {
    let c = count(1 << 20, THRESHOLD_NS, naps(NAPS));
    assert!(c.switches >= LEAST, "{}", c.switches);
    // An arrival the kernel did not announce is no drop, but it is counted all the same.
    assert!(
        c.seen.losses().all(|l| l.cause == LossCause::Unannounced),
        "{:?}",
        c.seen.losses().collect::<Vec<_>>()
    );
    assert_eq!(c.delivered + c.totalled + c.dropped, c.switches);
}

#[test]
#[file_serial(probes)]
fn a_ring_too_small_says_how_many() {
    let c = count(PAGE, THRESHOLD_NS, naps(NAPS));
    assert!(c.switches >= LEAST, "{}", c.switches);
    assert!(c.delivered >= 1, "one page holds a few");
    assert!(c.dropped * 3 > c.switches * 2, "{} of {}", c.dropped, c.switches);
    assert_eq!(c.delivered + c.totalled + c.dropped, c.switches, "delivered, added up or dropped");
    let full = |l: &&Loss| l.class == LossClass::OffCpu && l.cause == LossCause::RingFull;
    let count: u64 = c.seen.losses().filter(full).map(|l| l.count).sum();
    let risk: u64 = c.seen.losses().filter(full).map(|l| l.ns_at_risk).sum();
    assert!(count > 0 && risk >= count * THRESHOLD_NS, "what is no total is that long: {risk} in {count}");
}

#[test]
#[file_serial(probes)]
fn short_waits_are_added_up() {
    let c = count(1 << 20, 1_000_000_000_000, naps(200));
    // Only the wait under way at attach is no total.
    assert_eq!(c.delivered, 1);
    assert_eq!(c.totalled + c.dropped + 1, c.switches);
    let main = c.seen.main_thread();
    let naps: Vec<&WaitTotal> = c
        .seen
        .totals()
        .filter(|t| t.thread == main && i64::from(t.syscall) == libc::SYS_clock_nanosleep)
        .collect();
    let slept: u64 = naps.iter().map(|t| t.blocked_ns).sum();
    let count: u64 = naps.iter().map(|t| t.count).sum();
    assert!(count >= 100 && slept >= count * 500_000, "{slept} in {count} naps of a millisecond");
    for t in naps {
        assert!(t.first < t.last && t.count > 0);
        assert!(t.blocked_ns + t.runnable_ns <= t.last - t.first);
    }
}

/// Two threads that hand a byte back and forth: whoever waits is woken by the other.
#[test]
#[file_serial(probes)]
fn the_waker_is_known() {
    const HANDS: u32 = 3000;
    let seen = whyidle_tests::privileged::observe(&Config { sample_hz: 0, ..Config::default() }, || {
        use std::io::{Read, Write};
        let (mut ping_in, mut ping_out) = std::io::pipe().expect("pipe");
        let (mut pong_in, mut pong_out) = std::io::pipe().expect("pipe");
        let other = std::thread::spawn(move || {
            let mut byte = [0];
            while ping_in.read_exact(&mut byte).is_ok() && pong_out.write_all(&byte).is_ok() {}
        });
        let mut byte = [7];
        for i in 0..HANDS {
            ping_out.write_all(&byte).expect("ping");
            pong_in.read_exact(&mut byte).expect("pong");
            if i % 4 == 0 {
                // Makes some of the other's waits long.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        drop((ping_out, pong_in));
        other.join().expect("the other");
    });
    let main = seen.main_thread();
    let other = seen
        .threads()
        .find(|t| t.pid == seen.pid && t.key != main && t.born.is_some())
        .expect("the other's birth was seen")
        .key;
    let (mut known, mut all) = (0u64, 0u64);
    // Every wait that ended: one without a waking counts as one whose waker is not known.
    let slept = |w: &&OffCpu| !matches!(w.state, State::Preempted | State::Yielded) && !w.cut_end;
    for w in seen.waits_in(libc::SYS_read).filter(slept) {
        let expected = if w.thread == main { other } else { main };
        all += 1;
        known += u64::from(w.waker.as_ref().and_then(|w| w.thread) == Some(expected));
    }
    for t in seen.totals().filter(|t| i64::from(t.syscall) == libc::SYS_read && t.blocked_ns > 0) {
        let expected = if t.thread == main { other } else { main };
        all += t.count;
        known += if t.waker == Some(expected) { t.count } else { 0 };
    }
    assert!(all >= u64::from(HANDS), "{all} waits");
    // A pipe's own lock, which is waited for in the other state, is seldom taken.
    let long: Vec<_> = seen.waits_in(libc::SYS_read).filter(|w| w.woken.is_some()).collect();
    let asleep = long.iter().filter(|w| w.state == State::Sleeping).count();
    assert!(asleep * 100 >= long.len() * 99, "{asleep} of {} in the state a pipe is read in", long.len());
    eprintln!("waker known in {known} of {all} waits");
    assert!(known * 1000 >= all * 999, "{known} of {all}");
    assert!(seen.losses().all(|l| l.cause == LossCause::Unannounced));
}
