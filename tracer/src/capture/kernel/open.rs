//! What is still open when the recording ends.

use std::collections::{HashMap, HashSet};

use aya::maps::{self, MapData};
use tracer_ebpf::wire::{CudaState, RunState, ThreadState, flags};

use super::CaptureError;
use super::decode::{Decoder, key};
use super::decode_wait;
use super::proc_waits::{self, Sleepers};
use super::targets::{self, Pids, Stat};
use crate::capture::process;
use crate::trace::{Ns, OffCpu, Record, Stack, StackEnd, StackKind, Syscall, ThreadKey};

/// A target thread as `/proc` showed it at the end.
#[derive(Debug)]
pub struct Sleeper {
    pid: u32,
    stat: Stat,
    syscall: Option<Syscall>,
    stack: Vec<u64>,
}

/// Looks at every target thread of `processes` once.
pub(super) fn look(processes: &HashSet<u32>, pids: &Pids, all: bool) -> HashMap<ThreadKey, Sleeper> {
    let mut found = HashMap::new();
    let mut stacks = Sleepers::default();
    let pids_now: Vec<u32> = if all { targets::processes() } else { processes.iter().copied().collect() };
    for pid in pids_now.into_iter().filter(|p| *p != std::process::id()) {
        for tid in targets::threads(pid) {
            if !all && !pids.contains(tid) {
                continue;
            }
            let Some(stat) = targets::stat(pid, tid) else { continue };
            if stat.state != 'R' && !process::dead(stat.state) {
                stacks.read(pid, tid);
            }
            let key = ThreadKey { tid, start_ticks: stat.start_ticks };
            let syscall = stat.has_user().then(|| proc_waits::syscall(pid, tid)).flatten();
            found.insert(key, Sleeper { pid, stat, syscall, stack: Vec::new() });
        }
    }
    let mut addresses = stacks.addresses();
    for (key, sleeper) in &mut found {
        sleeper.stack = addresses.remove(&(sleeper.pid, key.tid)).unwrap_or_default();
    }
    found
}

/// Threads the kernel side has seen switch. Asked before detaching: a thread that ends meanwhile has no state
/// left, and must not be taken for one that slept all along.
pub(super) fn switched(threads: &maps::HashMap<MapData, u32, ThreadState>) -> HashSet<ThreadKey> {
    threads.iter().filter_map(Result::ok).map(|(_, s)| key(s.tid, s.start_boottime)).collect()
}

/// Waits still open: from the thread states, and for targets that never switched from `/proc` alone.
pub(super) fn waits(
    threads: &maps::HashMap<MapData, u32, ThreadState>,
    decoder: &Decoder,
    mut sleepers: HashMap<ThreadKey, Sleeper>,
    switched: &HashSet<ThreadKey>,
    end: Ns,
    sink: &mut dyn FnMut(Record),
) -> Result<(), CaptureError> {
    let mut sent = HashSet::new();
    let mut open: Vec<(OffCpu, Vec<u64>)> = Vec::new();
    for row in threads.iter() {
        let (_, state) =
            row.map_err(|e| CaptureError::Kernel { what: "THREADS".into(), source: Box::new(e) })?;
        let key = key(state.tid, state.start_boottime);
        let sleeper = sleepers.remove(&key);
        if state.left > state.ran || (state.left == 0 && state.ran == 0) {
            open.extend(open_wait(decoder, key, &state, sleeper, end));
        }
    }
    for (key, sleeper) in sleepers {
        // Running all along is no wait.
        let state = sleeper.stat.state;
        if state == 'R' || process::dead(state) || switched.contains(&key) {
            continue;
        }
        open.push(never_switched(decoder, key, sleeper, end));
    }
    open.sort_by_key(|(wait, _)| (wait.left, wait.thread));
    for (mut wait, stack) in open {
        if !stack.is_empty() {
            wait.kernel_stack = proc_waits::stack_id(&stack);
            if sent.insert(wait.kernel_stack) {
                let (id, kind) = (wait.kernel_stack, StackKind::Kernel);
                let end = StackEnd::Unknown;
                sink(Record::Stack(Stack { id, kind, pid: 0, image: 0, addresses: stack, end, python: 0 }));
            }
        }
        sink(Record::OffCpu(wait));
    }
    Ok(())
}

