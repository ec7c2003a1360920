//! Block layer, page faults, CPU samples, files, sockets and CUDA calls: one provoked event each.

use std::io::{Read, Write};
use std::time::Duration;

use serial_test::file_serial;
use whyidle::capture::cuda::{EntryPoint, names};
use whyidle::capture::tracer::Config;
use whyidle::trace::{CudaFamily, File, OffCpu, Record, State};
use whyidle_tests::own::file_offset;
use whyidle_tests::privileged::{Child, Observed, attach, lacking, observe, observe_with};

fn quiet() -> Config {
    Config { sample_hz: 0, ..Config::default() }
}

fn file(seen: &Observed, id: u64) -> &File {
    seen.records
        .iter()
        .find_map(|r| if let Record::File(f) = r { (f.id == id).then_some(f) } else { None })
        .expect("the file is described")
}

/// A file on a real disk, out of the page cache.
fn cold(bytes: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir =
        tempfile::Builder::new().prefix("probes").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = dir.path().join("cold.bin");
    let mut file = std::fs::File::create(&path).expect("create");
    file.write_all(&vec![7u8; bytes]).expect("write");
    file.sync_all().expect("sync");
    use std::os::fd::AsRawFd;
    // SAFETY: an own descriptor.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
    (dir, path)
}

#[test]
#[file_serial(probes)]
fn a_cold_read_waits_for_a_named_file_and_disk() {
    let (dir, path) = cold(4 << 20);
    let seen = observe(&Config { threshold_ns: 0, ..quiet() }, || {
        let mut bytes = Vec::new();
        std::fs::File::open(&path).expect("open").read_to_end(&mut bytes).expect("read");
        assert_eq!(bytes.len(), 4 << 20);
    });
    let wait = seen
        .waits_in(libc::SYS_read)
        .filter(|w| w.state == State::Uninterruptible)
        .find(|w| w.file.is_some_and(|id| file(&seen, id).names.first().is_some_and(|n| n == "cold.bin")))
        .expect("a wait for the disk");
    let read = file(&seen, wait.file.expect("filtered"));
    let folder = dir.path().file_name().expect("a name").to_string_lossy();
    assert_eq!(
        read.names.get(1).map(String::as_str),
        Some(&*folder),
        "dentry names run upward: {:?}",
        read.names
    );
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(&path).expect("stat");
    assert_eq!(read.inode, meta.ino());
    assert_eq!(read.dev, (libc::major(meta.dev()) << 20) | libc::minor(meta.dev()));
    assert_eq!(read.mode & 0o170_000, 0o100_000);
    assert!(read.fs_magic != 0 && read.rdev == 0 && read.socket.is_none());
    let disks: Vec<_> =
        seen.records.iter().filter_map(|r| if let Record::Block(b) = r { Some(b) } else { None }).collect();
    let bytes: u64 = disks.iter().map(|b| b.read_bytes).sum();
    assert!(bytes >= 4 << 20, "{disks:?}");
    for disk in disks {
        assert!(disk.busy_ns <= disk.span.len() && disk.dev != 0 && !disk.name.is_empty(), "{disk:?}");
        let finished: u64 = disk.histogram.iter().map(|n| u64::from(*n)).sum();
        assert_eq!(finished, disk.reads + disk.writes);
    }
}

#[test]
#[file_serial(probes)]
fn a_major_fault_names_file_and_offset() {
    const PAGE: usize = 4096;
    let (_dir, path) = cold(64 * PAGE);
    let seen = observe(&Config { threshold_ns: 0, ..quiet() }, || {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open(&path).expect("open");
        // More than one: a disk may be so quick that nobody sleeps.
        // SAFETY: a fresh mapping of 64 pages of which some bytes are read.
        unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                64 * PAGE,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            libc::madvise(map, 64 * PAGE, libc::MADV_RANDOM);
            for page in (1..64).step_by(8) {
                assert_eq!(map.cast::<u8>().add(page * PAGE + 5).read_volatile(), 7);
            }
        }
    });
    let named = lacking("filemap_fault").is_none();
    let offset = named.then_some(9 * PAGE as u64);
    let fault = seen
        .records
        .iter()
        .find_map(|r| match r {
            Record::MajorFault(f)
                if f.pid == seen.pid && f.offset == offset && f.address as usize % PAGE == 5 =>
            {
                Some(f)
            }
            _ => None,
        })
        .expect("the fault");
    assert_eq!(fault.thread, seen.main_thread());
    if !named {
        assert_eq!(fault.file, None);
        return;
    }
    assert_eq!(
        file(&seen, fault.file.expect("its file")).names.first().map(String::as_str),
        Some("cold.bin")
    );
    let wait = seen
        .waits()
        .find(|w| w.syscall.is_none() && w.state == State::Uninterruptible && w.file == fault.file)
        .expect("the wait in the fault, in no system call");
    assert!(wait.left <= fault.at);
}

