//! Who is a target: everything, helpers that wake targets often, io_uring's workers; and groups out of quota.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{State, TargetKind};
use whyidle_tests::privileged::{Child, Observed, attach, observe, observe_with};

fn quiet() -> Config {
    Config { sample_hz: 0, ..Config::default() }
}

#[test]
#[file_serial(probes)]
fn all_means_everyone_but_the_tracer() {
    const NAP: Duration = Duration::from_millis(3);
    let mut child = Child::fork(|| (0..10).for_each(|_| std::thread::sleep(NAP)));
    let mut tracer = attach(&Config { all: true, ..quiet() });
    let mut records = Vec::new();
    child.go();
    let begun = Instant::now();
    while !child.finished(Duration::from_millis(50)) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
    }
    drop(tracer.finish(&mut |r| records.push(r)).expect("finish"));
    let seen = Observed { pid: child.pid, records };
    let main = seen.main_thread();
    assert!(seen.waits_in(libc::SYS_clock_nanosleep).filter(|w| w.thread == main).count() >= 10);
    let own = std::process::id();
    assert!(seen.waits().all(|w| w.pid != own && w.thread.tid != 0));
    assert!(seen.totals().all(|t| t.pid != own && t.thread.tid != 0));
    assert!(seen.threads().any(|t| t.kernel_thread), "kernel threads are named, too");
}

#[test]
#[file_serial(probes)]
fn a_helper_that_wakes_a_target_often_is_adopted() {
    // Enough for wakes to be counted and for naps after that, on a busy machine, too.
    const TIMES: u32 = 250;
    let (mut read, mut write) = std::io::pipe().expect("pipe");
    // Not of the job: it only feeds it.
    let mut helper = Child::fork(move || {
        for _ in 0..TIMES {
            std::thread::sleep(Duration::from_millis(3));
            write.write_all(b"x").expect("write");
        }
    });
    let child = Child::fork(move || {
        for _ in 0..TIMES {
            read.read_exact(&mut [0u8; 1]).expect("read");
        }
    });
    let tracer = attach(&quiet());
    helper.go();
    let seen = observe_with(tracer, child);
    let kinds: Vec<_> = seen.threads().filter(|t| t.key.tid == helper.pid).map(|t| t.kind).collect();
    assert_eq!(kinds, [TargetKind::Bystander, TargetKind::Adopted], "named when first seen, then adopted");
    assert!(
        seen.waits_in(libc::SYS_clock_nanosleep).any(|w| w.pid == helper.pid),
        "its own waits are kept now"
    );
}

#[test]
#[file_serial(probes)]
fn nobody_is_adopted_past_the_cap() {
    let (mut read, mut write) = std::io::pipe().expect("pipe");
    let mut helper = Child::fork(move || {
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(3));
            write.write_all(b"x").expect("write");
        }
    });
    let child = Child::fork(move || (0..40).for_each(|_| read.read_exact(&mut [0u8; 1]).expect("read")));
    let tracer = attach(&Config { adopt_cap: 0, ..quiet() });
    helper.go();
    let seen = observe_with(tracer, child);
    assert!(seen.threads().all(|t| t.kind != TargetKind::Adopted));
    assert!(seen.waits().all(|w| w.pid != helper.pid));
}

/// A read forced onto a worker: the worker is the kernel's thread, born of the target.
#[test]
#[file_serial(probes)]
fn io_uring_workers_are_targets() {
    let seen = observe(&quiet(), || {
        let (read, mut write) = std::io::pipe().expect("pipe");
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            write.write_all(b"x").expect("write");
        });
        uring::read_on_a_worker(&read);
        writer.join().expect("writer");
    });
    let worker = seen.threads().find(|t| t.comm.starts_with("iou-wrk-")).unwrap_or_else(|| {
        panic!("no worker among {:?}", seen.threads().map(|t| &t.comm).collect::<Vec<_>>())
    });
    assert_eq!(worker.kind, TargetKind::Inherited);
    let waits: Vec<_> = seen.waits().filter(|w| w.thread == worker.key).collect();
    assert!(
        !waits.is_empty() && waits.iter().all(|w| w.syscall.is_none()),
        "no system call of its own: {waits:?}"
    );
}

/// The smallest io_uring: one entry, submitted with `IOSQE_ASYNC`.
mod uring {
    use std::os::fd::AsRawFd;

