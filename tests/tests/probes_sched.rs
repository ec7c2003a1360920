//! Scheduler records: system call, state, waker and times of provoked waits.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{LossCause, NvidiaIoctl, OffCpu, State, WakerContext};
use whyidle_tests::privileged::{Child, Observed, attach, observe, observe_with};

const TIMES: usize = 20;
/// Long enough for who is to be woken to be asleep by then, on an emulated processor too.
const NAP: Duration = Duration::from_millis(20);

fn quiet() -> Config {
    Config { sample_hz: 0, ..Config::default() }
}

fn ordered(w: &OffCpu) {
    assert!(w.left <= w.ran && w.woken.is_none_or(|t| w.left <= t && t <= w.ran), "{w:?}");
}

/// A second thread that does something every few milliseconds, `TIMES` times.
fn every_nap(mut act: impl FnMut() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for _ in 0..TIMES {
            std::thread::sleep(NAP);
            act();
        }
    })
}

/// Stays without an end, which are counted as lost.
fn unannounced(seen: &Observed) -> usize {
    let lost = seen.losses().filter(|l| l.cause == LossCause::Unannounced).map(|l| l.count).sum::<u64>();
    usize::try_from(lost).expect("a few")
}

/// Waits of the main thread in one call: as many as were provoked, less those whose end the kernel did not
/// announce (see `LossCause::Unannounced`). One under another system call's number would be missing here.
fn check(seen: &Observed, nr: libc::c_long, provoked: usize) -> Vec<&OffCpu> {
    let least = provoked - unannounced(seen);
    let main = seen.main_thread();
    let waits: Vec<&OffCpu> =
        seen.waits_in(nr).filter(|w| w.thread == main && w.state == State::Sleeping).collect();
    assert!(waits.len() >= least, "{} waits in system call {nr}, {least} wanted", waits.len());
    for w in &waits {
        ordered(w);
        assert!(w.woken.is_some() && w.waker.is_some(), "{w:?}");
        assert_eq!(w.pid, seen.pid);
        assert!(w.kernel_stack != 0 && !seen.stack(w.kernel_stack).is_empty());
        assert!(w.user_stack != 0 && !seen.stack(w.user_stack).is_empty());
        assert!(w.cpus_allowed > 0 && w.cpu_mask.iter().any(|m| *m != 0));
    }
    waits
}

#[test]
#[file_serial(probes)]
fn pipe_read() {
    let seen = observe(&quiet(), || {
        let (mut read, mut write) = std::io::pipe().expect("pipe");
        let writer = every_nap(move || {
            write.write_all(b"x").expect("write");
        });
        for _ in 0..TIMES {
            read.read_exact(&mut [0u8; 1]).expect("read");
        }
        writer.join().expect("writer");
    });
    for w in check(&seen, libc::SYS_read, TIMES) {
        let waker = w.waker.as_ref().expect("checked");
        let writer = waker.thread.expect("the writer");
        assert!(writer.tid != seen.pid && waker.pid == seen.pid, "a thread of the same process: {waker:?}");
        assert_eq!(waker.context, WakerContext::Task);
        assert_eq!(waker.syscall, Some(libc::SYS_write as i32));
        assert!(!waker.in_nvidia_ioctl);
        let file = w.file.expect("a pipe");
        let described = seen.records.iter().any(
            |r| matches!(r, whyidle::trace::Record::File(f) if f.id == file && f.mode & 0o170_000 == 0o010_000),
        );
        assert!(described, "the pipe is described as one");
    }
}

#[test]
#[file_serial(probes)]
fn nanosleep_ends_by_an_interrupt() {
    let seen = observe(&quiet(), || (0..TIMES).for_each(|_| std::thread::sleep(NAP)));
    // A nap whose timer fires before the thread has left the processor is none.
    for w in check(&seen, libc::SYS_clock_nanosleep, TIMES) {
        assert_eq!(w.waker.as_ref().expect("checked").context, WakerContext::Interrupt);
    }
}

