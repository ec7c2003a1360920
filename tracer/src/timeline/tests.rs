//! The laws of the timeline, on hand-written and on arbitrary records.

use crate::timeline::testing::{MS, TraceBuilder, US, key};
use crate::timeline::{Activity, GivenWait, Shorts, Slice, build};
use crate::trace::{
    BlockTotal, CudaFamily, DeviceActivity, DeviceClock, DeviceEvent, DeviceState, FaultTotal, HostTick,
    Loss, LossCause, LossClass, RanInstead, Record, Span, State, TargetKind, WakerContext,
};

fn slices(builder: TraceBuilder, tid: u32) -> Vec<(u64, u64, Activity)> {
    let timeline = build(builder.records());
    let at = |s: &Slice| (s.span.start / MS, s.span.end / MS, s.activity);
    timeline.threads[&key(tid)].slices.iter().map(at).collect()
}

#[test]
fn a_wait_is_blocked_then_runnable() {
    let trace = TraceBuilder::new(0, 100 * MS)
        .thread(1, 1, "a")
        .wait(1, 10 * MS, 30 * MS, 40 * MS, |w| w)
        .preempted(1, 50 * MS, 60 * MS, |_| ());
    let expected = [
        (0, 10, Activity::Running),
        (10, 30, Activity::Blocked(0)),
        (30, 40, Activity::Runnable(0)),
        (40, 50, Activity::Running),
        (50, 60, Activity::Runnable(1)),
        (60, 100, Activity::Running),
    ];
    assert_eq!(slices(trace, 1), expected);
}

#[test]
fn a_life_begins_at_birth_and_ends_at_death() {
    let trace = TraceBuilder::new(0, 100 * MS).thread(1, 1, "a").born(1, 2, "b", 20 * MS, 1).wait(
        2,
        70 * MS,
        70 * MS,
        100 * MS,
        |w| w.state(State::Dead),
    );
    assert_eq!(slices(trace.clone(), 2), [(20, 70, Activity::Running)]);
    let timeline = build(trace.records());
    assert_eq!(timeline.threads[&key(2)].exited, Some(70 * MS));
    assert_eq!(timeline.threads[&key(2)].creator, Some(key(1)));
}

#[test]
fn an_exiting_thread_may_still_wait() {
    let trace = TraceBuilder::new(0, 100 * MS).thread(1, 1, "a").exit(1, 20 * MS).wait(
        1,
        30 * MS,
        50 * MS,
        60 * MS,
        |w| w,
    );
    let expected =
        [(0, 30, Activity::Running), (30, 50, Activity::Blocked(0)), (50, 60, Activity::Runnable(0))];
    assert_eq!(slices(trace, 1), expected);
}

#[test]
fn late_targets_are_unseen_before() {
    let adopt = |t: &mut crate::trace::ThreadSeen| (t.at, t.kind) = (50 * MS, TargetKind::Adopted);
    let trace = TraceBuilder::new(0, 100 * MS).bystander(1, 1, "a").thread_with(1, 1, "a", adopt);
    assert_eq!(slices(trace, 1), [(0, 50, Activity::Unseen), (50, 100, Activity::Running)]);
}

#[test]
fn bystanders_have_no_slices() {
    assert!(slices(TraceBuilder::new(0, 100 * MS).bystander(1, 1, "a"), 1).is_empty());
}

#[test]
fn a_wait_cut_at_both_ends_fills_the_recording() {
    let cut = |o: &mut crate::trace::OffCpu| {
        (o.cut_start, o.cut_end, o.woken, o.state) = (true, true, None, State::Sleeping);
    };
    let trace = TraceBuilder::new(0, 100 * MS).thread(1, 1, "a").preempted(1, 0, 100 * MS, cut);
    assert_eq!(slices(trace, 1), [(0, 100, Activity::Blocked(0))]);
}