fn never_switched(decoder: &Decoder, key: ThreadKey, sleeper: Sleeper, end: Ns) -> (OffCpu, Vec<u64>) {
    let left = decoder.since.get(&key).copied().unwrap_or(decoder.attached_at);
    let mut wait = proc_waits::open_wait(key, sleeper.pid, &sleeper.stat, left, end);
    wait.cut_start = true;
    wait.syscall = sleeper.syscall;
    (wait, sleeper.stack)
}

fn open_wait(
    decoder: &Decoder,
    key: ThreadKey,
    state: &ThreadState,
    sleeper: Option<Sleeper>,
    end: Ns,
) -> Option<(OffCpu, Vec<u64>)> {
    let has = |flag: u32| (state.flags | state.waker_flags) & flag != 0;
    let cut_start = state.left == 0;
    if state.left > end || (cut_start && sleeper.is_none()) {
        return None;
    }
    let (syscall, stack, letter) =
        sleeper.map_or((None, Vec::new(), None), |s| (s.syscall, s.stack, Some(s.stat.state)));
    let nr = syscall.as_ref().map_or(-1, |s| s.nr);
    let preempted = has(flags::PREEMPT | flags::NEWBORN);
    let left =
        if cut_start { decoder.since.get(&key).copied().unwrap_or(decoder.attached_at) } else { state.left };
    let left_state = match letter {
        Some(letter) if cut_start && state.state == 0 => proc_waits::state(letter),
        _ => decode_wait::state(state.state, preempted, nr),
    };
    let woken = (!preempted && state.woken != 0).then(|| state.woken.clamp(left, end.max(left)));
    let wait = OffCpu {
        thread: key,
        pid: state.pid,
        left,
        woken,
        ran: end.max(left),
        state: left_state,
        cut_start,
        cut_end: true,
        throttled: has(flags::THROTTLED),
        cpu_left: state.cpu_left,
        cpu_queued: state.cpu_queued,
        cpu_ran: state.cpu_left,
        cpus_allowed: 0,
        cpu_mask: [0; 4],
        syscall,
        ioctl: has(flags::IOCTL).then(|| crate::trace::NvidiaIoctl {
            command: state.ioctl_command,
            inner: has(flags::INNER).then_some(state.ioctl_inner),
        }),
        futex_value: has(flags::FUTEX).then_some(state.futex_value),
        file: None,
        path_arg: has(flags::PATH).then(|| super::decode::text(&state.path)).filter(|p| !p.is_empty()),
        kernel_stack: 0,
        // Only stacks that were sent can be named.
        user_stack: state.user_id,
        waker: None,
    };
    Some((wait, stack))
}

/// Runs of submits and synchronise calls under way.
pub(super) fn cuda(
    states: &maps::HashMap<MapData, u32, CudaState>,
    runs: &maps::HashMap<MapData, u32, RunState>,
    decoder: &mut Decoder,
    sink: &mut dyn FnMut(Record),
) -> Result<(), CaptureError> {
    let failed = |what: &str, e| CaptureError::Kernel { what: what.into(), source: Box::new(e) };
    for row in runs.iter() {
        let (_, run) = row.map_err(|e| failed("RUNS", e))?;
        if run.begun != 0 {
            sink(Record::Submits(decoder.submits(&run.out)));
        }
    }
    for row in states.iter() {
        let (_, state) = row.map_err(|e| failed("CUDA", e))?;
        if let Some(call) = decoder.open_call(&state) {
            sink(Record::CudaCall(call));
        }
    }
    Ok(())
}
