//! User stacks of the demo's training job and of numerical work beside it: how many reach the start of their thread,
//! once there are the tables of what the job has mapped.

use std::collections::{HashMap, HashSet};
use std::ops::RangeFrom;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Record, StackEnd, State, TargetKind, ThreadKey};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::packages::{environment, has};
use whyidle_tests::privileged::{attach, leaves_out};
use whyidle_tests::python::interpreters;
use whyidle_tests::stacks::{Ends, Job, by_id};
use whyidle_tests::training::{Training, python};

const NUMERIC: &str = include_str!("../python/numeric.py");
const WATCHED: Duration = Duration::from_secs(10);
/// Records to tell by that the job's tables are there.
const RECENT: usize = 1500;
const WANTED: f64 = 0.98;
const PATIENCE: Duration = Duration::from_secs(240);
/// Samples, and waits, to judge by.
const ENOUGH: usize = 200;

/// The threads of the job; not those that only woke it.
fn own(records: &[Record]) -> HashSet<ThreadKey> {
    let threads = records.iter().filter_map(|r| if let Record::Thread(t) = r { Some(t) } else { None });
    let own =
        threads.filter(|t| matches!(t.kind, TargetKind::Named | TargetKind::Inherited) && !t.kernel_thread);
    own.map(|t| t.key).collect()
}

#[derive(Default)]
struct Judged {
    samples: Ends,
    waits: Ends,
    /// What nobody could have walked: nothing runs another thread's stack.
    under_way: usize,
    newborn: usize,
}

/// Stacks of a part of the records. They are sent once, before the first that names them.
fn judge(records: &[Record], part: RangeFrom<usize>) -> Judged {
    let (stacks, own) = (by_id(records), own(records));
    let mut judged = Judged::default();
    for record in &records[part] {
        match record {
            Record::Sample(s) if own.contains(&s.thread) => {
                judged.samples.count(stacks.get(&s.user_stack).copied());
            }
            Record::OffCpu(w) if own.contains(&w.thread) && w.cut_start => judged.under_way += 1,
            Record::OffCpu(w) if own.contains(&w.thread) => {
                // Before its first instruction a thread has no stack.
                if w.user_stack == 0 && w.state == State::Preempted {
                    judged.newborn += 1;
                } else {
                    judged.waits.count(stacks.get(&w.user_stack).copied());
                }
            }
            _ => {}
        }
    }
    judged
}

/// Maps of the processes and of those they began.
fn maps(roots: &[u32]) -> HashMap<u32, String> {
    let mut all = roots.to_vec();
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.extend(children.split_ascii_whitespace().filter_map(|c| c.parse::<u32>().ok()));
        at += 1;
    }
    all.into_iter()
        .filter_map(|pid| Some((pid, std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?)))
        .collect()
}

/// Takes records until `done` says so of what there is.
fn collect(tracer: &mut Tracer, mut done: impl FnMut(&Tracer, &[Record]) -> bool) -> Vec<Record> {
    let begun = Instant::now();
    let mut records = Vec::new();
    while !done(tracer, &records) {
        assert!(begun.elapsed() < PATIENCE, "{} records, {:?}", records.len(), tracer.unwinding());
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
        std::thread::sleep(Duration::from_millis(50));
    }
    records
}

/// Whether there is nothing still to come that the job's last stacks lacked. Not all tables that are still to come are
/// the job's: there are those of all who wake it.
fn settled(tracer: &Tracer, records: &[Record]) -> bool {
    let judged = judge(records, records.len().saturating_sub(RECENT)..);
    let missing = |ends: &Ends| {
        let missing = [StackEnd::NoTable, StackEnd::FramePointers, StackEnd::Guessed, StackEnd::NoMapping];
        missing.iter().any(|end| ends.by.contains_key(end))
    };
    let none_missing = records.len() >= RECENT && !missing(&judged.samples) && !missing(&judged.waits);
    none_missing || (tracer.unwinding().tables > 2 && tracer.unwinding().pending == 0)
}

/// Watches the job under the interpreter, and numerical work under the other beside it.
fn reaches_the_start(name: &str, python: &Path, numeric: Option<&Path>) {
    let device = SimulatedDevice::new(&[]);
    // Images that leave the page cache again: the loaders also wait for the disk.
    let mut training = Training::start(python, &device, &["--step-ms", "20", "--launches", "10", "--cold"]);
    training.wait_ready();
    let numeric = numeric.map(|python| {
        let mut command = Command::new(python);
        // A worker complains when its parent is killed.
        Job::start(command.args(["-c", NUMERIC]).stderr(Stdio::null()))
    });
    let pids: Vec<u32> = std::iter::once(training.child.id()).chain(numeric.as_ref().map(Job::pid)).collect();
    let maps = maps(&pids);
    let mut tracer = attach(&Config { sample_hz: 199, ..Config::default() });
    for pid in maps.keys() {
        tracer.add_process(*pid, TargetKind::Named).expect("a target");
    }
    let begun = Instant::now();
    let mut looked = Instant::now();
    let mut records = collect(&mut tracer, |tracer, records| {
        looked.elapsed() > Duration::from_secs(1) && {
            looked = Instant::now();
            settled(tracer, records)
        }
    });
    println!("{name}: tables after {:?}: {:?}", begun.elapsed(), tracer.unwinding());
    let (from, end) = (records.len(), Instant::now() + WATCHED);
    records.extend(collect(&mut tracer, |_, _| Instant::now() > end));
    let judged = judge(&records, from..);
    for (what, ends) in [("samples", &judged.samples), ("waits", &judged.waits)] {
        println!("{name}: {what} {:.4} of {}: {:?}, none {}", ends.share(), ends.all(), ends.by, ends.none);
        ends.print_incomplete(&maps);
    }
    println!("{name}: {} waits under way at attach, {} before a first run", judged.under_way, judged.newborn);
    println!("{name}: {:?}", tracer.unwinding());
    for ends in [&judged.samples, &judged.waits] {
        assert!(ends.all() >= ENOUGH && ends.share() >= WANTED, "{}: {:?}", ends.share(), ends.by);
    }
}

/// An environment with what the job needs, in the build's own folder.
fn prepared(name: &str, python: &Path) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("packages-{name}"));
    environment(python, &folder, &["pillow", "numpy"], &["PIL.Image", "numpy"])
        .inspect_err(|lack| leaves_out(lack))
        .ok()
}

#[test]
#[file_serial(probes)]
fn stacks_of_the_job_on_the_systems_python_reach_the_start() {
    let python = python();
    if !has(&python, &["PIL.Image"]) {
        leaves_out("the demo's job: no Pillow (python3-pil)");
        return;
    }
    let own = has(&python, &["numpy"]).then(|| python.clone());
    reaches_the_start("system", &python, own.or_else(|| prepared("system", &python)).as_deref());
}

#[test]
#[file_serial(probes)]
fn stacks_of_the_job_on_another_python_reach_the_start() {
    let all = interpreters();
    let others = all.iter().filter(|p| p.root == Path::new("/") && p.program != python() && !p.free_threaded);
    let mut newest =
        others.rev().filter_map(|p| Some((p.minor, prepared(&format!("3.{}", p.minor), &p.program)?)));
    match newest.next() {
        Some((minor, python)) => reaches_the_start(&format!("Python 3.{minor}"), &python, Some(&python)),
        None => leaves_out("the demo's job on another Python than the system's, with Pillow and numpy"),
    }
}
