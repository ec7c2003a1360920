//! Births, renames, execs, exits: the target set follows, and ids are not mixed up.

use std::process::Command;
use std::time::Duration;

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{Record, TargetKind};
use whyidle_tests::privileged::observe;

fn quiet() -> Config {
    Config { sample_hz: 0, ..Config::default() }
}

#[test]
#[file_serial(probes)]
fn threads_are_not_processes() {
    let seen = observe(&quiet(), || {
        let threads: Vec<_> = (0..3)
            .map(|i| {
                std::thread::Builder::new()
                    .name(format!("worker-{i}"))
                    .spawn(|| std::thread::sleep(Duration::from_millis(5)))
                    .expect("a thread")
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("joined"));
    });
    let main = seen.main_thread();
    for i in 0..3 {
        let named: Vec<_> = seen.threads().filter(|t| t.comm == format!("worker-{i}")).collect();
        assert!(!named.is_empty(), "worker-{i} was renamed");
        let key = named[0].key;
        assert!(named.iter().all(|t| t.pid == seen.pid && t.key == key) && key.tid != seen.pid);
        let birth = seen.threads().find(|t| t.key == key && t.born.is_some()).expect("a birth");
        assert_eq!((birth.creator, birth.kind), (Some(main), TargetKind::Inherited));
        assert!(!birth.kernel_thread);
        let nap = seen.waits_in(libc::SYS_clock_nanosleep).find(|w| w.thread == key).expect("its nap");
        assert_eq!(nap.pid, seen.pid);
        assert!(birth.born.is_some_and(|b| b <= nap.left));
        let exit = seen.records.iter().find_map(|r| match r {
            Record::ThreadExit(e) if e.key == key => Some(e.at),
            _ => None,
        });
        assert!(exit.is_some_and(|at| at >= nap.ran));
    }
}

#[test]
#[file_serial(probes)]
fn a_grandchild_that_execs_stays_a_target() {
    let seen = observe(&quiet(), || {
        let status = Command::new("/bin/sh").args(["-c", "sleep 0.01; exit 0"]).status().expect("sh");
        assert!(status.success());
    });
    let execs: Vec<_> = seen
        .records
        .iter()
        .filter_map(|r| if let Record::ThreadExec(e) = r { Some(e) } else { None })
        .collect();
    let sh = execs.iter().find(|e| e.comm == "sh").expect("sh");
    let sleep = execs.iter().find(|e| e.comm == "sleep").expect("sleep, the shell's child");
    assert!(sh.pid != seen.pid && sleep.pid != seen.pid && sh.key.tid == sh.pid);
    let birth = seen.threads().find(|t| t.key == sleep.key && t.born.is_some()).expect("its birth");
    assert_eq!(birth.kind, TargetKind::Inherited);
    assert!(seen.waits_in(libc::SYS_clock_nanosleep).any(|w| w.thread == sleep.key));
    let waiting = seen
        .waits_in(libc::SYS_wait4)
        .any(|w| w.thread == seen.main_thread() && w.waker.as_ref().is_some_and(|x| x.pid == sh.pid));
    assert!(waiting, "the child waits for the shell, which wakes it by dying");
}

/// A thread id that comes back is another key, because the start time is part of it.
#[test]
#[file_serial(probes)]
fn a_reused_id_is_another_thread() {
    let seen = observe(&quiet(), || {
        let next = "/proc/sys/kernel/ns_last_pid";
        // SAFETY: the child naps and leaves.
        let nap = || unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::usleep(3000);
                libc::_exit(0);
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
            pid
        };
        let first = nap();
        for _ in 0..200 {
            // Start times are told apart by ten milliseconds.
            std::thread::sleep(Duration::from_millis(25));
            std::fs::write(next, (first - 1).to_string()).expect("the last id is settable");
            if nap() == first {
                return;
            }
        }
        panic!("the id never came back");
    });
    let mut births: Vec<_> = seen.threads().filter(|t| t.born.is_some()).map(|t| t.key).collect();
    births.sort_unstable();
    let twins: Vec<_> = births.windows(2).filter(|w| w[0].tid == w[1].tid).collect();
    assert!(!twins.is_empty(), "one id, two births");
    for pair in twins {
        assert_ne!(pair[0].start_ticks, pair[1].start_ticks);
        for key in pair {
            let exits = seen.records.iter().filter(|r| matches!(r, Record::ThreadExit(e) if e.key == *key));
            assert_eq!(exits.count(), 1);
            let naps: Vec<_> =
                seen.waits_in(libc::SYS_clock_nanosleep).filter(|w| w.thread == *key).collect();
            assert_eq!(naps.len(), 1, "each has its own nap");
        }
    }
}

#[test]
#[file_serial(probes)]
fn strangers_leave_no_records() {
    let mut stranger =
        Command::new("/bin/sh").args(["-c", "while :; do sleep 0.002; done"]).spawn().expect("a stranger");
    let seen = observe(&quiet(), || std::thread::sleep(Duration::from_millis(100)));
    stranger.kill().expect("ended");
    stranger.wait().expect("reaped");
    let own = std::process::id();
    for wait in seen.waits() {
        assert!(wait.pid != stranger.id() && wait.pid != own, "{wait:?}");
    }
    assert!(seen.totals().all(|t| t.pid != stranger.id() && t.pid != own));
}
