//! Calls into the NVIDIA driver: at its own entry points, in the virtual machines' stand-in for it
//! (`tests/nvidia-standin`), and by the system call's tracepoints elsewhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::bottom_halves::BottomHalves;
use whyidle::capture::tracer::Config;
use whyidle::cause::{CulpritKind, Mechanism, attribute};
use whyidle::idle::{DeviceIdle, Known, PlacedIdle};
use whyidle::timeline::{Timeline, build};
use whyidle::trace::{
    Counter, IoctlTotal, LossClass, NvidiaIoctl, OffCpu, Record, Span, State, TargetKind, WakerContext,
};
use whyidle_tests::privileged::{Child, Observed, attach, lack, lacking, leaves_out, observe, observe_with};

const RM_CONTROL: u32 = 0xc020_462a;
const RM_ALLOC: u32 = 0xc030_462b;
const XFER: u32 = 0xc010_46d3;
const FB_GET_INFO_V2: u32 = 0x2080_1303;
const GPU_GET_PIDS: u32 = 0x2080_018d;
const UVM_MIGRATE: u32 = 51;

const RETURNS: u32 = 0;
const HOLDS_LOCK: u32 = 1;
const SERVES_FAULTS: u32 = 3;

/// As the stand-in reads it.
#[repr(C)]
#[derive(Default)]
struct Call {
    client: u32,
    object: u32,
    cmd: u32,
    how: u32,
    us: u64,
    size: u32,
    status: u32,
}

#[repr(C)]
struct Xfer {
    cmd: u32,
    size: u32,
    ptr: u64,
}

fn ioctl<T>(node: &File, command: u32, argument: &T) -> i32 {
    // SAFETY: the stand-in only reads a structure of this type.
    unsafe { libc::ioctl(node.as_raw_fd(), command.into(), std::ptr::from_ref(argument)) }
}

fn call(node: &File, command: u32, inner: u32, how: u32, us: u64) {
    let call = Call { cmd: inner, how, us, ..Call::default() };
    assert_eq!(ioctl(node, command, &call), 0, "{}", std::io::Error::last_os_error());
}

