//! Recordings whose target, file or means are taken away. Root is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serial_test::file_serial;
use whyidle::cli::exit::Status;
use whyidle::trace::{Reader, Record};
use whyidle_tests::binary::{self, Running};

/// A process that runs until it is dropped.
struct Target(Child);

impl Target {
    fn start() -> Self {
        let script = "while :; do sleep 0.02; done";
        Self(Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a recording of a minute, and waits until its first frame is there.
fn record(targets: [&str; 2], trace: &Path) -> Running {
    let [option, value] = targets;
    let mut run =
        binary::start(["record", option, value, "-o", trace.to_str().unwrap(), "--duration", "60s"]);
    run.until("it records", || fs::metadata(trace).is_ok_and(|m| m.len() > 16));
    run
}

#[test]
#[file_serial(probes)]
fn a_trace_that_somebody_else_takes_away_is_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let cut = |trace: &Path| fs::OpenOptions::new().write(true).open(trace).unwrap().set_len(20).unwrap();
    let target = Target::start();
    let pid = target.0.id().to_string();
    let run = record(["--pid", &pid], &trace);
    cut(&trace);
    run.end().refused(Status::CannotCreate, "cut short by somebody else");
    assert_eq!(fs::metadata(&trace).unwrap().len(), 20, "filled up with zeros");
    fs::remove_file(&trace).unwrap();
    let run = record(["--pid", &pid], &trace);
    fs::remove_file(&trace).unwrap();
    drop(target);
    run.end().refused(Status::CannotCreate, "was removed");
}

#[test]
#[file_serial(probes)]
fn a_recording_of_a_group_ends_when_the_group_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let group = make_group();
    let target = Target::start();
    fs::write(group.join("cgroup.procs"), target.0.id().to_string()).unwrap();
    let run = record(["--cgroup", group.to_str().unwrap()], &trace);
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(target);
    // Its last process leaves it a moment after it was waited for.
    while fs::remove_dir(&group).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ran = run.end();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("(the control group was removed)"), "{ran:?}");
    let last = Reader::open(&trace).unwrap().map(Result::unwrap).last();
    assert!(matches!(&last, Some(Record::End(e)) if e.reason.contains("group was removed")), "{last:?}");
}

/// A control group of its own.
fn make_group() -> PathBuf {
    let name = format!("whyidle-ends-{}", std::process::id());
    let parents = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
    let parent = parents.into_iter().find(|parent| parent.join("cgroup.procs").exists());
    let group = parent.expect("a hierarchy of control groups").join(name);
    fs::create_dir(&group).unwrap();
    group
}

/// Runs the binary under a limit on open files.
fn limited(limit: &str, words: &[&str]) -> binary::Ran {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]).arg(binary::path()).args(words);
    binary::start_command(command).end()
}

#[test]
#[file_serial(probes)]
fn a_limit_on_open_files_is_raised_for_the_recording_alone_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let trace_name = trace.to_str().unwrap();
    let run = ["run", "-o", trace_name, "--force", "--", "sh", "-c", "ulimit -n; sleep 1"];
    let ran = limited("-Sn 24", &run);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "24\n"), "{ran:?}");
    fs::remove_file(&trace).unwrap();
    limited("-n 24", &run).refused(Status::Failed, "Too many open files (os error 24); allow it more");
    assert!(!trace.exists(), "an empty trace was left behind");
}
