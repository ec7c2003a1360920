//! What the watched threads did, from the timeline alone: waits and samples.

use super::stack::{self, Stack};
use super::{Flame, Kind, frame};
use crate::timeline::{Activity, Thread, Timeline, total};
use crate::trace::{Span, TargetKind};

/// Where waits shorter than the recording's threshold stand: they have no stack.
pub(super) const SHORT: &str = "[waits under the threshold]";

/// Blocked time: `comm`, user frames from the outermost, the command of a call into the driver, kernel frames.
/// Stays shorter than the recording's threshold stand under `[waits under the threshold]`.
#[must_use]
pub fn offcpu(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::OffCpu, timeline);
    for thread in targets(timeline) {
        each_wait(thread, |index, span| block(&mut flame, timeline, thread, index, span.len()));
        let short = thread.totals.iter().fold(0, |sum: u64, t| sum.saturating_add(t.blocked_ns));
        flame.add(vec![frame::safe(&thread.comm), SHORT.to_owned()], None, short);
    }
    flame
}

/// The part of it that lies in `spans`, which are in order and apart. Short stays are spread as
/// [`Thread::shorts`] does.
pub(super) fn offcpu_within(timeline: &Timeline, spans: &[Span]) -> Flame {
    let mut flame = new(Kind::OffCpu, timeline);
    flame.window_ns = total(spans);
    for thread in targets(timeline) {
        each_wait(thread, |index, wait| {
            let from = spans.partition_point(|s| s.end <= wait.start);
            let within = spans[from..].iter().take_while(|s| s.start < wait.end);
            let ns = within.filter_map(|s| s.intersect(wait)).map(Span::len).sum();
            block(&mut flame, timeline, thread, index, ns);
        });
        let short = spans.iter().flat_map(|span| thread.shorts(*span).blocked);
        let short = short.fold(0, |sum: u64, wait| sum.saturating_add(wait.ns));
        flame.add(vec![frame::safe(&thread.comm), SHORT.to_owned()], None, short);
    }
    flame
}

/// Processor time: `comm`, user frames from the outermost, kernel frames; each sample weighs the periods it
/// stands for.
#[must_use]
pub fn oncpu(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::OnCpu, timeline);
    for thread in targets(timeline) {
        for sample in &thread.samples {
            let stacks = (sample.user_stack, sample.kernel_stack);
            let ns = timeline.host.sample_period_ns.saturating_mul(sample.periods.max(1).into());
            let stack = stack::stack(timeline, stacks, None, thread.kernel_thread);
            add(&mut flame, thread, stack, ns);
        }
    }
    flame
}

pub(super) fn new(kind: Kind, timeline: &Timeline) -> Flame {
    let lost = timeline.losses.iter().fold(0, |sum: u64, l| sum.saturating_add(l.count));
    Flame::new(kind, timeline.span.len(), lost)
}

pub(super) fn targets(timeline: &Timeline) -> impl Iterator<Item = &Thread> {
    timeline.threads.values().filter(|t| t.kind != TargetKind::Bystander)
}

/// Calls `each` with every stretch in which the thread waited for an event, and the index of that wait.
pub(super) fn each_wait(thread: &Thread, mut each: impl FnMut(usize, Span)) {
    for slice in &thread.slices {
        if let Activity::Blocked(index) = slice.activity
            && index < thread.off_cpu.len()
        {
            each(index, slice.span);
        }
    }
}

fn block(flame: &mut Flame, timeline: &Timeline, thread: &Thread, index: usize, ns: u64) {
    if ns > 0 {
        add(flame, thread, stack::of_wait(timeline, &thread.off_cpu[index], thread.kernel_thread), ns);
    }
}

