//! Attaching to the driver's library of live jobs: wherever it lies, whenever it is mapped, and leaving nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serial_test::file_serial;
use whyidle::capture::cuda::policy::Mode;
use whyidle::capture::tracer::Config;
use whyidle::trace::{Record, Watched};
use whyidle_tests::binary;
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::driver::{Job, PATIENCE, Step};
use whyidle_tests::library::Library;
use whyidle_tests::live::Live;
use whyidle_tests::privileged::{Child, refuse_new_system_calls};

/// Enough that nothing is given up: a probe costs much more on virtual machines.
const AMPLE: f64 = 100.0;

fn quiet() -> Config {
    Config { sample_hz: 0, ..Config::default() }
}

/// Attaches to a job that runs, sees its calls, and lets go.
#[track_caller]
fn round(job: &Job) {
    let mut live = Live::start(&quiet(), Mode::On, AMPLE, &[job]);
    live.until("a synchronise seen", |l| l.calls(job.pid, "cuCtxSynchronize") > 3);
    assert!(!job.altered(&job.library()).is_empty(), "probes are seen in the job's code");
    let records = live.end(&[job]);
    assert!(records.iter().any(|r| matches!(r, Record::Submits(s) if s.pid == job.pid && s.launches > 0)));
}

#[test]
#[file_serial(probes)]
fn attached_and_detached_ten_times_a_live_job_is_unhurt() {
    let device = SimulatedDevice::new(&[]);
    let job = Job::on(&device, Step::Train);
    assert_eq!(job.altered(&job.library()), [""; 0]);
    for _ in 0..10 {
        round(&job);
    }
    assert!(job.stop() > 40);
}

#[test]
#[file_serial(probes)]
fn a_library_mapped_after_the_start_is_found() {
    let device = SimulatedDevice::new(&[]);
    let (path, gate) = (device.cuda(), device.folder().join("gate"));
    let job = Job::start(Step::Train, {
        let gate = gate.clone();
        move || {
            while !gate.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            path
        }
    });
    let mut live = Live::start(&quiet(), Mode::On, AMPLE, &[&job]);
    for _ in 0..3 {
        live.tick(&[]);
    }
    assert_eq!(live.watched(), [Watched::Nothing]);
    std::fs::write(&gate, "").expect("the folder is writable");
    live.until("its calls seen", |l| l.calls(job.pid, "cuCtxSynchronize") > 3);
    assert_eq!(live.watched(), [Watched::Nothing, Watched::All]);
    live.end(&[&job]);
    assert!(job.stop() > 3);
}

#[test]
#[file_serial(probes)]
fn a_library_in_another_mount_namespace_is_found() {
    let device = SimulatedDevice::new(&[]);
    let (cuda, conf) = (device.cuda(), device.folder().join("sim.conf"));
    let hidden = device.folder().join("hidden");
    std::fs::create_dir(&hidden).expect("the folder is writable");
    let inside = hidden.clone();
    let job = Job::start(Step::Train, move || {
        mount_tmpfs(&inside);
        let own = inside.join("libcuda.so.1");
        std::fs::copy(&cuda, &own).expect("a copy");
        std::fs::copy(&conf, inside.join("sim.conf")).expect("a copy");
        own
    });
    job.until_mapped();
    assert!(!hidden.join("libcuda.so.1").exists(), "it is not there for us");
    round(&job);
    assert!(job.stop() > 3);
}

/// A file system that only this process sees.
fn mount_tmpfs(at: &Path) {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;
    let at = CString::new(at.as_os_str().as_bytes()).expect("no NUL");
    let none = std::ptr::null();
    // SAFETY: system calls on valid strings.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
        let private = libc::MS_REC | libc::MS_PRIVATE;
        assert_eq!(libc::mount(none, c"/".as_ptr(), none, private, none.cast()), 0);
        let tmpfs = c"tmpfs".as_ptr();
        assert_eq!(libc::mount(tmpfs, at.as_ptr(), tmpfs, 0, none.cast()), 0);
    }
}

#[test]
#[file_serial(probes)]
fn a_deleted_library_is_found() {
    let device = SimulatedDevice::new(&[]);
    let job = Job::on(&device, Step::Train);
    std::fs::remove_file(device.cuda()).expect("it is there");
    round(&job);
    assert!(job.stop() > 3);
}

