//! Recordings as a user makes them: real processes, real probes. Root is needed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serial_test::file_serial;
use whyidle::cli::exit::Status;
use whyidle::trace::{End, Reader, Record, TargetKind};
use whyidle_tests::binary::{self, Ran};

/// A process that runs until it is dropped.
struct Target(Child);

impl Target {
    fn start(script: &str) -> Self {
        Self(Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn read(trace: &Path) -> Vec<Record> {
    Reader::open(trace).unwrap().map(Result::unwrap).collect()
}

fn end(records: &[Record]) -> End {
    let Some(Record::End(end)) = records.last() else { panic!("no end: {:?}", records.last()) };
    end.clone()
}

fn done(ran: &Ran) {
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

/// Busy enough for every kind of record: sleeps, children, CPU time.
const BUSY: &str = "while :; do sleep 0.02; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; done";

#[test]
#[file_serial(probes)]
fn a_process_and_its_children_are_recorded_for_the_time_asked() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let target = Target::start(BUSY);
    let ran =
        binary::run(["record", "--pid", &target.pid(), "--duration", "2s", "-o", trace.to_str().unwrap()]);
    done(&ran);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("whyidle report"), "{ran:?}");

    let records = read(&trace);
    let Record::Host(host) = &records[0] else { panic!("{:?}", records[0]) };
    assert_eq!(host.command, format!("--pid {}", target.pid()));
    let end = end(&records);
    assert_eq!((end.reason.as_str(), end.exit_status), ("duration", None));
    assert!(end.at - host.start_ns >= 2_000_000_000);
    let pid = target.0.id();
    let seen = records.iter().find_map(|r| match r {
        Record::Thread(t) if t.pid == pid => Some(t),
        _ => None,
    });
    let seen = seen.expect("the target is named");
    assert_eq!((seen.kind, seen.cmdline[0].as_str()), (TargetKind::Named, "sh"));
    assert_eq!(seen.ppid, std::process::id());
    let child =
        |r: &Record| matches!(r, Record::Thread(t) if t.pid != pid && t.kind == TargetKind::Inherited);
    assert!(records.iter().any(child), "no child of the target was seen");
    let wait = |r: &Record| matches!(r, Record::OffCpu(w) if w.pid == pid && !w.cut_end);
    assert!(records.iter().any(wait), "no wait of the target");
    for (what, found) in [
        ("probe", records.iter().any(|r| matches!(r, Record::Probe(p) if p.attached))),
        ("missing device library", records.iter().any(|r| matches!(r, Record::Probe(p) if p.name == "nvml"))),
        ("host counters", records.iter().any(|r| matches!(r, Record::HostTick(_)))),
        ("own cost", records.iter().any(|r| matches!(r, Record::Counter(c) if c.name == "own_cpu_ns"))),
        ("kernel names", records.iter().any(|r| matches!(r, Record::Symbol(s) if !s.frames.is_empty()))),
    ] {
        assert!(found, "no {what}");
    }

    let report = binary::run(["report", trace.to_str().unwrap()]);
    done(&report);
    assert!(report.stdout.contains("not known"), "{report:?}");
    let again = binary::run(["report", trace.to_str().unwrap()]);
    assert_eq!(report.stdout, again.stdout, "the same trace gives the same report");
    let json = binary::run(["report", trace.to_str().unwrap(), "--format", "json"]);
    done(&json);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let folded = binary::run(["flame", trace.to_str().unwrap(), "--kind", "offcpu", "--folded"]);
    assert!(folded.stdout.lines().any(|l| l.starts_with("sh;")), "{folded:?}");
}

#[test]
#[file_serial(probes)]
fn children_that_were_there_before_are_recorded_too() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let target = Target::start("(while :; do sleep 0.05; done) & exec sleep 1000");
    let task = format!("/proc/{0}/task/{0}", target.pid());
    let mut child = String::new();
    while child.is_empty() || !fs::read_to_string(format!("{task}/comm")).unwrap().starts_with("sleep") {
        child = fs::read_to_string(format!("{task}/children")).unwrap().trim().to_owned();
    }
    let child: u32 = child.parse().unwrap();
    let ran =
        binary::run(["record", "--pid", &target.pid(), "--duration", "1s", "-o", trace.to_str().unwrap()]);
    let pid = rustix::process::Pid::from_raw(child.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    done(&ran);
    let records = read(&trace);
    let seen =
        |r: &Record| matches!(r, Record::Thread(t) if t.pid == child && t.kind == TargetKind::Inherited);
    let threads: Vec<_> = records.iter().filter(|r| matches!(r, Record::Thread(_))).collect();
    assert!(records.iter().any(seen), "{child} was not found among {threads:?}");
    assert!(records.iter().any(|r| matches!(r, Record::OffCpu(w) if w.pid == child)), "it was not recorded");
}

#[test]
#[file_serial(probes)]
fn a_command_is_watched_from_its_first_instruction_and_keeps_its_input_output_and_status() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let mut command = Command::new("sh");
    command.args(["-c", "echo input | \"$0\" run -o \"$1\" -- sh -c 'read x; echo out $x; sleep 1; exit 3'"]);
    let ran = binary::start_command({
        command.arg(binary::path()).arg(&trace);
        command
    })
    .end();
    done(&ran);
    assert_eq!(ran.stdout, "out input\n");
    assert!(ran.stderr.contains("sh ended with status 3"), "{ran:?}");
    let records = read(&trace);
    assert_eq!(end(&records).exit_status, Some(3));
    let exec = records.iter().any(|r| matches!(r, Record::ThreadExec(e) if e.comm == "sh"));
    assert!(exec, "the command's own exec was not seen");
    // A child may be read only once it runs another program, so the first of them is looked for.
    let named = |r: &Record| matches!(r, Record::Thread(t) if t.comm == "sh" && t.cmdline.starts_with(&["sh".into(), "-c".into()]));
    assert!(records.iter().any(named), "the command has no command line");
}

#[test]
#[file_serial(probes)]
fn a_command_runs_as_the_user_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let run = ["run", "-o", trace.to_str().unwrap(), "--user", "4242:4243", "--"];
    let ran = binary::run(run.iter().chain(&["sh", "-c", "id -u; id -G; sleep 1"]));
    done(&ran);
    assert_eq!(ran.stdout, "4242\n4243\n");
}