#[test]
#[file_serial(probes)]
fn futex_with_its_value() {
    static WORD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(77);
    let address = WORD.as_ptr() as u64;
    let seen = observe(&quiet(), move || {
        let wait = |value: u32| {
            // SAFETY: the word lives as long as the program.
            unsafe {
                libc::syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAIT, value, 0usize, 0usize, 0)
            };
        };
        let waker = every_nap(|| {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAKE, 1, 0usize, 0usize, 0) };
        });
        for _ in 0..TIMES {
            wait(77);
        }
        waker.join().expect("waker");
    });
    let waits =
        seen.waits_in(libc::SYS_futex).filter(|w| w.syscall.as_ref().is_some_and(|s| s.args[0] == address));
    let waits: Vec<_> = waits.filter(|w| w.state == State::Sleeping).collect();
    assert!(waits.len() >= TIMES - unannounced(&seen), "{}", waits.len());
    for w in waits {
        ordered(w);
        assert_eq!(w.futex_value, Some(77));
        assert_eq!(w.syscall.as_ref().expect("filtered").args[2], 77);
    }
}

#[test]
#[file_serial(probes)]
fn poll_and_epoll_name_their_descriptor() {
    let seen = observe(&quiet(), || {
        let (mut read, mut write) = std::io::pipe().expect("pipe");
        let writer = every_nap(move || {
            write.write_all(b"x").expect("write");
        });
        // SAFETY: plain system calls on own descriptors and local memory.
        unsafe {
            let epoll = libc::epoll_create1(0);
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, read.as_raw_fd(), &raw mut event), 0);
            for i in 0..TIMES {
                if i % 2 == 0 {
                    let mut fd = libc::pollfd { fd: read.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                    libc::syscall(libc::SYS_poll, &raw mut fd, 1, -1);
                } else {
                    libc::syscall(libc::SYS_epoll_wait, epoll, &raw mut event, 1, -1);
                }
                read.read_exact(&mut [0u8; 1]).expect("read");
            }
        }
        writer.join().expect("writer");
    });
    for w in check(&seen, libc::SYS_poll, TIMES / 2) {
        assert!(w.file.is_some(), "the first descriptor of the array: {w:?}");
    }
    for w in check(&seen, libc::SYS_epoll_wait, TIMES / 2) {
        assert!(w.file.is_some(), "{w:?}");
    }
}

#[test]
#[file_serial(probes)]
fn wait4_is_woken_by_the_dying_child() {
    let seen = observe(&quiet(), || {
        for _ in 0..TIMES {
            // SAFETY: the child sleeps and leaves.
            unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    std::thread::sleep(NAP);
                    libc::_exit(0);
                }
                libc::syscall(libc::SYS_wait4, pid, 0, 0, 0);
            }
        }
    });
    for w in check(&seen, libc::SYS_wait4, TIMES) {
        let waker = w.waker.as_ref().expect("checked");
        assert!(waker.thread.is_some() && waker.pid != seen.pid, "another process: {waker:?}");
    }
}

/// A blocking ioctl on a character device of a major taken as the driver's: a virtual console.
#[test]
#[file_serial(probes)]
fn ioctl_on_a_taken_major() {
    const VT_ACTIVATE: u64 = 0x5606;
    const VT_WAITACTIVE: u64 = 0x5607;
    const VT_GETSTATE: u64 = 0x5603;
    const VT: u64 = 3;
    let config = Config { nvidia_majors: vec![4], ..quiet() };
    let seen = observe(&config, || {
        let tty = std::fs::File::open("/dev/tty1").expect("/dev/tty1");
        let fd = tty.as_raw_fd();
        // SAFETY: console ioctls that take a number, or fill three words.
        unsafe {
            let mut state = [0u16; 3];
            assert_eq!(libc::ioctl(fd, VT_GETSTATE, state.as_mut_ptr()), 0);
            let before = u64::from(state[0]);
            assert_ne!(before, VT);
            let switcher = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                libc::ioctl(fd, VT_ACTIVATE, VT);
            });
            libc::ioctl(fd, VT_WAITACTIVE, VT);
            switcher.join().expect("switcher");
            libc::ioctl(fd, VT_ACTIVATE, before);
            libc::ioctl(fd, VT_WAITACTIVE, before);
        }
    });
    let main = seen.main_thread();
    let wait = seen
        .waits_in(libc::SYS_ioctl)
        .find(|w| w.thread == main && w.ran - w.left >= 30_000_000)
        .expect("the wait for the console");
    assert_eq!(wait.ioctl, Some(NvidiaIoctl { command: VT_WAITACTIVE as u32, inner: None }));
    assert_eq!(wait.syscall.as_ref().expect("ioctl").args[2], VT);
    assert!(wait.file.is_some());
}