#[test]
#[file_serial(probes)]
fn samples_fall_on_the_busy_thread() {
    let seen = observe(&Config { sample_hz: 199, ..Config::default() }, || {
        let begun = std::time::Instant::now();
        let mut x = 1u64;
        while begun.elapsed() < Duration::from_millis(400) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    });
    let main = seen.main_thread();
    let samples: Vec<_> =
        seen.records.iter().filter_map(|r| if let Record::Sample(s) = r { Some(s) } else { None }).collect();
    assert!(samples.iter().filter(|s| s.thread == main).count() >= 5, "{}", samples.len());
    for s in samples {
        assert!(s.kernel_stack != 0 || s.user_stack != 0);
        for id in [s.kernel_stack, s.user_stack].into_iter().filter(|id| *id != 0) {
            assert!(!seen.stack(id).is_empty());
        }
    }
}

#[test]
#[file_serial(probes)]
fn a_thinned_sample_stands_for_those_left_out() {
    const HZ: u64 = 199;
    const SPUN: Duration = Duration::from_millis(800);
    const EVERY: u64 = 5;
    let mut tracer = attach(&Config { sample_hz: HZ, ..Config::default() });
    tracer.set_sample_every(EVERY).expect("the map is there");
    let seen = observe_with(tracer, Child::fork(|| spin(SPUN)));
    let main = seen.main_thread();
    let of =
        |r: &Record| if let Record::Sample(s) = r { (s.thread == main).then_some(s.periods) } else { None };
    let periods: Vec<u32> = seen.records.iter().filter_map(of).collect();
    assert!(periods.iter().all(|&p| u64::from(p) == EVERY), "{periods:?}");
    let stood_for = periods.iter().sum::<u32>() as f64 / HZ as f64;
    let share = stood_for / SPUN.as_secs_f64();
    assert!((0.7..=1.3).contains(&share), "{share}: {} samples", periods.len());
}

#[test]
#[file_serial(probes)]
fn in_a_storm_of_short_waits_stacks_are_spared() {
    const LONG: Duration = Duration::from_millis(5);
    // How many of the long sleeps of a thread have a user stack, and how many there are.
    let stacks = |every: u64, short: bool| {
        let mut tracer = attach(&Config { threshold_ns: 1_000_000, ..quiet() });
        tracer.set_stack_every(every).expect("the map is there");
        let sleeps = move || {
            for _ in 0..20 {
                if short {
                    std::thread::sleep(Duration::from_micros(50));
                }
                std::thread::sleep(LONG);
            }
        };
        let seen = observe_with(tracer, Child::fork(sleeps));
        let main = seen.main_thread();
        let long = |o: &&OffCpu| u128::from(o.ran - o.left) >= LONG.as_nanos() && o.left > 0;
        let waits =
            seen.records.iter().filter_map(|r| if let Record::OffCpu(o) = r { Some(o) } else { None });
        let waits: Vec<&OffCpu> = waits.filter(|o| o.thread == main).filter(long).collect();
        (waits.iter().filter(|o| o.user_stack != 0).count(), waits.len())
    };
    let (with, all) = stacks(0, true);
    assert!(with == all && all >= 15, "{with} of {all}");
    let (with, all) = stacks(1 << 30, true);
    assert!(with * 4 <= all && all >= 15, "{with} of {all}");
    // Waits that are not in a storm keep theirs.
    let (with, all) = stacks(1 << 30, false);
    assert!(with * 10 >= all * 7 && all >= 15, "{with} of {all}");
}

/// Takes so much processor time.
fn spin(time: Duration) {
    let spent = || {
        let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a place of its own to write to.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut spent) }, 0);
        Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
    };
    while spent() < time {}
}

#[test]
#[file_serial(probes)]
fn a_socket_tells_both_ends() {
    let seen = observe(&quiet(), || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(3));
                stream.write_all(b"x").expect("send");
            }
        });
        let mut stream = std::net::TcpStream::connect(address).expect("connect");
        let mut byte = [0];
        for _ in 0..10 {
            stream.read_exact(&mut byte).expect("receive");
        }
        peer.join().expect("peer");
    });
    let main = seen.main_thread();
    let wait = seen.waits_in(libc::SYS_recvfrom).find(|w| w.thread == main).expect("a wait for the peer");
    let socket = file(&seen, wait.file.expect("a socket")).socket.as_ref().expect("a socket");
    assert_eq!(i32::from(socket.family), libc::AF_INET);
    assert!(socket.local.starts_with("127.0.0.1:") && socket.peer.starts_with("127.0.0.1:"), "{socket:?}");
    assert_ne!(socket.local, socket.peer);
    assert_eq!(socket.state, 1, "established");
    let waker = wait.waker.as_ref().expect("a waker");
    assert_eq!(
        (waker.pid, waker.context),
        (seen.pid, whyidle::trace::WakerContext::Task),
        "loopback: {waker:?}"
    );
}

macro_rules! entry_points {
    ($($name:ident),*) => {$(
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $name(ms: u64) -> u64 {
            std::thread::sleep(Duration::from_millis(ms));
            std::hint::black_box(ms + line!() as u64)
        }
    )*};
}
entry_points!(fake_launch, fake_memset, fake_copy, fake_synchronise);

