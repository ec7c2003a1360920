//! Arbitrary records for the laws: few names and few times, so that they meet, overlap and contradict.

use proptest::prelude::*;
use proptest::sample::select;

use super::arbitrary_cuda;
use super::testing::{TraceBuilder, US};
use crate::trace::{
    CudaCall, CudaFamily, Device, DeviceProcess, End, Host, Ns, OffCpu, Polled, Reading, ReadingSource,
    Record, Sample, Span, State, Submits, Syscall, TargetKind, ThreadExec, ThreadExit, ThreadKey, ThreadSeen,
    WaitTotal, Waker, WakerContext,
};

/// Mostly within 3 ms in steps of 10 us, sometimes hostile.
pub(crate) fn time() -> impl Strategy<Value = Ns> {
    prop_oneof![
        30 => (0..300_u64).prop_map(|t| 1_000 * US + t * 10 * US),
        1 => select(vec![0, 1, u64::MAX - 1, u64::MAX]),
    ]
}

pub(super) fn span() -> impl Strategy<Value = Span> {
    (time(), time()).prop_map(|(a, b)| Span { start: a.min(b), end: a.max(b) })
}

pub(super) fn thread() -> impl Strategy<Value = ThreadKey> {
    (1..4_u32, 1..3_u64).prop_map(|(tid, start_ticks)| ThreadKey { tid, start_ticks })
}

fn off_cpu() -> impl Strategy<Value = OffCpu> {
    let states = vec![
        State::Preempted,
        State::Yielded,
        State::Sleeping,
        State::Sleeping,
        State::Uninterruptible,
        State::Stopped,
        State::Dead,
        State::Idle,
    ];
    let times = (time(), prop::option::of(time()), time(), select(states));
    let call = prop::option::of((select(vec![0_i32, 7, 16, 202, 232, 61]), 0..3_u64));
    let contexts = vec![WakerContext::Task, WakerContext::Interrupt, WakerContext::Unknown];
    let waker = prop::option::of((prop::option::of(thread()), select(contexts)));
    (thread(), times, call, waker, any::<(bool, bool)>()).prop_map(|(thread, times, call, waker, cut)| {
        let (left, woken, ran, state) = times;
        OffCpu {
            thread,
            pid: thread.tid,
            left,
            woken,
            ran,
            state,
            cut_start: cut.0,
            cut_end: cut.1,
            throttled: false,
            cpu_left: 0,
            cpu_queued: 0,
            cpu_ran: 0,
            cpus_allowed: 1,
            cpu_mask: [1, 0, 0, 0],
            syscall: call.map(|(nr, arg)| Syscall { nr, args: [arg; 6] }),
            ioctl: None,
            futex_value: None,
            file: None,
            path_arg: None,
            kernel_stack: 0,
            user_stack: 0,
            waker: waker.map(|(thread, context)| Waker {
                thread,
                pid: thread.map_or(0, |t| t.tid),
                context,
                kernel_stack: 0,
                user_stack: 0,
                syscall: None,
                in_nvidia_ioctl: false,
            }),
        }
    })
}

fn seen() -> impl Strategy<Value = ThreadSeen> {
    let kinds = vec![TargetKind::Named, TargetKind::Inherited, TargetKind::Adopted, TargetKind::Bystander];
    (time(), thread(), select(kinds), prop::option::of(thread()), prop::option::of(time()), "[ab]").prop_map(
        |(at, key, kind, creator, born, comm)| ThreadSeen {
            at,
            key,
            pid: key.tid,
            ppid: 0,
            comm: comm.clone(),
            creator,
            born,
            kind,
            kernel_thread: false,
            cgroups: Vec::new(),
            cmdline: vec![comm],
        },
    )
}

pub(super) fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..500_000_u64, 1 => Just(u64::MAX)]
}

fn total() -> impl Strategy<Value = WaitTotal> {
    (thread(), prop::option::of(thread()), time(), time(), amount(), amount(), amount()).prop_map(
        |(thread, waker, first, last, count, blocked_ns, runnable_ns)| WaitTotal {
            thread,
            pid: thread.tid,
            waker,
            waker_pid: 0,
            syscall: 202,
            arg0: 0,
            count,
            blocked_ns,
            runnable_ns,
            throttled_ns: runnable_ns / 2,
            first,
            last,
        },
    )
}