#[test]
fn of_two_overlapping_intervals_the_later_is_clipped() {
    let trace = TraceBuilder::new(0, 100 * MS)
        .thread(1, 1, "a")
        .wait(1, 20 * MS, 35 * MS, 45 * MS, |w| w)
        .wait(1, 10 * MS, 30 * MS, 30 * MS, |w| w);
    let expected = [
        (0, 10, Activity::Running),
        (10, 30, Activity::Blocked(0)),
        (30, 35, Activity::Blocked(1)),
        (35, 45, Activity::Runnable(1)),
        (45, 100, Activity::Running),
    ];
    assert_eq!(slices(trace, 1), expected);
}

#[test]
fn shorts_are_spread_over_running_time_only() {
    let timeline = build(
        TraceBuilder::new(0, 100 * MS)
            .thread(1, 1, "a")
            .wait(1, 20 * MS, 60 * MS, 60 * MS, |w| w)
            .total(1, Some(2), 0, 80 * MS, |t| {
                (t.blocked_ns, t.runnable_ns, t.throttled_ns, t.count) = (8 * MS, 4 * MS, 2 * MS, 40);
            })
            .records(),
    );
    let thread = &timeline.threads[&key(1)];
    let half = thread.shorts(Span::new(0, 20 * MS));
    assert_eq!((half.blocked[0].ns, half.blocked[0].count), (4 * MS, 20));
    assert_eq!((half.runnable_ns, half.throttled_ns), (2 * MS, MS));
    assert_eq!(thread.shorts(Span::new(20 * MS, 60 * MS)), Shorts::default());
    assert_eq!(thread.shorts(Span::new(0, 100 * MS)).ns(), 12 * MS);
    assert_eq!(thread.shorts(Span::new(80 * MS, 100 * MS)), Shorts::default());
}

#[test]
fn shorts_never_exceed_running_time() {
    let timeline = build(
        TraceBuilder::new(0, 100 * MS)
            .thread(1, 1, "a")
            .total(1, None, 0, 10 * MS, |t| (t.blocked_ns, t.runnable_ns) = (30 * MS, 10 * MS))
            .records(),
    );
    let shorts = timeline.threads[&key(1)].shorts(Span::new(0, 10 * MS));
    assert_eq!((shorts.blocked[0].ns, shorts.runnable_ns), (7_500 * US, 2_500 * US));
}

fn rearmed() -> TraceBuilder {
    TraceBuilder::new(0, 100 * MS)
        .thread(1, 1, "a")
        .thread(2, 2, "b")
        .thread(3, 3, "c")
        .wait(1, 10 * MS, 15 * MS, 16 * MS, |w| w.futex(0x10, 2).interrupt(&["hrtimer_interrupt"]))
        .preempted(1, 17 * MS, 18 * MS, |_| ())
        .wait(1, 20 * MS, 30 * MS, 31 * MS, |w| w.futex(0x10, 2).woken_by(2))
}

#[test]
fn rearmed_waits_are_one() {
    let timeline = build(rearmed().records());
    let thread = &timeline.threads[&key(1)];
    assert_eq!(thread.merged.len(), 1);
    assert_eq!(thread.merged_wait(0).unwrap().members, [0, 2]);
    assert_eq!(thread.merged_wait(1), None);
    assert_eq!(thread.ended_by(0).unwrap().thread, Some(key(2)));
}

#[test]
fn what_a_thread_does_between_two_waits_parts_them() {
    let groups = |trace: TraceBuilder| build(trace.records()).threads[&key(1)].merged.len();
    assert_eq!(groups(rearmed().submits(1, 19 * MS, 19 * MS, 1)), 2);
    assert_eq!(groups(rearmed().submits(1, 9 * MS, 19 * MS, 1)), 2);
    assert_eq!(groups(rearmed().submits(1, 9 * MS, 10 * MS, 1)), 1);
    let sync = CudaFamily::Synchronize;
    assert_eq!(groups(rearmed().call(1, sync, "cuCtxSynchronize", 19 * MS, 20 * MS)), 2);
    let delivers = |w: crate::timeline::testing::Wait| w.woken_by(1);
    assert_eq!(groups(rearmed().wait(3, 5 * MS, 18 * MS, 18 * MS, delivers)), 2);
    assert_eq!(groups(rearmed().wait(3, 5 * MS, 35 * MS, 35 * MS, delivers)), 1);
}

