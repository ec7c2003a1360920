//! Who ended the watched threads' waits.

use super::threads::{SHORT, each_wait, new, targets};
use super::{Flame, Kind, frame, stack};
use crate::timeline::{Thread, Timeline};
use crate::trace::{ThreadKey, Waker, WakerContext};

/// How deep in a waker's stack the probe's own frames may begin.
const PROBE: usize = 4;
/// Parts the sleeper's frames from its waker's.
const WOKEN_BY: &str = "[woken by]";

/// Blocked time: the sleeper as in [`super::offcpu`], `[woken by]`, then the waker's frames from the wake-up
/// outward and its `comm`. Several waits that are one wait have the waker of the last.
#[must_use]
pub fn wakers(timeline: &Timeline) -> Flame {
    let mut flame = new(Kind::Wakers, timeline);
    for thread in targets(timeline) {
        each_wait(thread, |index, span| {
            let sleeper = stack::of_wait(timeline, &thread.off_cpu[index], thread.kernel_thread);
            let (waker, known) = waker(timeline, thread, index);
            flame.judge(sleeper.complete && known, span.len());
            let of_sleeper = [vec![frame::safe(&thread.comm)], sleeper.frames].concat();
            flame.add([of_sleeper, vec![WOKEN_BY.to_owned()], waker].concat(), None, span.len());
        });
        for total in &thread.totals {
            let waker = total.waker.map_or_else(unknown, |waker| comm(timeline, waker));
            let stack = vec![frame::safe(&thread.comm), SHORT.to_owned(), WOKEN_BY.to_owned(), waker];
            flame.add(stack, None, total.blocked_ns);
        }
    }
    flame
}

/// The waker's frames from the wake-up outward, and whether all of them are known by name.
fn waker(timeline: &Timeline, thread: &Thread, index: usize) -> (Vec<String>, bool) {
    let wait = &thread.off_cpu[index];
    let Some(waker) = thread.ended_by(index).or(wait.waker.as_ref()) else {
        let why = if wait.woken.is_none() { "[not woken while recorded]".to_owned() } else { unknown() };
        return (vec![why], false);
    };
    let interrupt = waker.context == WakerContext::Interrupt;
    let user = if interrupt { 0 } else { waker.user_stack };
    let stack = stack::stack(timeline, (user, waker.kernel_stack), None, interrupt);
    let mut frames = stack.frames;
    frames.reverse();
    own_part(&mut frames, interrupt);
    frames.push(name(timeline, waker));
    (frames, stack.complete)
}

/// Takes off what is not the waker's: the probe that saw the wake-up, and what an interrupt came upon. Innermost
/// frame first.
fn own_part(frames: &mut Vec<String>, interrupt: bool) {
    if let Some(probe) = frames.iter().take(PROBE).position(|f| f.starts_with("bpf_trace_run")) {
        frames.drain(..=probe);
    }
    if interrupt && let Some(entry) = frames.iter().position(|f| f.starts_with("asm_")) {
        frames.truncate(entry + 1);
    }
}

/// An interrupt is nobody's doing: the thread it came upon only happened to be there.
fn name(timeline: &Timeline, waker: &Waker) -> String {
    match (waker.context, waker.thread) {
        (WakerContext::Interrupt, _) => "[interrupt]".to_owned(),
        (_, Some(thread)) => comm(timeline, thread),
        (_, None) => unknown(),
    }
}

fn comm(timeline: &Timeline, thread: ThreadKey) -> String {
    timeline.threads.get(&thread).map_or_else(unknown, |t| frame::safe(&t.comm))
}

fn unknown() -> String {
    "[waker not known]".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::flame::{folded, offcpu};
    use crate::timeline::build;
    use crate::timeline::testing::{MS, TraceBuilder};
    use crate::trace::StackKind;

    #[test]
    fn the_waker_s_frames_stand_behind_the_sleeper_s_from_the_wake_up_outward() {
        let trace = TraceBuilder::new(0, 100 * MS).thread(1, 1, "trainer").thread(2, 2, "loader");
        let (trace, put) = trace.stack(2, StackKind::User, &["libpython3.so!put", "worker_loop"]);
        let trace = trace
            .wait(1, 10 * MS, 30 * MS, 30 * MS, |w| {
                let w =
                    w.kernel(&["schedule", "futex_wait"]).woken_by(2).woken_from(&["futex_wake", "do_futex"]);
                w.with(|off| off.waker.as_mut().expect("woken by 2").user_stack = put)
            })
            .wait(1, 40 * MS, 45 * MS, 45 * MS, |w| {
                w.kernel(&["io_schedule"]).interrupt(&[
                    "bpf_prog",
                    "bpf_trace_run1",
                    "bio_endio",
                    "asm_common_interrupt",
                    "vfs_read",
                ])
            })
            .wait(1, 50 * MS, 53 * MS, 53 * MS, |w| w)
            .total(1, Some(2), 60 * MS, 70 * MS, |t| t.blocked_ns = MS);
        let timeline = build(trace.records());
        let flame = wakers(&timeline);
        assert_eq!(
            folded(&flame),
            "trainer;[no stack];[woken by];[waker not known] 3000000\n\
             trainer;[waits under the threshold];[woken by];loader 1000000\n\
             trainer;futex_wait_[k];schedule_[k];[woken by];futex_wake_[k];do_futex_[k];put;worker_loop;loader 20000000\n\
             trainer;io_schedule_[k];[woken by];bio_endio_[k];asm_common_interrupt_[k];[interrupt] 5000000\n"
        );
        assert_eq!(flame.total_ns(), offcpu(&timeline).total_ns());
    }
}
