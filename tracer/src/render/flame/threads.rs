//! What the watched threads did, from the timeline alone: waits and samples.

use super::{Flame, Kind, frame};
use crate::cause::nvidia_command;
use crate::timeline::{Activity, NamedFrame, Thread, Timeline};
use crate::trace::{StackId, TargetKind};

/// Blocked time: `comm`, user frames from the outermost, the command of a call into the driver, kernel frames. Stays shorter than the recording's
/// threshold have no stack and stand under `[waits under the threshold]`.
#[must_use]
pub fn offcpu(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::OffCpu, timeline);
    for thread in targets(timeline) {
        for slice in &thread.slices {
            if let Activity::Blocked(index) = slice.activity
                && let Some(wait) = thread.off_cpu.get(index)
            {
                let call = wait.ioctl.map(|ioctl| {
                    let file = wait.file.and_then(|id| timeline.files.get(&id));
                    frame::safe(&format!("ioctl {}", nvidia_command(file.map(|f| f.rdev >> 20), ioctl)))
                });
                let stacks = (wait.user_stack, wait.kernel_stack);
                add(&mut flame, timeline, thread, stacks, call, slice.span.len());
            }
        }
        let short = thread.totals.iter().fold(0, |sum: u64, t| sum.saturating_add(t.blocked_ns));
        let stack = vec![frame::safe(&thread.comm), "[waits under the threshold]".to_owned()];
        flame.add(stack, None, short);
    }
    flame
}

/// Processor time: `comm`, user frames from the outermost, kernel frames; each sample weighs the periods it stands for.
#[must_use]
pub fn oncpu(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::OnCpu, timeline);
    for thread in targets(timeline) {
        for sample in &thread.samples {
            let stacks = (sample.user_stack, sample.kernel_stack);
            let ns = timeline.host.sample_period_ns.saturating_mul(sample.periods.max(1).into());
            add(&mut flame, timeline, thread, stacks, None, ns);
        }
    }
    flame
}

fn new(kind: Kind, timeline: &Timeline) -> Flame {
    let lost = timeline.losses.iter().fold(0, |sum: u64, l| sum.saturating_add(l.count));
    Flame::new(kind, timeline.span.len(), lost)
}

fn targets(timeline: &Timeline) -> impl Iterator<Item = &Thread> {
    timeline.threads.values().filter(|t| t.kind != TargetKind::Bystander)
}

/// `call` stands between the user's frames and the kernel's.
fn add(
    flame: &mut Flame,
    timeline: &Timeline,
    thread: &Thread,
    (user, kernel): (StackId, StackId),
    call: Option<String>,
    ns: u64,
) {
    let user = timeline.frames(user);
    let kernel = timeline.frames(kernel);
    let mut stack = vec![frame::safe(&thread.comm)];
    stack.extend(user.iter().rev().map(|f| frame::function(f, false)));
    stack.extend(call);
    stack.extend(kernel.iter().rev().map(|f| frame::function(f, true)));
    if stack.len() == 1 {
        stack.push("[no stack]".to_owned());
    }
    let all = || user.iter().chain(&kernel);
    // A kernel thread has no user side to miss.
    let whole = (thread.kernel_thread || !user.is_empty()) && all().next().is_some();
    flame.judge(whole && all().all(|f: &NamedFrame| f.resolved), ns);
    flame.add(stack, None, ns);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::render::flame::{folded, svg};
    use crate::timeline::Slice;
    use crate::trace::{
        Frame, Host, Loss, LossCause, LossClass, OffCpu, Sample, Span, Stack, StackKind, State, Symbol,
        ThreadKey, WaitTotal,
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

    fn name(kind: StackKind, address: u64, frames: &[&str]) -> ((u32, u64), Arc<Symbol>) {
        let pid = if kind == StackKind::Kernel { 0 } else { PID };
        let frames = frames.iter().map(|f| Frame { function: (*f).to_owned(), ..Frame::default() }).collect();
        let module = "lib.so".to_owned();
        let (build_id, reason) = (Vec::new(), String::new());
        (
            (pid, address),
            Arc::new(Symbol { kind, pid, address, frames, module, file_offset: 0x40, build_id, reason }),
        )
    }

    fn timeline(comm: &str) -> Timeline {
        let stack =
            |id, kind, addresses: &[u64]| (id, Stack { id, kind, pid: PID, addresses: addresses.to_vec() });
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
                                      5 records lost; complete stacks for 85.7 %"
        );
        let drawing = svg(&flame).expect("it draws");
        assert_eq!(drawing, svg(&offcpu(&timeline("py 3"))).expect("it draws again"));
        assert!(drawing.contains("schedule (300 ns, 81.08%)"), "{drawing}");
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
