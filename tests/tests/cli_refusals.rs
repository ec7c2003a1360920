//! What cannot be done is refused before anything is attached or left behind: one line, its own status.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serial_test::file_serial;
use whyidle::cli::exit::Status;
use whyidle_tests::binary;

/// A trace with nothing but its start and end.
fn small_trace(path: &Path) {
    use whyidle::trace::{End, Host, Record, Writer};
    let mut writer = Writer::create(path).unwrap();
    let host = Host { start_ns: 1_000_000_000, ..Host::default() };
    writer.append(&Record::Host(host)).unwrap();
    let end = End { at: 31_000_000_000, reason: "duration".into(), exit_status: None };
    writer.append(&Record::End(end)).unwrap();
    writer.finish().unwrap();
}

/// Asserts that a folder holds nothing.
fn empty(folder: &Path) {
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.is_empty(), "left behind: {names:?}");
}

#[test]
fn without_privileges() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("setpriv");
    command.current_dir(folder.path()).args(["--bounding-set=-all", "--inh-caps=-all"]).arg(binary::path());
    command.args(["record", "--pid", "1"]);
    binary::start_command(command).end().refused(Status::NotPermitted, "sudo");
    empty(folder.path());
}

#[test]
fn a_process_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let record = |pid: u32| binary::run(["record", "-o", trace.to_str().unwrap(), "--pid", &pid.to_string()]);
    let mut ended = Command::new("true").spawn().unwrap();
    // A zombie, then nothing: both have ended.
    while !fs::read_to_string(format!("/proc/{}/stat", ended.id())).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    record(ended.id()).refused(Status::NoTarget, &format!("no process {}", ended.id()));
    ended.wait().unwrap();
    record(ended.id()).refused(Status::NoTarget, &format!("no process {}", ended.id()));
    record(u32::MAX).refused(Status::NoTarget, "no process 4294967295");
    empty(folder.path());
}

#[test]
fn a_thread_of_another_process() {
    let (tid_sender, tid) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        rustix::thread::set_name(c"evil\x1b[31m\nx").unwrap();
        tid_sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        // Ends with an error: that the other side is gone is the signal.
        wait.recv().unwrap_err();
    });
    let tid = tid.recv().unwrap();
    let ran = binary::run(["record", "--pid", &tid.to_string()]);
    drop(done);
    thread.join().unwrap();
    ran.refused(Status::NotAProcess, &format!("use --pid {}", std::process::id()));
}

#[test]
fn a_group_that_is_none() {
    binary::run(["record", "--cgroup", "/no/such/group"]).refused(Status::NoTarget, "/no/such/group");
}

#[test]
fn no_process_on_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary::path());
    // A major that no device has.
    command.current_dir(folder.path()).args(["--nvidia-major", "4000"]);
    binary::start_command(command).end().refused(Status::NoGpuProcess, "no process uses a GPU");
    empty(folder.path());
}

#[test]
fn an_output_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let record =
        |path: &Path| binary::run(["record", "--all", "--duration", "1s", "-o", path.to_str().unwrap()]);
    record(&folder.path().join("no/t")).refused(Status::CannotCreate, "there is no folder");
    record(folder.path()).refused(Status::CannotCreate, "is a folder");
    record(Path::new("/sys/kernel/t")).refused(Status::CannotCreate, "cannot be written to");
    empty(folder.path());
    let existing = folder.path().join("t");
    fs::write(&existing, "old").unwrap();
    record(&existing).refused(Status::Exists, "--force");
    assert_eq!(fs::read_to_string(&existing).unwrap(), "old");
}

#[test]
fn an_output_that_others_read_or_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let record = || {
        let path = path.to_str().unwrap();
        binary::run(["record", "--all", "--duration", "1s", "--force", "-o", path])
    };
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // With a reader, so that opening it does not fail for the want of one.
    let reader = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    record().refused(Status::CannotCreate, "regular file");
    drop(reader);
    fs::remove_file(&path).unwrap();
    let other = fs::File::create(&path).unwrap();
    other.lock().unwrap();
    record().refused(Status::BeingWritten, "another whyidle");
}

/// Every verb that makes one file of another.
const MAKERS: [&[&str]; 4] = [
    &["import", "kineto"],
    &["flame", "--kind", "oncpu"],
    &["flame", "--kind", "idle", "--folded"],
    &["flame", "--kind", "wakers", "--format", "pprof"],
];

#[test]
fn an_output_that_is_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let (input, link, hard) =
        (folder.path().join("in"), folder.path().join("link"), folder.path().join("hard"));
    small_trace(&input);
    let content = fs::read(&input).unwrap();
    std::os::unix::fs::symlink(&input, &link).unwrap();
    fs::hard_link(&input, &hard).unwrap();
    for verb in MAKERS {
        for (from, to) in [(&input, &input), (&input, &link), (&link, &input), (&input, &hard)] {
            for force in [&[][..], &["--force"]] {
                let files = [from.to_str().unwrap(), "-o", to.to_str().unwrap()];
                let ran = binary::run(verb.iter().chain(&files).chain(force));
                ran.refused(Status::IsInput, "is the file that is read");
                assert_eq!(fs::read(&input).unwrap(), content, "{verb:?} {from:?} {to:?}");
            }
        }
    }
}

#[test]
fn a_container_with_process_ids_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.current_dir(folder.path()).args(["--pid", "--fork", "--mount-proc"]).arg(binary::path());
    command.args(["record", "--pid", "1"]);
    binary::start_command(command).end().refused(Status::PidNamespace, "hostPID");
    empty(folder.path());
}