#[test]
#[file_serial(probes)]
fn a_stripped_library_is_found() {
    let device = SimulatedDevice::new(&[]);
    let status = Command::new("strip").arg("--strip-all").arg(device.cuda()).status();
    assert!(status.expect("strip, of the package binutils").success());
    let job = Job::on(&device, Step::Train);
    round(&job);
    assert!(job.stop() > 3);
}

#[test]
#[file_serial(probes)]
fn what_cannot_be_attached_to_is_named_with_the_reason() {
    let device = SimulatedDevice::new(&[]);
    // A library that has the driver's name and nothing of it: C's own.
    let libc = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let libc =
        libc.lines().find_map(|l| l.split_ascii_whitespace().last().filter(|p| p.contains("/libm.so")));
    let libm = libc.map(PathBuf::from).unwrap_or_else(|| PathBuf::from("/lib/x86_64-linux-gnu/libm.so.6"));
    std::fs::copy(libm, device.cuda()).expect("a copy");
    let (path, gate) = (device.cuda(), device.folder().join("gate"));
    let job = Job::start(Step::Train, move || {
        let _loaded = Library::load(&path);
        while !gate.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        path
    });
    job.until_mapped();
    let mut live = Live::start(&quiet(), Mode::Auto, AMPLE, &[&job]);
    live.until("named", |l| {
        l.said().iter().any(|s| s.contains("exports none of the functions that are probed"))
    });
    // A process that works on a device and maps no driver is named too.
    let stranger = std::process::id();
    for _ in 0..40 {
        live.tick(&[stranger]);
    }
    let said: Vec<_> =
        live.said().into_iter().filter(|s| s.contains("maps no file named libcuda.so")).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(&format!("process {stranger} ")));
    live.end(&[]);
}

#[test]
#[file_serial(probes)]
fn a_process_under_a_seccomp_filter_is_not_killed() {
    let device = SimulatedDevice::new(&[]);
    let path = device.cuda();
    let job = Job::start(Step::Train, || {
        refuse_new_system_calls();
        path
    });
    job.until_mapped();
    let status = std::fs::read_to_string(format!("/proc/{}/status", job.pid)).expect("the job lives");
    assert!(status.lines().any(|l| l == "Seccomp:\t2"), "{status}");
    let mut live = Live::start(&quiet(), Mode::On, AMPLE, &[&job]);
    live.until("its launches seen", |l| l.launches(job.pid) > 3);
    let refused = live.said().into_iter().find(|s| s.starts_with("cuda_return: "));
    let records = live.end(&[&job]);
    let ended = |r: &Record| matches!(r, Record::CudaCall(c) if c.pid == job.pid && c.exit.is_some());
    // Returns are seen, or it is said why they are not.
    assert!(refused.is_some() || records.iter().any(ended), "{refused:?}");
    assert!(job.stop() > 3);
}

#[test]
#[file_serial(probes)]
fn under_a_storm_of_launches_auto_steps_down_and_says_so() {
    let device = SimulatedDevice::new(&[]);
    let job = Job::on(&device, Step::Storm);
    let mut live = Live::start(&quiet(), Mode::Auto, 0.002, &[&job]);
    live.until("stepped down", |l| l.watched().contains(&Watched::Rare));
    let library = job.library();
    live.until("launches let go", |_| !job.altered(&library).contains(&"cuLaunchKernel"));
    // The storm's synchronises may be too many in their turn; until then they are seen.
    if live.watched().last() == Some(&Watched::Rare) {
        assert!(job.altered(&library).contains(&"cuCtxSynchronize"));
    }
    assert_eq!(live.watched()[..3], [Watched::Nothing, Watched::All, Watched::Rare]);
    let steps: Vec<_> = live
        .records
        .iter()
        .filter_map(|r| if let Record::Step(s) = r { Some(&s.what) } else { None })
        .collect();
    assert!(steps[0].contains("over the budget of 0.20 %"), "{steps:?}");
    live.end(&[&job]);
    assert!(job.stop() > 0);
}