#[test]
#[file_serial(probes)]
fn ioctl_on_another_major_is_none() {
    let seen = observe(&quiet(), || {
        let tty = std::fs::File::open("/dev/tty1").expect("/dev/tty1");
        // Waits for a console that is active: does not block, but opens and asks.
        // SAFETY: a console ioctl that takes a number.
        unsafe { libc::ioctl(tty.as_raw_fd(), 0x5607, 1u64) };
        std::thread::sleep(NAP);
    });
    assert!(seen.waits().all(|w| w.ioctl.is_none()));
}

#[test]
#[file_serial(probes)]
fn stat_leaves_its_path() {
    let seen = observe(&Config { threshold_ns: 0, ..quiet() }, || {
        for i in 0..2000 {
            let path = format!("/proc/self/task/does-not-exist-{i}\0");
            // SAFETY: a terminated string.
            unsafe {
                libc::syscall(libc::SYS_access, path.as_ptr(), 0);
                libc::syscall(libc::SYS_sched_yield);
            }
        }
        // A named pipe without a writer: open blocks.
        let dir = tempfile::tempdir().expect("a folder");
        let fifo = dir.path().join("letterbox");
        let name = std::ffi::CString::new(fifo.to_str().expect("utf-8")).expect("no NUL");
        // SAFETY: a terminated string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let other = fifo.clone();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(NAP);
            drop(std::fs::OpenOptions::new().write(true).open(other).expect("open for writing"));
        });
        drop(std::fs::File::open(&fifo).expect("open for reading"));
        writer.join().expect("writer");
    });
    let wait = seen.waits_in(libc::SYS_openat).find(|w| w.state == State::Sleeping).expect("a blocked open");
    assert!(wait.path_arg.as_deref().is_some_and(|p| p.ends_with("/letterbox")), "{:?}", wait.path_arg);
}

#[test]
#[file_serial(probes)]
fn yielding_is_not_sleeping() {
    let seen = observe(&Config { threshold_ns: 0, ..quiet() }, || {
        let spin = || {
            // SAFETY: pins to one processor and yields.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut set);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
                for _ in 0..20_000 {
                    libc::sched_yield();
                }
            }
        };
        let start = std::sync::Arc::new(std::sync::Barrier::new(2));
        let theirs = std::sync::Arc::clone(&start);
        let other = std::thread::spawn(move || {
            theirs.wait();
            spin();
        });
        start.wait();
        spin();
        other.join().expect("the other");
    });
    let yields: Vec<_> = seen.waits_in(libc::SYS_sched_yield).collect();
    assert!(yields.len() > 100, "{}", yields.len());
    for w in yields {
        assert_eq!((w.state, w.woken), (State::Yielded, None), "{w:?}");
        assert_eq!((w.cpus_allowed, w.cpu_mask[0]), (1, 1));
    }
}

#[test]
#[file_serial(probes)]
fn a_wait_under_way_at_attach_and_one_open_at_the_end_are_cut() {
    let seen = observe(&quiet(), || {});
    let main = seen.main_thread();
    let first = seen.waits().find(|w| w.thread == main && w.cut_start).expect("the barrier");
    assert_eq!(first.syscall.as_ref().map(|s| i64::from(s.nr)), Some(libc::SYS_read));
    assert_eq!(first.state, State::Sleeping);
    assert!(!first.cut_end && first.left < first.ran);
    let last = seen.waits().find(|w| w.thread == main && w.cut_end).expect("the pause at the end");
    assert_eq!(last.syscall.as_ref().map(|s| i64::from(s.nr)), Some(libc::SYS_pause));
    assert!(!last.cut_start && last.woken.is_none());
    assert!(!seen.stack(last.kernel_stack).is_empty());
}

#[test]
#[file_serial(probes)]
fn a_thread_that_never_switches_is_kept_from_proc() {
    let sleeper = || {
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1000)));
        // Asleep before the probes come.
        std::thread::sleep(Duration::from_millis(30));
    };
    let child = Child::fork_prepared(sleeper, || {});
    let seen = observe_with(attach(&quiet()), child);
    let main = seen.main_thread();
    let other = seen.threads().find(|t| t.pid == seen.pid && t.key != main).expect("the sleeping thread").key;
    let waits: Vec<_> = seen.waits().filter(|w| w.thread == other).collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    let wait = waits[0];
    assert!(wait.cut_start && wait.cut_end && wait.left < wait.ran);
    assert_eq!(wait.state, State::Sleeping);
    assert_eq!(wait.syscall.as_ref().map(|s| i64::from(s.nr)), Some(libc::SYS_clock_nanosleep));
    assert!(!seen.stack(wait.kernel_stack).is_empty());
}