#[test]
fn a_library_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, library) = (folder.path().join("t"), folder.path().join("lib\x1b[2J.so"));
    let record = |library: &Path| {
        let (trace, library) = (trace.to_str().unwrap(), library.to_str().unwrap());
        binary::run(["record", "--all", "--duration", "1s", "-o", trace, "--nvml", library])
    };
    record(&library).refused(Status::NotNvml, r"lib\x1b[2J.so");
    fs::write(&library, "text").unwrap();
    record(&library).refused(Status::NotNvml, r"lib\x1b[2J.so");
    // A library, but not this one.
    let libc = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = libc.lines().find_map(|l| Some(&l[l.find('/')?..]).filter(|p| p.contains("libc.so")));
    record(Path::new(libc.expect("this test is linked to libc"))).refused(Status::NotNvml, "NVML");
    assert!(!trace.exists());
}

#[test]
#[file_serial(probes)]
fn a_command_that_cannot_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let run = |words: &[&str]| binary::run(["run", "-o", trace.to_str().unwrap()].iter().chain(words));
    run(&["--user", "nobody-of-this-name", "--", "true"]).refused(Status::Usage, "/etc/passwd");
    // What the kernel takes for "no change" must not be taken for a user.
    run(&["--user", "4294967295:1", "--", "true"]).refused(Status::Usage, "user 4294967295:1");
    run(&["--user", "1:4294967295", "--", "true"]).refused(Status::Usage, "user 1:4294967295");
    run(&["--", "/no/such/program"]).refused(Status::CannotStart, "/no/such/program");
    run(&["--", "/etc/passwd"]).refused(Status::CannotStart, "/etc/passwd");
    empty(folder.path());
}

#[test]
fn a_file_that_is_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    for verb in [&["report"][..], &["flame", "--folded", "--kind", "idle"]] {
        let read = || binary::run(verb.iter().copied().chain([file.to_str().unwrap()]));
        read().refused(Status::CannotRead, "cannot open");
        for content in [&b""[..], b"text\n", &[0; 4096]] {
            fs::write(&file, content).unwrap();
            read().refused(Status::NotATrace, "f: ");
        }
        // The header of version 60000, with its checksum.
        fs::write(&file, LATER).unwrap();
        read().refused(Status::LaterVersion, "60000");
        fs::remove_file(&file).unwrap();
    }
    let is_folder = binary::run(["report", folder.path().to_str().unwrap()]);
    assert_eq!(is_folder.status, Some(Status::CannotRead as i32), "{is_folder:?}");
}

const LATER: &[u8] = b"\x89whyidle\x60\xea\0\0\x6b\xa3\x78\xce";

#[test]
fn a_part_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    small_trace(&trace);
    let report = |options: &[&str]| binary::run(["report", trace.to_str().unwrap()].iter().chain(options));
    report(&["--from", "soon"]).refused(Status::BadRange, "--from soon");
    report(&["--to", "-1s"]).refused(Status::BadRange, "--to -1s");
    report(&["--from", "9s", "--to", "3s"]).refused(Status::BadRange, "does not come after");
    report(&["--from", "31s"]).refused(Status::BadRange, "lasts 30s");
    report(&["--gpu", "3"]).refused(Status::NoSuchGpu, "no GPU 3");
    assert_eq!(report(&["--from", "1s", "--to", "3s"]).status, Some(0));
}

#[test]
fn nothing_to_draw_leaves_no_picture() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, picture) = (folder.path().join("t"), folder.path().join("p.svg"));
    small_trace(&trace);
    let (trace, picture_name) = (trace.to_str().unwrap(), picture.to_str().unwrap());
    let flame = binary::run(["flame", trace, "--kind", "oncpu", "-o", picture_name]);
    flame.refused(Status::NothingToDraw, "no CPU samples");
    assert!(!picture.exists());
}

#[test]
fn what_cannot_be_drawn_together_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, picture) = (folder.path().join("t"), folder.path().join("p"));
    small_trace(&trace);
    let (trace, picture_name) = (trace.to_str().unwrap(), picture.to_str().unwrap());
    let flame = |options: &[&str]| binary::run(["flame", trace].iter().chain(options));
    flame(&["--kind", "oncpu"]).refused(Status::Usage, "needs -o FILE");
    flame(&["--kind", "oncpu", "--format", "pprof"]).refused(Status::Usage, "needs -o FILE");
    let diff = ["--kind", "diff", "-o", picture_name];
    flame(&[&diff[..], &["--against", trace]].concat()).refused(Status::Usage, "within one trace");
    flame(&diff).refused(Status::NothingToDraw, "no time in which a GPU");
    let missing = ["--kind", "offcpu", "--folded", "--debug-dir", "/no/such/folder"];
    flame(&missing).refused(Status::CannotRead, "/no/such/folder");
    let against = ["--kind", "offcpu", "-o", picture_name, "--against", picture_name];
    flame(&against).refused(Status::CannotRead, "cannot open");
    assert!(!picture.exists());
}

#[test]
fn a_wrong_command_line() {
    for line in [&["record"][..], &["report"], &["nonsense"], &["--duration", "5s", "report", "x"]] {
        let ran = binary::run(line);
        assert_eq!(ran.status, Some(Status::Usage as i32), "{line:?}: {ran:?}");
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn a_library_named_by_an_empty_variable_is_not_named() {
    let mut command = Command::new("sh");
    command.args(["-c", "WHYIDLE_NVML= exec \"$0\" schema"]).arg(binary::path());
    let ran = binary::start_command(command).end();
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}

#[test]
fn a_closed_standard_output_is_no_failure() {
    let mut command = Command::new("sh");
    command.arg0("sh").args(["-c", "\"$0\" schema | true; \"$0\" --help | head -1"]).arg(binary::path());
    let ran = binary::start_command(command).end();
    assert_eq!(ran.stderr, "", "{ran:?}");
}