#[test]
#[file_serial(probes)]
fn a_command_that_outlives_its_recording_is_reported_on_while_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let go = folder.path().join("go");
    // Ends only when the report is there to be read: this waits for ever if the report waits for the command.
    let script =
        format!("while [ ! -e {} ]; do sleep 0.1; done; echo went on to its own end >&2", go.display());
    let mut run = Command::new(binary::path())
        .args(["run", "--duration", "1s", "-o", trace.to_str().unwrap(), "--", "sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(run.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("waiting for its end") {
            fs::write(&go, "").unwrap();
        }
        said += &format!("{line}\n");
    }
    assert_eq!(run.wait().unwrap().code(), Some(0), "{said}");
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("no {what:?} in {said}"));
    assert!(at("WHAT COULD NOT BE SEEN") < at("went on to its own end"), "{said}");
    assert!(at("went on to its own end") < at("sh ended with status 0"), "{said}");
    assert_eq!(end(&read(&trace)).reason, "duration");
}

#[test]
#[file_serial(probes)]
fn a_target_that_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let ran = binary::run(["run", "-o", trace.to_str().unwrap(), "--", "true"]);
    assert_eq!(ran.status, Some(Status::EndedAtOnce as i32), "{ran:?}");
    assert!(ran.stderr.contains("ended too soon to say anything of it"), "{ran:?}");
    assert_eq!(end(&read(&trace)).exit_status, Some(0));
}

#[test]
#[file_serial(probes)]
fn a_recording_ends_with_its_targets() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let mut target = Target::start("exec sleep 1000");
    let pid = target.pid();
    let mut run = binary::start(["record", "--pid", &pid, "-o", trace.to_str().unwrap()]);
    wait_until_it_records(&mut run, &trace);
    std::thread::sleep(std::time::Duration::from_secs(1));
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    done(&run.end());
    assert_eq!(end(&read(&trace)).reason, "targets exited");
}

/// The first frame is in the file once everything is attached.
fn wait_until_it_records(run: &mut binary::Running, trace: &Path) {
    run.until("it records", || fs::metadata(trace).is_ok_and(|m| m.len() > 16));
}