pub(crate) fn submits() -> impl Strategy<Value = Submits> {
    let counts = (prop_oneof![10 => 0..200_u64, 1 => Just(u64::MAX)], 0..3_u64, 0..3_u64, 0..3_u64);
    (thread(), time(), time(), counts).prop_map(|(thread, first, last, counts)| Submits {
        thread,
        pid: thread.tid,
        first,
        last,
        launches: counts.0,
        graph_launches: counts.1,
        memsets: counts.2,
        copies: counts.3,
        ..Submits::default()
    })
}

fn call() -> impl Strategy<Value = CudaCall> {
    let names = vec![
        (CudaFamily::Synchronize, "cuCtxSynchronize"),
        (CudaFamily::Synchronize, "cuEventSynchronize"),
        (CudaFamily::Copy, "cuMemcpyDtoH_v2"),
        (CudaFamily::Launch, "cuLaunchKernel"),
        (CudaFamily::Allocate, "cuMemAlloc_v2"),
    ];
    (thread(), time(), prop::option::of(time()), select(names)).prop_map(
        |(thread, entry, exit, (family, name))| CudaCall {
            thread,
            pid: thread.tid,
            family,
            entry,
            exit,
            name: name.into(),
            ..CudaCall::default()
        },
    )
}

fn reading() -> impl Strategy<Value = Reading> {
    let percents = vec![
        None,
        Some(0.0),
        Some(1.0),
        Some(37.5),
        Some(60.0),
        Some(99.0),
        Some(100.0),
        Some(f64::NAN),
        Some(-1.0),
        Some(101.0),
    ];
    (0..2_u32, span(), select(percents)).prop_map(|(device, span, busy_percent)| Reading {
        device,
        span,
        source: ReadingSource::NvmlSamples,
        busy_percent,
        power_mw: None,
        memory_percent: None,
        age_ns: 0,
        sm_clock_mhz: None,
        throttle_reasons: None,
    })
}

/// One record of any kind the timeline orders.
fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        8 => off_cpu().prop_map(Record::OffCpu),
        3 => seen().prop_map(Record::Thread),
        2 => total().prop_map(Record::WaitTotal),
        4 => submits().prop_map(Record::Submits),
        4 => arbitrary_cuda::grouped().prop_map(Record::Submits),
        3 => arbitrary_cuda::beside(),
        4 => call().prop_map(Record::CudaCall),
        4 => reading().prop_map(Record::Reading),
        1 => (time(), thread()).prop_map(|(at, thread)| Record::Sample(Sample {
            at, thread, pid: thread.tid, ..Sample::default()
        })),
        1 => (time(), thread()).prop_map(|(at, key)| {
            Record::ThreadExec(ThreadExec { at, key, pid: key.tid, image: 1, comm: "x".into() })
        }),
        1 => (time(), thread())
            .prop_map(|(at, key)| Record::ThreadExit(ThreadExit { at, key, pid: key.tid })),
        1 => (time(), 0..2_u32, 1..4_u32).prop_map(|(at, device, pid)| {
            Record::DeviceProcess(DeviceProcess { at, device, pid, used_memory: None })
        }),
        1 => (0..2_u32, any::<bool>())
            .prop_map(|(index, mig)| Record::Device(Device { index, mig, ..Device::default() })),
        1 => (time(), 1..4_u32, any::<bool>()).prop_map(|(at, pid, asks)| {
            Record::Polled(Polled { at, pid, fd: 3, listening: Vec::new(), asks })
        }),
        1 => time().prop_map(|start_ns| Record::Host(Host { start_ns, ..Host::default() })),
        1 => time()
            .prop_map(|at| Record::End(End { at, reason: String::new(), exit_status: None })),
    ]
}

/// Any records in any order, some of them twice; half of the time of a recording with sane ends.
pub(crate) fn records() -> impl Strategy<Value = Vec<Record>> {
    let any_records = prop::collection::vec(record(), 0..60);
    (any_records, any::<bool>()).prop_map(|(mut records, framed)| {
        if framed {
            records.retain(|r| !matches!(r, Record::Host(_) | Record::End(_)));
            records.extend(TraceBuilder::new(1_000 * US, 4_000 * US).records());
        }
        records
    })
}