fn node(name: &str) -> File {
    File::options().read(true).write(true).open(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Whether the stand-in is there and its entry points can be probed; says so where not.
fn standin() -> bool {
    if lacking("ioctl_enter").is_some() {
        return false;
    }
    let there = std::fs::metadata("/dev/nvidiactl")
        .is_ok_and(|m| m.file_type().is_char_device() && rustix::fs::major(m.rdev()) == 195)
        && std::fs::read_to_string("/proc/modules").is_ok_and(|m| m.contains("nvidia_standin "));
    if !there {
        leaves_out("the stand-in module: it is in the virtual machines of `cargo xtask vm`");
    }
    there
}

fn config() -> Config {
    Config {
        threshold_ns: 50_000_000,
        sample_hz: 0,
        nvidia_majors: vec![195, uvm_major()],
        ..Config::default()
    }
}

fn uvm_major() -> u32 {
    std::fs::metadata("/dev/nvidia-uvm").map_or(195, |m| rustix::fs::major(m.rdev()))
}

fn totals(seen: &Observed) -> impl Iterator<Item = &IoctlTotal> {
    seen.records.iter().filter_map(|r| if let Record::IoctlTotal(t) = r { Some(t) } else { None })
}

fn no_losses(seen: &Observed) {
    let lost: Vec<_> = seen.losses().filter(|l| l.class == LossClass::Ioctl).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Names of kernel functions by address.
fn kernel_names(addresses: &[u64]) -> Vec<String> {
    let symbols: BTreeMap<u64, String> = std::fs::read_to_string("/proc/kallsyms")
        .expect("kallsyms")
        .lines()
        .filter_map(|l| {
            let mut parts = l.split_ascii_whitespace();
            let address = u64::from_str_radix(parts.next()?, 16).ok()?;
            Some((address, parts.nth(1)?.to_owned()))
        })
        .collect();
    addresses.iter().filter_map(|a| symbols.range(..=a).next_back().map(|(_, name)| name.clone())).collect()
}

#[test]
#[file_serial(probes)]
fn a_wait_for_the_drivers_lock_names_command_latency_and_holder() {
    if !standin() {
        return;
    }
    let mut holder = Child::fork(|| {
        // SAFETY: a name that ends in a NUL.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"lock-holder".as_ptr()) };
        extern "C" fn nothing(_signal: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing; it is there so that the signal ends the hold and not the process.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
        call(&node("/dev/nvidiactl"), RM_CONTROL, GPU_GET_PIDS, HOLDS_LOCK, 60_000_000);
    });
    let mut child = Child::fork(|| {
        call(&node("/dev/nvidiactl"), RM_CONTROL, FB_GET_INFO_V2, HOLDS_LOCK, 0);
    });
    let mut tracer = attach(&config());
    tracer.add_process(child.pid, TargetKind::Named).expect("the child becomes a target");
    holder.go();
    until_in_ioctl(holder.pid);
    child.go();
    until_in_ioctl(child.pid);
    std::thread::sleep(Duration::from_millis(300));
    let pid = i32::try_from(holder.pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).expect("the holder lives");
    let begun = Instant::now();
    let mut records = Vec::new();
    while !child.finished(Duration::from_millis(50)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the lock was never let go of");
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
    }
    child.until_asleep();
    drop(tracer.finish(&mut |r| records.push(r)).expect("finish"));
    let seen = Observed { pid: child.pid, records };

    let wanted = NvidiaIoctl { command: RM_CONTROL, inner: Some(FB_GET_INFO_V2) };
    let waits: Vec<&OffCpu> =
        seen.waits_in(libc::SYS_ioctl).filter(|w| w.pid == child.pid && w.ioctl == Some(wanted)).collect();
    let wait = *waits
        .iter()
        .find(|w| w.state == State::Uninterruptible)
        .unwrap_or_else(|| panic!("no wait in the call: {waits:?}"));
    let waker = wait.waker.as_ref().expect("who let go of the lock");
    assert_eq!((waker.pid, waker.in_nvidia_ioctl, waker.context), (holder.pid, true, WakerContext::Task));
    assert_eq!(waker.syscall.map(i64::from), Some(libc::SYS_ioctl));
    // Kernels leave the lock's own functions out of a sleeper's stack; whoever let go of it shows them. Where the
    // return of the driver's entry point is probed, the stack may end there.
    let frames = kernel_names(seen.stack(wait.kernel_stack));
    assert_eq!(frames[..2], ["serve", "nvidia_unlocked_ioctl"], "{frames:?}");
    let frames = kernel_names(seen.stack(waker.kernel_stack));
    assert!(frames.iter().any(|f| f.contains("mutex_unlock")), "{frames:?}");

    // Every call is counted at the driver's entry; this one was nothing but its wait.
    let [total] = totals(&seen).filter(|t| t.pid == child.pid).collect::<Vec<_>>()[..] else {
        panic!("not one total: {:?}", totals(&seen).collect::<Vec<_>>())
    };
    assert_eq!((total.ioctl, total.major, total.count), (wanted, 195, 1));
    let waited: u64 = waits.iter().map(|w| w.ran - w.left).sum();
    assert!(
        total.ns >= waited && total.ns - waited <= config().threshold_ns && total.longest_ns == total.ns,
        "waited {waited} ns in a call of {} ns",
        total.ns
    );
    assert!(totals(&seen).all(|t| t.pid == child.pid), "the holder is no target");
    no_losses(&seen);
    says_driver_lock(&seen, wait);
}

/// Until a process sleeps in an ioctl; it must be about to call one.
fn until_in_ioctl(pid: u32) {
    let begun = Instant::now();
    let in_ioctl = format!("{} ", libc::SYS_ioctl);
    let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).expect("the process lives");
    while !call().starts_with(&in_ioctl) {
        assert!(begun.elapsed() < Duration::from_secs(60), "process {pid} never called: {}", call());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The ledger of a device that stood still while `wait` lasted.
fn says_driver_lock(seen: &Observed, wait: &OffCpu) {
    let timeline: Timeline = build(seen.records.clone());
    let span = Span::new(wait.left, wait.woken.expect("it was woken"));
    let gap = PlacedIdle {
        span,
        known: Known::Drained,
        feeder: Some(seen.main_thread()),
        submit: Some(span.end),
        device_inferred: false,
    };
    let idle = DeviceIdle { window: span, idle_ns: span.len(), placed: vec![gap], ..DeviceIdle::default() };
    let ledger = attribute(&timeline, &idle);
    let cause = ledger.causes.first().expect("a cause");
    assert_eq!((cause.mechanism, cause.ns), (Mechanism::DriverLock, span.len()), "{cause:#?}");
    let culprit = cause.culprit.as_ref().expect("a culprit");
    assert_eq!((culprit.kind, culprit.name.as_str()), (CulpritKind::Process, "lock-holder"));
    assert_eq!(cause.chain[0].what, "ioctl RM_CONTROL FB_GET_INFO_V2");
    assert!(cause.chain[0].stack.len() > 2, "{cause:#?}");
}

#[test]
#[file_serial(probes)]
fn every_call_of_a_target_is_counted_by_its_command() {
    if !standin() {
        return;
    }
    let seen = observe(&config(), || {
        let (ctl, uvm) = (node("/dev/nvidiactl"), node("/dev/nvidia-uvm"));
        (0..5).for_each(|_| call(&ctl, RM_CONTROL, FB_GET_INFO_V2, RETURNS, 0));
        (0..3).for_each(|_| call(&ctl, RM_ALLOC, 7, RETURNS, 0));
        (0..4).for_each(|_| call(&uvm, UVM_MIGRATE, 0, RETURNS, 0));
        for _ in 0..2 {
            let call = Call { cmd: GPU_GET_PIDS, ..Call::default() };
            let ptr = std::ptr::from_ref(&call).expose_provenance() as u64;
            assert_eq!(ioctl(&ctl, XFER, &Xfer { cmd: 0x2a, size: 32, ptr }), 0);
        }
        // Refused by the stand-in, and a call all the same.
        assert_eq!(ioctl(&ctl, RM_ALLOC, &Call { how: 99, ..Call::default() }), -1);
    });
    // Nobody asked for this process.
    call(&node("/dev/nvidiactl"), RM_CONTROL, FB_GET_INFO_V2, RETURNS, 0);
    let mut counts: BTreeMap<(u32, u32, Option<u32>), u64> = BTreeMap::new();
    for total in totals(&seen) {
        assert_eq!(total.pid, seen.pid);
        assert_eq!(total.histogram.iter().map(|c| u64::from(*c)).sum::<u64>(), total.count);
        assert!(total.longest_ns <= total.ns && total.ns <= total.longest_ns * total.count, "{total:?}");
        *counts.entry((total.major, total.ioctl.command, total.ioctl.inner)).or_default() += total.count;
    }
    let expected = [
        ((195, RM_CONTROL, Some(GPU_GET_PIDS)), 2),
        ((195, RM_CONTROL, Some(FB_GET_INFO_V2)), 5),
        ((195, RM_ALLOC, None), 4),
        ((uvm_major(), UVM_MIGRATE, None), 4),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
    no_losses(&seen);
}

#[test]
#[file_serial(probes)]
fn bottom_halves_are_found_and_their_run_time_read() {
    if !standin() {
        return;
    }
    let mut halves = BottomHalves::default();
    let mut at = 0;
    let ran =
        |counters: Vec<Counter>| counters.into_iter().find(|c| c.name == "UVM GPU1 BH").map(|c| c.value);
    let before = ran(halves.tick(at)).expect("the stand-in's thread");
    call(&node("/dev/nvidia-uvm"), UVM_MIGRATE, 0, SERVES_FAULTS, 400_000);
    let begun = Instant::now();
    let mut now = before;
    // It was told to stay busy that long, of which others may take a part.
    while now - before < 100_000_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it ran {} ns", now - before);
        std::thread::sleep(Duration::from_millis(20));
        at += 1;
        now = ran(halves.tick(at)).unwrap_or(now);
    }
}

/// Where the driver's entry points cannot be probed, the nodes of any other driver can stand for its own.
fn by_system_call() -> bool {
    let entry = lack("ioctl_enter").is_none();
    if entry {
        leaves_out("tracepoints of system calls: the driver's own entry points are probed here");
    }
    !entry && lacking("ioctl_sysenter").is_none()
}

const PTMX: &str = "/dev/ptmx";
const TIOCGPTN: u32 = 0x8004_5430;

/// Whether the node answers it: the number of a pseudo terminal.
fn asks(node: &File) -> bool {
    let mut number = 0u32;
    // SAFETY: the call writes one word at most.
    unsafe { libc::ioctl(node.as_raw_fd(), TIOCGPTN.into(), &raw mut number) == 0 }
}

fn console_config(ioctls: bool) -> Config {
    let major = rustix::fs::major(std::fs::metadata(PTMX).expect(PTMX).rdev());
    Config { sample_hz: 0, nvidia_majors: vec![major], ioctls, ..Config::default() }
}

#[test]
#[file_serial(probes)]
fn calls_are_counted_by_the_system_call_where_asked_for() {
    if !by_system_call() {
        return;
    }
    let config = console_config(true);
    let seen = observe(&config, || {
        let (taken, other) = (node(PTMX), node("/dev/null"));
        for _ in 0..7 {
            assert!(asks(&taken) && !asks(&other));
        }
    });
    let mut count = 0;
    for total in totals(&seen) {
        assert_eq!((total.pid, total.major), (seen.pid, config.nvidia_majors[0]));
        assert_eq!(total.ioctl, NvidiaIoctl { command: TIOCGPTN, inner: None });
        count += total.count;
    }
    assert_eq!(count, 7);
    no_losses(&seen);
}

#[test]
#[file_serial(probes)]
fn otherwise_they_are_counted_in_bursts() {
    if !by_system_call() {
        return;
    }
    let child = Child::fork(|| {
        let taken = node(PTMX);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            assert!(asks(&taken));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let tracer = attach(&console_config(false));
    let seen = observe_with(tracer, child);
    let spans: Vec<Span> = totals(&seen).map(|t| t.span).collect();
    let (first, last) = (spans.iter().map(|s| s.start).min(), spans.iter().map(|s| s.end).max());
    let (first, last) = (first.expect("a burst saw calls"), last.expect("a burst saw calls"));
    let watched = seen
        .records
        .iter()
        .filter_map(|r| match r {
            Record::Counter(c) if c.name == "ioctl_watched_ns" => Some(c.value),
            _ => None,
        })
        .max();
    let watched = watched.expect("what was watched is told");
    let waits = || seen.waits_in(libc::SYS_clock_nanosleep);
    let whole =
        waits().map(|w| w.ran).max().expect("sleeps") - waits().map(|w| w.left).min().expect("sleeps");
    // One burst, whose last stretch may have had no call.
    assert!(watched >= last - first && watched >= 300_000_000, "{watched} ns, {spans:?}");
    assert!(watched < whole, "{watched} of {whole} ns");
    no_losses(&seen);
}