fn add(flame: &mut Flame, thread: &Thread, stack: Stack, ns: u64) {
    flame.judge(stack.complete, ns);
    flame.add([vec![frame::safe(&thread.comm)], stack.frames].concat(), None, ns);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::render::flame::{folded, svg};
    use crate::timeline::Slice;
    use crate::trace::{
        Frame, Host, Loss, LossCause, LossClass, OffCpu, Sample, Span, Stack, StackEnd, StackId, StackKind,
        State, Symbol, ThreadKey, WaitTotal,
    };

    const PID: u32 = 42;
    const USER: StackId = 7;
    const KERNEL: StackId = 8;
    const BARE: StackId = 9;

    fn key(tid: u32) -> ThreadKey {
        ThreadKey { tid, start_ticks: 1 }
    }

    fn wait(user_stack: StackId, kernel_stack: StackId) -> OffCpu {
        OffCpu {
            thread: key(PID),
            pid: PID,
            left: 0,
            woken: Some(0),
            ran: 0,
            state: State::Sleeping,
            cut_start: false,
            cut_end: false,
            throttled: false,
            cpu_left: 0,
            cpu_queued: 0,
            cpu_ran: 0,
            cpus_allowed: 1,
            cpu_mask: [1, 0, 0, 0],
            syscall: None,
            ioctl: None,
            futex_value: None,
            file: None,
            path_arg: None,
            kernel_stack,
            user_stack,
            waker: None,
        }
    }

    fn thread(tid: u32, comm: &str, kind: TargetKind) -> Thread {
        let slice = |start, end, activity| Slice { span: Span::new(start, end), activity };
        Thread {
            key: key(tid),
            pid: PID,
            ppid: 1,
            comm: comm.to_owned(),
            kind,
            kernel_thread: false,
            creator: None,
            born: None,
            exited: None,
            execs: Vec::new(),
            cgroups: Vec::new(),
            cmdline: Vec::new(),
            slices: vec![
                slice(0, 100, Activity::Running),
                slice(100, 400, Activity::Blocked(0)),
                slice(400, 450, Activity::Runnable(0)),
                slice(450, 500, Activity::Blocked(1)),
                slice(500, 600, Activity::Blocked(99)),
                slice(600, 700, Activity::Unseen),
            ],
            off_cpu: vec![wait(USER, KERNEL), wait(BARE, 0)],
            totals: vec![WaitTotal {
                thread: key(tid),
                pid: PID,
                waker: None,
                waker_pid: 0,
                syscall: 0,
                arg0: 0,
                count: 3,
                blocked_ns: 20,
                runnable_ns: 5,
                throttled_ns: 0,
                first: 0,
                last: 90,
            }],
            samples: [USER, 0]
                .map(|user_stack| Sample {
                    at: 50,
                    thread: key(tid),
                    pid: PID,
                    user_stack,
                    ..Sample::default()
                })
                .to_vec(),
            faults: Vec::new(),
            submits: Vec::new(),
            calls: Vec::new(),
            collectives: Vec::new(),
            reclaims: Vec::new(),
            merged: Vec::new(),
            given: Vec::new(),
            index: Default::default(),
        }
    }

    fn name(kind: StackKind, address: u64, frames: &[&str]) -> ((u32, u32, u64), Arc<Symbol>) {
        let pid = if kind == StackKind::Kernel { 0 } else { PID };
        let frames = frames.iter().map(|f| Frame { function: (*f).to_owned(), ..Frame::default() }).collect();
        let module = "lib.so".to_owned();
        let (build_id, reason) = (Vec::new(), String::new());
        (
            (pid, 0, address),
            Arc::new(Symbol {
                kind,
                pid,
                image: 0,
                address,
                frames,
                module,
                file_offset: 0x40,
                build_id,
                reason,
            }),
        )
    }

    fn timeline(comm: &str) -> Timeline {
        let stack = |id, kind, addresses: &[u64]| {
            (
                id,
                Stack {
                    image: 0,
                    id,
                    kind,
                    pid: PID,
                    addresses: addresses.to_vec(),
                    end: StackEnd::Unknown,
                    python: 0,
                },
            )
        };
        Timeline {
            host: Host { sample_period_ns: 10, ..Host::default() },
            span: Span::new(0, 700),
            threads: [thread(PID, comm, TargetKind::Named), thread(77, "bystander", TargetKind::Bystander)]
                .map(|t| (t.key, t))
                .into(),
            stacks: [
                stack(USER, StackKind::User, &[1, 2]),
                stack(KERNEL, StackKind::Kernel, &[10]),
                stack(BARE, StackKind::User, &[3, 4]),
            ]
            .into(),
            names: [
                name(StackKind::User, 1, &["inlined;x", "read"]),
                name(StackKind::User, 2, &["main"]),
                name(StackKind::Kernel, 10, &["schedule"]),
                name(StackKind::User, 3, &[]),
            ]
            .into(),
            losses: vec![Loss {
                at: 1,
                class: LossClass::OffCpu,
                cpu: None,
                cause: LossCause::RingFull,
                count: 5,
                ns_at_risk: 0,
            }],
            ..Timeline::default()
        }
    }

    #[test]
    fn blocked_time_stands_under_its_stacks() {
        let flame = offcpu(&timeline("py 3"));
        assert_eq!(
            folded(&flame),
            "py_3;0x4;lib.so+0x40 50\n\
             py_3;[waits under the threshold] 20\n\
             py_3;main;read;inlined:x;schedule_[k] 300\n"
        );
        assert_eq!(
            flame.subtitle(),
            "370 ns blocked, all threads together, in a recording of 700 ns; \
                                      5 records lost; complete stacks for 100.0 %"
        );
        let drawing = svg(&flame).expect("it draws");
        assert_eq!(drawing, svg(&offcpu(&timeline("py 3"))).expect("it draws again"));
        assert!(drawing.contains("schedule (300 ns, 81.08%)"), "{drawing}");
    }

    #[test]
    fn a_walk_that_stopped_early_says_where() {
        let mut timeline = timeline("py");
        for (end, frame) in [
            (StackEnd::NoTable, "[no unwind table: lib.so]"),
            (StackEnd::NoRule, "[no unwind rule: lib.so]"),
            (StackEnd::Depth, "[deeper than what is kept]"),
        ] {
            timeline.stacks.get_mut(&USER).expect("a stack").end = end;
            let flame = oncpu(&timeline);
            let line = format!("py;{frame};main;read;inlined:x 10");
            assert!(folded(&flame).lines().any(|l| l == line), "{}", folded(&flame));
            assert_eq!((flame.stacked_ns, flame.complete_ns), (20, 0));
        }
        timeline.stacks.get_mut(&USER).expect("a stack").end = StackEnd::Start;
        assert_eq!(oncpu(&timeline).complete_ns, 10);
    }

    #[test]
    fn callers_that_lie_in_no_code_are_not_shown_where_a_walk_may_go_astray() {
        let mut timeline = timeline("py");
        let whole = "py;main;read;inlined:x 10\n";
        timeline.stacks.get_mut(&USER).expect("a stack").end = StackEnd::Start;
        assert!(folded(&oncpu(&timeline)).contains(whole));
        timeline.stacks.get_mut(&USER).expect("a stack").addresses.extend([0xb9_0000_0000_00b8, 5]);
        for (end, shown) in [
            (StackEnd::FramePointers, "py;[by frame pointers alone];main;read;inlined:x 10\n"),
            (StackEnd::NoMapping, "py;[not mapped];main;read;inlined:x 10\n"),
            (
                StackEnd::Guessed,
                "py;[in part by frame pointers];0x5;0xb90000000000b8;main;read;inlined:x 10\n",
            ),
        ] {
            timeline.stacks.get_mut(&USER).expect("a stack").end = end;
            assert!(folded(&oncpu(&timeline)).contains(shown), "{}", folded(&oncpu(&timeline)));
        }
        // Where the thread was is known, whatever lies there.
        timeline.stacks.get_mut(&USER).expect("a stack").addresses = vec![7, 8];
        timeline.stacks.get_mut(&USER).expect("a stack").end = StackEnd::NoMapping;
        assert!(folded(&oncpu(&timeline)).contains("py;[not mapped];0x7 10\n"));
    }

    #[test]
    fn a_stack_that_was_lost_is_no_empty_one() {
        let mut timeline = timeline("py");
        timeline.stacks.remove(&USER);
        let flame = offcpu(&timeline);
        assert!(folded(&flame).contains("py;[stack lost];schedule_[k] 300\n"), "{}", folded(&flame));
        // The other one is there, without names.
        assert_eq!(flame.complete_ns, 50);
        timeline.stacks.remove(&KERNEL);
        assert!(folded(&offcpu(&timeline)).contains("py;[stack lost];[stack lost] 300\n"));
    }

    #[test]
    fn samples_weigh_a_period_each() {
        assert_eq!(folded(&oncpu(&timeline("py"))), "py;[no stack] 10\npy;main;read;inlined:x 10\n");
    }

    #[test]
    fn a_sample_weighs_all_the_periods_it_stands_for() {
        let mut timeline = timeline("py");
        timeline.threads.values_mut().for_each(|thread| thread.samples[0].periods = 7);
        assert_eq!(folded(&oncpu(&timeline)), "py;[no stack] 10\npy;main;read;inlined:x 70\n");
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let empty = Timeline::default();
        assert_eq!(folded(&offcpu(&empty)), "");
        assert!(matches!(svg(&offcpu(&empty)), Err(super::super::FlameError::NoWait)));
        assert!(matches!(svg(&oncpu(&empty)), Err(super::super::FlameError::NoSample)));
    }

    #[test]
    fn weights_that_overflow_still_draw() {
        let mut huge = timeline("py");
        for thread in huge.threads.values_mut() {
            thread.totals[0].blocked_ns = u64::MAX;
        }
        assert!(svg(&offcpu(&huge)).is_ok());
    }
}
