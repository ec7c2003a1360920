//! Processes that become another program, or end, while they are watched: what is known of them may be missing, but
//! none of it is another program's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serial_test::file_serial;
use whyidle_tests::binary;

/// The functions they nap in, and how many of them stand in a stack.
const PROGRAMS: [(&str, &[u8], usize); 2] = [
    ("alpha_nap", include_bytes!(concat!(env!("OUT_DIR"), "/alpha")), 3),
    ("beta_nap", include_bytes!(concat!(env!("OUT_DIR"), "/beta")), 6),
];

/// A process that runs until it is dropped.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        self.0.kill().expect("its own child");
        self.0.wait().expect("its own child");
    }
}

fn programs(folder: &Path) -> [PathBuf; 2] {
    PROGRAMS.map(|(name, program, _)| {
        let path = folder.join(name.trim_end_matches("_nap"));
        fs::write(&path, program).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its own file");
        path
    })
}

/// Blocked time by stack, as folded lines, of what a process does for three seconds.
fn folded(folder: &Path, job: &Job) -> String {
    let trace = folder.join("t.whyidle");
    let trace = trace.to_str().expect("UTF-8");
    let pid = job.0.id().to_string();
    let ran = binary::run(["record", "--pid", &pid, "--duration", "3s", "-o", trace]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let drawn = binary::run(["flame", trace, "--kind", "offcpu", "--folded"]);
    assert_eq!(drawn.status, Some(0), "{drawn:?}");
    drawn.stdout
}

/// Stacks name functions of one program only, whole ones as many as that one has.
fn judge(folded: &str) {
    let mut named = [0_u64; 2];
    let mut naps = 0;
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        let weight: u64 = weight.parse().expect("a number");
        if line.contains("nanosleep") {
            naps += weight;
        }
        let frames: Vec<&str> = stack.split(';').collect();
        let counts = PROGRAMS.map(|(name, ..)| frames.iter().filter(|f| **f == name).count());
        assert!(counts.contains(&0), "two programs in one stack: {line}");
        for (i, (_, _, depth)) in PROGRAMS.iter().enumerate() {
            let whole = frames.contains(&"_start");
            assert!(if whole { [0, *depth].contains(&counts[i]) } else { counts[i] <= *depth }, "{line}");
            named[i] += if counts[i] > 0 { weight } else { 0 };
        }
    }
    println!("of {naps} ns in naps {named:?} have their functions' names");
    assert!(named.iter().all(|ns| *ns > 0), "{named:?} of {naps}");
}

#[test]
#[file_serial(probes)]
fn a_process_that_becomes_another_program_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = programs(folder.path());
    let job = Job(Command::new(first).arg(second).spawn().expect("it starts"));
    judge(&folded(folder.path(), &job));
}

#[test]
#[file_serial(probes)]
fn processes_that_end_soon() {
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = programs(folder.path());
    let script = format!("while :; do '{}'; '{}'; done", first.display(), second.display());
    let job = Job(Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().expect("sh"));
    judge(&folded(folder.path(), &job));
}
