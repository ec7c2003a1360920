//! Off-CPU intervals: state, system call, waker.

use tracer_ebpf::wire::{self, flags};

use super::decode::{Decoder, key};
use crate::trace::{NvidiaIoctl, OffCpu, State, Syscall, Waker, WakerContext};

// `prev_state` is a bit mask with modifiers.
const INTERRUPTIBLE: u32 = 0x1;
const UNINTERRUPTIBLE: u32 = 0x2;
const STOPPED: u32 = 0x4;
const TRACED: u32 = 0x8;
const DEAD: u32 = 0x10 | 0x20 | 0x80;
const PARKED: u32 = 0x40;
/// `TASK_NOLOAD`: with uninterruptible an idle kernel thread, no disk wait.
const NOLOAD: u32 = 0x400;
/// `TASK_FROZEN`.
const FROZEN: u32 = 0x8000;

const SCHED_YIELD: i32 = 24;

/// State of a thread that left with this `prev_state`.
#[must_use]
pub fn state(raw: u32, preempted: bool, syscall: i32) -> State {
    if preempted || raw == 0 {
        return if syscall == SCHED_YIELD { State::Yielded } else { State::Preempted };
    }
    match raw {
        r if r & DEAD != 0 => State::Dead,
        r if r & (STOPPED | TRACED | FROZEN) != 0 => State::Stopped,
        r if r & PARKED != 0 || r & NOLOAD != 0 => State::Idle,
        r if r & UNINTERRUPTIBLE != 0 => State::Uninterruptible,
        r if r & INTERRUPTIBLE != 0 => State::Sleeping,
        // RT lock waits and states to come.
        _ => State::Uninterruptible,
    }
}

#[must_use]
pub fn off_cpu(decoder: &Decoder, wire: &wire::OffCpu, path_arg: Option<String>) -> OffCpu {
    let has = |flag: u32| wire.flags & flag != 0;
    let thread = key(wire.tid, wire.start_boottime);
    let cut_start = has(flags::CUT_START);
    let left = if cut_start {
        decoder.since.get(&thread).copied().unwrap_or(decoder.attached_at).min(wire.ran)
    } else {
        wire.left
    };
    // A cut wait's departure was not seen: what is known of its state comes from its wake-up.
    let preempted = if cut_start { wire.woken == 0 } else { has(flags::PREEMPT | flags::NEWBORN) };
    let state = state(wire.state, preempted, wire.syscall);
    let runnable = matches!(state, State::Preempted | State::Yielded);
    OffCpu {
        thread,
        pid: wire.pid,
        left,
        woken: (wire.woken != 0 && !runnable).then(|| wire.woken.clamp(left, wire.ran)),
        ran: wire.ran,
        state,
        cut_start,
        cut_end: false,
        throttled: has(flags::THROTTLED),
        cpu_left: wire.cpu_left,
        cpu_queued: wire.cpu_queued,
        cpu_ran: wire.cpu_ran,
        cpus_allowed: wire.cpus_allowed,
        cpu_mask: wire.cpu_mask,
        syscall: (wire.syscall >= 0).then_some(Syscall { nr: wire.syscall, args: wire.args }),
        ioctl: has(flags::IOCTL).then(|| NvidiaIoctl {
            command: wire.ioctl_command,
            inner: has(flags::INNER).then_some(wire.ioctl_inner),
        }),
        futex_value: has(flags::FUTEX).then_some(wire.futex_value),
        file: (wire.file != 0).then_some(wire.file),
        path_arg: path_arg.filter(|p| !p.is_empty()),
        kernel_stack: wire.kernel_stack,
        user_stack: wire.user_stack,
        waker: has(flags::WAKER).then(|| waker(decoder, wire)),
    }
}

