//! User stacks of code without frame pointers: they reach the start of their thread, and those that do not say
//! where they stopped.

use std::arch::global_asm;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Record, StackEnd, TargetKind};
use whyidle_tests::privileged::{Child, attach};
use whyidle_tests::stacks::{CPP, Ends, Job, PYTHON, RUST, by_id, written};

const PATIENCE: Duration = Duration::from_secs(120);
/// Samples, and waits, to look at.
const ENOUGH: usize = 200;

/// Runs until there is enough to look at, of `waits` too if asked for, beginning with what comes once all tables are
/// there. Of samples and of waits.
fn ends(tracer: &mut Tracer, pid: u32, waits: bool) -> [Ends; 2] {
    let begun = Instant::now();
    let mut records = Vec::new();
    tracer.add_process(pid, TargetKind::Named).expect("a target");
    let mut settled = None;
    loop {
        assert!(begun.elapsed() < PATIENCE, "{} records, {:?}", records.len(), tracer.unwinding());
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
        let state = tracer.unwinding();
        if settled.is_none() && state.pending == 0 && state.tables > 2 {
            println!("after {:?}: {state:?}", begun.elapsed());
            settled = Some(records.len());
        }
        if let Some(from) = settled {
            let count = |wanted: fn(&Record) -> bool| records[from..].iter().filter(|r| wanted(r)).count();
            if count(|r| matches!(r, Record::Sample(_))) >= ENOUGH
                && (!waits || count(|r| matches!(r, Record::OffCpu(_))) >= ENOUGH)
            {
                return judge(&records, from, pid);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn judge(records: &[Record], from: usize, pid: u32) -> [Ends; 2] {
    let stacks = by_id(records);
    let mut ends = [Ends::default(), Ends::default()];
    for record in &records[from..] {
        let (id, into) = match record {
            Record::Sample(s) if s.pid == pid => (s.user_stack, 0),
            // One that began before is named by the stack it had then; by none where it was not a target then.
            Record::OffCpu(w) if w.pid == pid && !w.cut_start => (w.user_stack, 1),
            _ => continue,
        };
        if id == 0 {
            println!("without a stack: {record:?}");
            ends[into].count(None);
            continue;
        }
        let Some(stack) = stacks.get(&id) else { panic!("stack {id} was never sent") };
        ends[into].count(Some(stack));
    }
    ends
}

fn reach_the_start(command: &mut Command, wanted: f64, deep: usize) {
    judge_job(&Job::start(command), wanted, deep);
}

fn judge_job(job: &Job, wanted: f64, deep: usize) {
    let mut tracer = attach(&Config { sample_hz: 199, ..Config::default() });
    let [samples, waits] = ends(&mut tracer, job.pid(), true);
    println!(
        "samples {:?}, deepest {}; waits {:?}, {}",
        samples.by, samples.deepest, waits.by, waits.deepest
    );
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", job.pid())).expect("it lives");
    let maps = HashMap::from([(job.pid(), maps)]);
    samples.print_incomplete(&maps);
    waits.print_incomplete(&maps);
    assert!(samples.share() >= wanted, "samples: {:?}", samples.by);
    assert!(waits.share() >= wanted, "waits: {:?}", waits.by);
    let deepest = samples.deepest.max(waits.deepest);
    assert!(deepest >= deep, "{deepest}");
}

#[test]
#[file_serial(probes)]
fn stacks_of_a_cpp_program_reach_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    reach_the_start(&mut written(folder.path(), CPP), 0.99, 22);
}

#[test]
#[file_serial(probes)]
fn stacks_of_a_rust_program_reach_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    reach_the_start(&mut written(folder.path(), RUST), 0.99, 22);
}

#[test]
#[file_serial(probes)]
fn stacks_of_a_python_program_reach_the_start() {
    let mut python = Command::new("/usr/bin/python3");
    reach_the_start(python.args(["-c", PYTHON]), 0.98, 5);
}

/// Probes a function's return, as the tracer does where it must know when a driver call ends.
struct Probed(std::path::PathBuf);

impl Probed {
    fn new(program: &Path, function: &str) -> Self {
        let symbols = Command::new("nm").arg(program).output().expect("nm");
        let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
        let line = symbols.lines().find(|l| l.ends_with(&format!(" {function}"))).expect("the function");
        // Linked to address 0, code lies in the file where it lies in memory.
        let offset = line.split(' ').next().expect("an address");
        let tracing = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(Path::new);
        let tracing =
            tracing.into_iter().find(|t| t.join("uprobe_events").exists()).expect("tracefs is mounted");
        let name = format!("whyidle_{}", std::process::id());
        let add = format!("r:{name}/back {}:0x{offset}", program.display());
        std::fs::write(tracing.join("uprobe_events"), add).expect("a probe");
        let enable = tracing.join("events").join(&name).join("enable");
        std::fs::write(&enable, "1").expect("it is enabled");
        Self(enable)
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        let group =
            self.0.parent().and_then(Path::file_name).expect("its group").to_string_lossy().into_owned();
        let events = self.0.ancestors().nth(3).expect("tracefs").join("uprobe_events");
        std::fs::write(&self.0, "0").expect("it is disabled");
        let mut file = std::fs::File::options().append(true).open(events).expect("the list");
        std::io::Write::write_all(&mut file, format!("-:{group}/back").as_bytes()).expect("it is gone");
    }
}

#[test]
#[file_serial(probes)]
fn probed_returns_are_seen_through() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = written(folder.path(), CPP);
    let _probed = Probed::new(&folder.path().join("program"), "nap");
    // Of a thread in the trampoline itself, which every return passes, it is not known where it returns to.
    judge_job(&Job::start(&mut program), 0.95, 22);
}

// What the rule of the first says of its frame is not so: it takes words that lie there for those of a frame of the
// second, which never ran, and the last of them for where that returns to.
global_asm!(
    ".globl whyidle_lies",
    "whyidle_lies:",
    ".cfi_startproc",
    "pushq $0",
    "leaq 1 + whyidle_never_ran(%rip), %rax",
    "pushq %rax",
    "pushq %rax",
    "pushq %rax",
    "subq $40, %rsp",
    ".cfi_def_cfa_offset 48",
    "2: pause",
    "jmp 2b",
    ".cfi_endproc",
    "whyidle_never_ran:",
    ".cfi_startproc",
    "nop",
    "nop",
    "ret",
    ".cfi_endproc",
    options(att_syntax)
);

unsafe extern "C" {
    fn whyidle_lies() -> !;
}

#[test]
#[file_serial(probes)]
fn a_walk_that_a_wrong_rule_leads_nowhere_is_not_taken_for_a_whole_one() {
    let mut tracer = attach(&Config { sample_hz: 199, ..Config::default() });
    // SAFETY: it only spins.
    let mut child = Child::fork(|| unsafe { whyidle_lies() });
    child.go();
    let [samples, _] = ends(&mut tracer, child.pid, false);
    println!("{:?}", samples.by);
    let nowhere = samples.by.get(&StackEnd::NoRule).copied().unwrap_or(0);
    assert!(nowhere * 100 >= samples.all() * 95, "{:?}", samples.by);
    assert!(samples.incomplete.iter().any(|s| s.addresses.len() == 4), "{:x?}", samples.incomplete);
}

/// The trampoline comes with the first return that is probed, and nobody says so: the walk itself has to know it.
#[test]
#[file_serial(probes)]
fn the_first_probed_returns_are_seen_through_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = written(folder.path(), CPP);
    let job = Job::start(&mut program);
    let mut tracer = attach(&Config { sample_hz: 199, ..Config::default() });
    // All its tables are there.
    ends(&mut tracer, job.pid(), true);
    let _probed = Probed::new(&folder.path().join("program"), "nap");
    let mut records = Vec::new();
    let waits = |records: &[Record]| records.iter().filter(|r| matches!(r, Record::OffCpu(_))).count();
    let begun = Instant::now();
    while waits(&records) < ENOUGH {
        assert!(begun.elapsed() < PATIENCE, "{} records", records.len());
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        std::thread::sleep(Duration::from_millis(1));
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", job.pid())).expect("it lives");
    assert!(maps.contains("[uprobes]"), "no return was probed");
    let astray = |r: &Record| match r {
        Record::Stack(s) if s.end == StackEnd::NoMapping => Some(s.id),
        _ => None,
    };
    let ids: Vec<u64> = records.iter().filter_map(astray).collect();
    let cut = |r: &&Record| matches!(r, Record::OffCpu(o) if ids.contains(&o.user_stack));
    // Who is caught inside the trampoline's own system call may have registers that are half the caller's.
    let cut = records.iter().filter(cut).count();
    assert!(cut * 20 <= waits(&records), "{cut} of {}", waits(&records));
}