#[test]
#[file_serial(probes)]
fn told_to_watch_the_same_storm_is_watched_throughout() {
    let device = SimulatedDevice::new(&[]);
    let job = Job::on(&device, Step::Storm);
    let mut live = Live::start(&quiet(), Mode::On, 0.002, &[&job]);
    let begun = Instant::now();
    live.until("some seconds passed", |_| begun.elapsed() > Duration::from_secs(4));
    assert_eq!(live.watched(), [Watched::Nothing, Watched::All]);
    live.end(&[&job]);
    assert!(job.stop() > 0);
}

#[test]
#[file_serial(probes)]
fn off_attaches_none_and_says_so() {
    let device = SimulatedDevice::new(&[]);
    let job = Job::on(&device, Step::Train);
    let mut live = Live::start(&quiet(), Mode::Off, AMPLE, &[&job]);
    for _ in 0..5 {
        live.tick(&[]);
    }
    assert_eq!(job.altered(&job.library()), [""; 0]);
    assert_eq!(live.watched(), [Watched::Nothing]);
    assert!(live.said()[0].contains("--cuda off"), "{:?}", live.said());
    live.end(&[]);
    assert!(job.stop() > 0);
}

/// The binary on a job, ended by a signal while it is attached.
fn ended_by(signal: Signal) {
    let device = SimulatedDevice::new(&[]);
    let job = Job::on(&device, Step::Train);
    let library = job.library();
    let trace = device.folder().join("t.trace");
    let pid = job.pid.to_string();
    let arguments =
        ["record", "-v", "--cuda", "on", "--pid", &pid, "-o", &trace.to_string_lossy()].map(str::to_owned);
    let mut running = binary::start(arguments);
    running.until("it attached", || !job.altered(&library).is_empty());
    running.signal(signal);
    let ran = running.end();
    if signal == Signal::INT {
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stderr.contains("nothing is attached any more: no link left"), "{ran:?}");
    } else {
        assert_eq!(ran.status, None, "{ran:?}");
    }
    let begun = Instant::now();
    while !job.altered(&library).is_empty() {
        // After SIGKILL the kernel closes the links while the process is already gone for its parent.
        assert!(signal == Signal::KILL && begun.elapsed() < PATIENCE, "{:?}", job.altered(&library));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(job.stop() > 0);
}

#[test]
#[file_serial(probes)]
fn interrupted_nothing_is_left() {
    ended_by(Signal::INT);
}

#[test]
#[file_serial(probes)]
fn killed_nothing_is_left() {
    ended_by(Signal::KILL);
}

fn load_global(path: &Path) -> *mut libc::c_void {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: loads a library that was just built.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!library.is_null());
    library
}

/// A driver whose exported entry points nobody calls: the runtime has other ways in.
#[test]
#[file_serial(probes)]
fn a_driver_that_is_bypassed_is_seen_through_the_runtime() {
    let folder = tempfile::tempdir().expect("a folder");
    let (driver, runtime) = (folder.path().join("libcuda.so.1"), folder.path().join("libcudart.so.12"));
    std::fs::write(&driver, include_bytes!(concat!(env!("OUT_DIR"), "/driver.so"))).expect("written");
    std::fs::write(&runtime, include_bytes!(concat!(env!("OUT_DIR"), "/runtime.so"))).expect("written");
    let mut child = Child::fork(move || {
        load_global(&driver);
        let library = load_global(&runtime);
        let call = |name: &std::ffi::CStr| {
            // SAFETY: a function of the library above, which takes nothing.
            unsafe {
                let address = libc::dlsym(library, name.as_ptr());
                let function: extern "C" fn() -> i32 = std::mem::transmute(address);
                function();
            }
        };
        loop {
            call(c"cudaLaunchKernel");
            call(c"cudaDeviceSynchronize");
        }
    });
    // It is at work before the probes come, so that its stacks are seen before its library is.
    child.go();
    let config = Config { sample_hz: 199, ..Config::default() };
    let mut live = Live::watching(&config, Mode::On, AMPLE, vec![child.pid]);
    std::thread::sleep(Duration::from_millis(500));
    live.until("noticed", |l| l.said().iter().any(|s| s.contains("driver calls seen through runtime only")));
    live.until("calls seen", |l| {
        l.launches(child.pid) > 0 && l.calls(child.pid, "cudaDeviceSynchronize") > 0
    });
    live.end(&[]);
}