#[test]
fn given_leaves_out_interrupts() {
    let trace = rearmed()
        .wait(2, 10 * MS, 12 * MS, 12 * MS, |w| w.woken_by(1))
        .wait(2, 14 * MS, 16 * MS, 16 * MS, |w| {
            w.woken_by(1).with(|o| o.waker.as_mut().unwrap().context = WakerContext::Interrupt)
        })
        .total(3, Some(1), 20 * MS, 90 * MS, |t| t.blocked_ns = MS);
    let timeline = build(trace.records());
    let given: Vec<_> =
        timeline.threads[&key(1)].given.iter().map(|g| (g.at / MS, g.wakee.tid, g.wait)).collect();
    assert_eq!(given, [(12, 2, GivenWait::OffCpu(0)), (90, 3, GivenWait::Total(0))]);
}

#[test]
fn a_process_shares_what_one_thread_told() {
    let bare = |t: &mut crate::trace::ThreadSeen| t.cmdline.clear();
    let timeline =
        build(TraceBuilder::new(0, MS).thread(7, 7, "main").thread_with(7, 8, "worker", bare).records());
    assert_eq!(timeline.threads[&key(8)].cmdline, ["main"]);
    assert_eq!(timeline.threads[&key(8)].comm, "worker");
}

#[test]
fn no_records_make_an_empty_timeline() {
    let timeline = build(Vec::<Record>::new());
    assert_eq!(timeline.span, Span::new(0, 0));
    assert!(timeline.threads.is_empty());
}

/// One record of each kind that may tell of a time before the recording, from 1 ms to 2 ms.
fn from_before() -> Vec<Record> {
    let (at, span) = (MS, Span::new(MS, 2 * MS));
    let (class, cause) = (LossClass::Stored, LossCause::Damaged);
    let ran = RanInstead { span, cpu: 0, thread: key(9), pid: 9, comm: String::new(), ns: 1, target: false };
    vec![
        Record::DeviceActivity(DeviceActivity { span, ..DeviceActivity::default() }),
        Record::DeviceState(DeviceState { at, ..DeviceState::default() }),
        Record::DeviceEvent(DeviceEvent { at, ..DeviceEvent::default() }),
        Record::DeviceClock(DeviceClock { at, ..DeviceClock::default() }),
        Record::Block(BlockTotal { span, ..BlockTotal::default() }),
        Record::RanInstead(ran),
        Record::FaultTotal(FaultTotal { span, ..FaultTotal::default() }),
        Record::Loss(Loss { at: 0, class, cpu: None, cause, count: 1, ns_at_risk: 0 }),
    ]
}

#[test]
fn a_lost_start_widens_no_recording() {
    let trace = TraceBuilder::new(MS, 100 * MS).device(0).on_device(0, 1).reading(0, 0, 40 * MS, 10.0);
    let mut records = trace.records();
    assert!(matches!(records.remove(0), Record::Host(_)));
    records.extend(from_before());
    let end = records.iter().position(|r| matches!(r, Record::End(_))).unwrap();
    let mut cut = records.clone();
    cut.remove(end);
    // Nothing shows when it went on: then no time was recorded.
    assert!(build(cut).span.is_empty());
    let tick = HostTick { at: 50 * MS, cpus: vec![(2, 0, 0, 0), (0, 0, 0, 0)], pressure_us: None };
    let timeline = build(records.into_iter().chain([Record::HostTick(tick)]));
    assert_eq!(timeline.span, Span::new(50 * MS, 100 * MS));
    assert!(!timeline.host_known);
    assert_eq!((timeline.host.start_ns, timeline.host.online_cpus), (50 * MS, vec![0, 2]));
}