#[test]
#[file_serial(probes)]
fn the_first_signal_ends_in_order_and_what_waits_is_kept() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t");
        let target = Target::start("exec sleep 1000");
        let mut run = binary::start(["record", "--pid", &target.pid(), "-o", trace.to_str().unwrap()]);
        wait_until_it_records(&mut run, &trace);
        std::thread::sleep(std::time::Duration::from_millis(500));
        run.signal(signal);
        done(&run.end());
        let records = read(&trace);
        assert_eq!(end(&records).reason, "interrupted");
        let cut = |r: &Record| matches!(r, Record::OffCpu(w) if w.cut_start && w.cut_end);
        assert!(records.iter().any(cut), "a wait over the whole recording was dropped");
    }
}

#[test]
#[file_serial(probes)]
fn a_second_signal_aborts_and_the_trace_so_far_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let target = Target::start(BUSY);
    let mut run = binary::start(["record", "--pid", &target.pid(), "-o", trace.to_str().unwrap()]);
    wait_until_it_records(&mut run, &trace);
    // Stopped, it gets both at once.
    run.signal(Signal::STOP);
    run.signal(Signal::INT);
    run.signal(Signal::TERM);
    run.signal(Signal::CONT);
    let ran = run.end();
    ran.refused(Status::Aborted, &format!("whyidle report {}", trace.display()));
    assert!(matches!(read(&trace)[0], Record::Host(_)));
}

#[test]
#[file_serial(probes)]
fn after_a_kill_everything_up_to_the_last_frame_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let target = Target::start(BUSY);
    let mut run = binary::start(["record", "--pid", &target.pid(), "-o", trace.to_str().unwrap()]);
    run.until("it has recorded much", || fs::metadata(&trace).is_ok_and(|m| m.len() > 8000));
    run.signal(Signal::KILL);
    run.end();
    let records = read(&trace);
    assert!(records.iter().any(|r| matches!(r, Record::OffCpu(_))));
    let report = binary::run(["report", trace.to_str().unwrap()]);
    done(&report);
    assert!(report.stdout.contains("did not end in order"), "{report:?}");
}

/// A file system of a few pages, unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=32k", "none"]).arg(folder.path()).status();
        assert!(status.unwrap().success(), "cannot mount a tmpfs");
        Self(folder)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).status());
    }
}

#[test]
#[file_serial(probes)]
fn a_full_disk_ends_the_recording_and_keeps_what_was_recorded() {
    let small = Small::mount();
    let trace = small.0.path().join("t");
    let target = Target::start(BUSY);
    let ran =
        binary::run(["record", "--pid", &target.pid(), "-o", trace.to_str().unwrap(), "--duration", "60s"]);
    ran.refused(Status::OutOfSpace, "no space left");
    let records = read(&trace);
    assert!(matches!(records[0], Record::Host(_)));
    assert!(records.iter().any(|r| matches!(r, Record::OffCpu(_))));
    done(&binary::run(["report", trace.to_str().unwrap()]));
}

#[test]
#[file_serial(probes)]
fn members_of_a_group_that_join_later_are_recorded() {
    let group = Group::make();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let group_path = group.0.to_str().unwrap();
    let mut run =
        binary::start(["record", "--cgroup", group_path, "-o", trace.to_str().unwrap(), "--duration", "4s"]);
    wait_until_it_records(&mut run, &trace);
    let late = Target::start(BUSY);
    fs::write(group.0.join("cgroup.procs"), late.pid()).unwrap();
    done(&run.end());
    let pid = late.0.id();
    drop(late);
    let records = read(&trace);
    assert!(records.iter().any(|r| matches!(r, Record::OffCpu(w) if w.pid == pid)), "it was not recorded");
}

/// A control group of its own, removed when dropped.
struct Group(std::path::PathBuf);

impl Group {
    fn make() -> Self {
        let name = format!("whyidle-test-{}", std::process::id());
        for parent in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"] {
            let path = Path::new(parent).join(&name);
            if Path::new(parent).join("cgroup.procs").exists() && fs::create_dir(&path).is_ok() {
                return Self(path);
            }
        }
        panic!("no control group can be made here");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