#[test]
#[file_serial(probes)]
fn driver_calls_by_file_offset() {
    let entry = |name, f: extern "C" fn(u64) -> u64, wants_return| EntryPoint {
        name,
        id: names().find(|n| n.name == name).expect("a name of the table").id,
        family: names().find(|n| n.name == name).expect("a name of the table").family,
        file_offset: file_offset(f as usize),
        wants_return,
    };
    if let Some(reason) = lacking("cuda_submit") {
        let mut tracer = attach(&quiet());
        let status = tracer.probes().into_iter().find(|s| s.name == "cuda_submit").expect("a status");
        assert_eq!((status.attached, &status.reason), (false, &reason));
        let point = entry("cuLaunchKernel", fake_launch, false);
        let failed = tracer.attach_cuda(&std::env::current_exe().expect("own path"), &[point]);
        assert!(
            failed.iter().all(|f| !f.attached && !f.reason.is_empty()) && failed.len() == 1,
            "{failed:?}"
        );
        return;
    }
    let points = [
        entry("cuLaunchKernel", fake_launch, false),
        entry("cuMemsetD8Async", fake_memset, false),
        entry("cuMemcpyHtoD_v2", fake_copy, true),
        entry("cuStreamSynchronize", fake_synchronise, true),
    ];
    let child = Child::fork(|| {
        for _ in 0..5 {
            fake_launch(0);
        }
        fake_copy(0);
        fake_synchronise(0);
        fake_launch(0);
        // A silence.
        std::thread::sleep(Duration::from_millis(2));
        fake_memset(0);
        fake_launch(0);
        fake_copy(2);
    });
    let mut tracer = attach(&quiet());
    let failed = tracer.attach_cuda(&std::env::current_exe().expect("own path"), &points);
    assert_eq!(failed, []);
    let seen = observe_with(tracer, child);
    let main = seen.main_thread();
    let runs: Vec<_> =
        seen.records.iter().filter_map(|r| if let Record::Submits(s) = r { Some(s) } else { None }).collect();
    assert!(runs.iter().all(|r| r.thread == main && r.pid == seen.pid && r.first <= r.last));
    // Slow hits may split a run, which no time is asserted of; the sums hold whatever the runs.
    assert_eq!(runs.iter().map(|r| r.launches).sum::<u64>(), 7);
    assert_eq!(runs.iter().map(|r| r.memsets).sum::<u64>(), 1);
    assert_eq!(runs.iter().map(|r| r.copies).sum::<u64>(), 2);
    assert!(runs.len() >= 3, "a synchronise and a silence end runs: {runs:?}");
    assert!(runs.windows(2).all(|w| w[0].last < w[1].first), "runs are in order");
    assert!(runs.iter().any(|r| r.user_stack != 0 && !seen.stack(r.user_stack).is_empty()));
    let calls: Vec<_> = seen
        .records
        .iter()
        .filter_map(|r| if let Record::CudaCall(c) = r { Some(c) } else { None })
        .collect();
    let sync = calls.iter().find(|c| c.family == CudaFamily::Synchronize).expect("every synchronise");
    assert_eq!((sync.name.as_str(), sync.thread), ("cuStreamSynchronize", main));
    assert!(sync.exit.is_some_and(|exit| exit >= sync.entry));
    // The short one may have taken longer than the threshold.
    let copy = calls.iter().rfind(|c| c.family == CudaFamily::Copy).expect("the long copy");
    assert_eq!(copy.name, "cuMemcpyHtoD_v2");
    assert!(copy.exit.is_some_and(|exit| exit - copy.entry >= 2_000_000), "{copy:?}");
}

#[test]
#[file_serial(probes)]
fn who_ran_instead() {
    let pin = || {
        // SAFETY: pins to one processor.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut set);
            assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
        }
    };
    let spin = |time: Duration| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    };
    // A stranger that wants the same processor until it is ended.
    let mut rival = Child::fork(move || {
        pin();
        spin(Duration::MAX);
    });
    rival.go();
    let seen = observe(&quiet(), move || {
        pin();
        spin(Duration::from_millis(500));
    });
    let ran: u64 = seen
        .records
        .iter()
        .filter_map(|r| match r {
            Record::RanInstead(x) if x.pid == rival.pid => {
                assert!(x.cpu == 0 && !x.target && !x.comm.is_empty() && x.ns <= x.span.len());
                Some(x.ns)
            }
            _ => None,
        })
        .sum();
    let waited: u64 = seen
        .waits()
        .filter(|w| w.pid == seen.pid && w.state == State::Preempted && !w.cut_end)
        .map(|w| w.ran - w.left)
        .sum();
    assert!(waited > 0 && ran > 0, "waited {waited}, the rival ran {ran}");
    assert!(ran <= waited + waited / 2, "the rival ran {ran} of {waited} waited for");
}