    const SETUP: libc::c_long = 425;
    const ENTER: libc::c_long = 426;
    const OP_READ: u8 = 22;
    const ASYNC: u8 = 1 << 4;
    const GETEVENTS: u32 = 1;
    const OFF_SQ_RING: i64 = 0;
    const OFF_SQES: i64 = 0x1000_0000;

    pub(super) fn read_on_a_worker(from: &std::io::PipeReader) {
        // `struct io_uring_params`: 120 bytes; the ring offsets start at 40.
        let mut params = [0u32; 30];
        let mut byte = [0u8; 1];
        // SAFETY: mappings of the sizes the kernel names, filled as it documents.
        unsafe {
            let ring = libc::syscall(SETUP, 1, params.as_mut_ptr());
            assert!(ring >= 0, "io_uring_setup: {}", std::io::Error::last_os_error());
            let ring = i32::try_from(ring).expect("a descriptor");
            let map = |offset: i64| {
                let at = libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_POPULATE,
                    ring,
                    offset,
                );
                assert_ne!(at, libc::MAP_FAILED);
                at.cast::<u8>()
            };
            let (sq, sqes) = (map(OFF_SQ_RING), map(OFF_SQES));
            // `struct io_sqring_offsets`: head, tail, ring_mask, ring_entries, flags, dropped, array.
            let (tail, array) = (params[11] as usize, params[16] as usize);
            sqes.write(OP_READ);
            sqes.add(1).write(ASYNC);
            sqes.add(4).cast::<i32>().write(from.as_raw_fd());
            sqes.add(8).cast::<u64>().write(u64::MAX);
            sqes.add(16).cast::<u64>().write(byte.as_mut_ptr() as u64);
            sqes.add(24).cast::<u32>().write(1);
            sq.add(array).cast::<u32>().write(0);
            sq.add(tail).cast::<u32>().write_volatile(1);
            let done = libc::syscall(ENTER, ring, 1, 1, GETEVENTS, 0usize, 0usize);
            assert_eq!(done, 1, "io_uring_enter: {}", std::io::Error::last_os_error());
        }
        assert_eq!(std::hint::black_box(byte), *b"x");
    }
}

/// A group of the v1 `cpu` controller, removed when the test ends.
struct Group(PathBuf);

impl Group {
    fn with_quota(quota_us: u32, period_us: u32) -> Self {
        let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
            .into_iter()
            .map(Path::new)
            .find(|p| p.join("cpu.cfs_quota_us").exists() || p.join("tasks").exists())
            .expect("the v1 cpu controller is mounted");
        let path = root.join(format!("probes-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new group");
        std::fs::write(path.join("cpu.cfs_period_us"), period_us.to_string()).expect("period");
        std::fs::write(path.join("cpu.cfs_quota_us"), quota_us.to_string()).expect("quota");
        Self(path)
    }

    fn throttled(&self) -> (u64, u64) {
        let stat = std::fs::read_to_string(self.0.join("cpu.stat")).expect("cpu.stat");
        let value = |name: &str| {
            stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok()).expect("a number")
        };
        (value("nr_throttled"), value("throttled_time"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
#[file_serial(probes)]
fn throttled_time_is_told_from_waiting() {
    let group = Group::with_quota(10_000, 50_000);
    let tasks = group.0.join("cgroup.procs");
    let seen = observe(&quiet(), || {
        std::fs::write(&tasks, std::process::id().to_string()).expect("joins the group");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1500) {
            std::hint::spin_loop();
        }
    });
    let (count, ns) = group.throttled();
    assert!(count >= 3, "the quota bit: {count}");
    let main = seen.main_thread();
    let throttled: Vec<_> = seen.waits().filter(|w| w.thread == main && w.throttled && !w.cut_end).collect();
    let seen_ns: u64 = throttled.iter().map(|w| w.ran - w.left).sum();
    assert!(throttled.iter().all(|w| w.state == State::Preempted && w.woken.is_none()));
    // The kernel starts its own clock when the group is dequeued, which is not the switch. No number of stays
    // follows: a group that has overdrawn its quota is throttled anew before its thread ran.
    let stays = throttled.len();
    assert!(seen_ns * 10 >= ns * 8 && stays >= 3, "{seen_ns} of {ns}, {stays} of {count}");
    drop(seen);
}