fn waker(decoder: &Decoder, wire: &wire::OffCpu) -> Waker {
    let idle = wire.waker_tid == 0;
    Waker {
        thread: (!idle).then(|| key(wire.waker_tid, wire.waker_start)),
        pid: wire.waker_pid,
        context: if idle { WakerContext::Interrupt } else { decoder.context(wire.waker_kernel_stack) },
        kernel_stack: wire.waker_kernel_stack,
        user_stack: wire.waker_user_stack,
        syscall: (wire.waker_syscall >= 0).then_some(wire.waker_syscall),
        in_nvidia_ioctl: wire.flags & flags::WAKER_NVIDIA != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        assert_eq!(state(0, false, 0), State::Preempted);
        assert_eq!(state(0, false, 24), State::Yielded);
        assert_eq!(state(1, true, 0), State::Preempted, "preempt and a state still runs");
        assert_eq!(state(0x2001, false, 0), State::Sleeping, "freezable");
        assert_eq!(state(0x402, false, -1), State::Idle);
        assert_eq!(state(2, false, 0), State::Uninterruptible);
        assert_eq!(state(0x102, false, 0), State::Uninterruptible, "killable");
        assert_eq!(state(0x80, false, 231), State::Dead);
        assert_eq!(state(0x104, false, 0), State::Stopped);
        assert_eq!(state(0x8000, false, 0), State::Stopped, "frozen");
        assert_eq!(state(0x1000, false, 0), State::Uninterruptible, "a real-time lock");
    }

    fn wire() -> wire::OffCpu {
        wire::OffCpu {
            kind: wire::kind::OFF_CPU,
            flags: 0,
            tid: 7,
            pid: 6,
            start_boottime: 50_000_000,
            left: 100,
            woken: 150,
            ran: 200,
            state: 1,
            cpu_left: 0,
            cpu_queued: 1,
            cpu_ran: 1,
            cpus_allowed: 2,
            syscall: 202,
            cpu_mask: [3, 0, 0, 0],
            args: [1, 2, 3, 4, 5, 6],
            ioctl_command: 9,
            ioctl_inner: 8,
            futex_value: 0,
            waker_syscall: -1,
            waker_tid: 0,
            waker_pid: 0,
            waker_start: 0,
            waker_kernel_stack: 0,
            waker_user_stack: 0,
            kernel_stack: 11,
            user_stack: 12,
            file: 0,
        }
    }

    #[test]
    fn optional_parts_follow_their_flags() {
        let d = Decoder::default();
        let plain = off_cpu(&d, &wire(), None);
        assert_eq!(
            (plain.ioctl, plain.futex_value, plain.waker.is_none(), plain.file),
            (None, None, true, None)
        );
        let all = flags::IOCTL | flags::INNER | flags::FUTEX | flags::WAKER | flags::THROTTLED;
        let full = off_cpu(&d, &wire::OffCpu { flags: all, file: 5, ..wire() }, Some("x".into()));
        assert_eq!(full.ioctl, Some(NvidiaIoctl { command: 9, inner: Some(8) }));
        assert_eq!((full.futex_value, full.file, full.throttled), (Some(0), Some(5), true));
        assert_eq!(full.path_arg.as_deref(), Some("x"));
        let waker = full.waker.expect("a waker");
        assert_eq!((waker.thread, waker.context, waker.syscall), (None, WakerContext::Interrupt, None));
    }

    #[test]
    fn times_stay_in_order() {
        let d = Decoder { attached_at: 170, ..Decoder::default() };
        let cut = off_cpu(&d, &wire::OffCpu { flags: flags::CUT_START, left: 0, ..wire() }, None);
        assert_eq!((cut.left, cut.woken, cut.ran, cut.state), (170, Some(170), 200, State::Sleeping));
        let preempted = off_cpu(&d, &wire::OffCpu { flags: flags::PREEMPT, ..wire() }, None);
        assert_eq!((preempted.woken, preempted.state), (None, State::Preempted));
    }

    #[test]
    fn no_system_call_outside_one() {
        assert_eq!(off_cpu(&Decoder::default(), &wire::OffCpu { syscall: -1, ..wire() }, None).syscall, None);
    }
}
