//! User stacks against another unwinder's. Both take theirs at the same event, a thread leaving its processor, so that
//! every stack of the one has its twin of the same instant, frame by frame. All threads of a program share one
//! processor: the one that sleeps takes it from the one that computes at any instruction, not in system calls alone.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serial_test::file_serial;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Ns, Record, Stack, StackEnd, State, TargetKind};
use whyidle_tests::perf::{self, PerfFrame, PerfStack};
use whyidle_tests::privileged::{attach, leaves_out};
use whyidle_tests::stacks::{CPP, Job, PYTHON, RUST, by_id, line_of, written};

const PATIENCE: Duration = Duration::from_secs(120);
const SECONDS: u32 = 6;
/// Frames that the two must have in common.
const TOP: usize = 8;
const WANTED: f64 = 0.95;
/// Of the one program's clock reading at an event and the other's. A thread leaves its processor less often.
const APART: Ns = 100_000;
/// Twins to compare.
const ENOUGH: usize = 500;

/// A stack of each for one switch.
struct Twins<'a> {
    ours: &'a Stack,
    /// Where in which file its frames are.
    places: Vec<PerfFrame>,
    left: Ns,
    theirs: &'a PerfStack,
    preempted: bool,
}

/// How two stacks of the same instant compare. Frames are the same by address: the same function is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Comparison {
    Same,
    TheirsIsLonger,
    /// It lacks frames that ours has.
    TheirsIsShorter,
    /// From this frame on, 0 being the innermost.
    Differ(usize),
}

impl Twins<'_> {
    fn apart(&self) -> Ns {
        self.left.abs_diff(self.theirs.at)
    }

    /// Frames in common from the innermost on.
    fn common(&self) -> usize {
        // Of a caller, whichever way the call was made (a signal's was not by a call), perf names the byte before.
        let same = |i: usize, ours: &PerfFrame, theirs: &PerfFrame| {
            let before = i > 0 && ours.offset == theirs.offset + 1;
            ours.file == theirs.file && (ours.offset == theirs.offset || before)
        };
        let pairs = self.places.iter().zip(&self.theirs.frames).enumerate();
        pairs.take_while(|(i, (ours, theirs))| same(*i, ours, theirs)).count()
    }

    fn compare(&self) -> Comparison {
        let (ours, theirs) = (self.places.len(), self.theirs.frames.len());
        match self.common() {
            n if n < ours.min(theirs) => Comparison::Differ(n),
            _ if ours < theirs => Comparison::TheirsIsLonger,
            _ if ours > theirs => Comparison::TheirsIsShorter,
            _ => Comparison::Same,
        }
    }

    /// Whether the innermost frames are the same: `TOP` of them, or all of a stack that has fewer.
    fn same_top(&self) -> bool {
        let deep = |n: usize| n.min(TOP);
        let (ours, theirs) = (deep(self.places.len()), deep(self.theirs.frames.len()));
        ours == theirs && self.common() >= ours
    }
}

/// Has all threads of a process run on the last of its processors.
fn on_one_processor(pid: u32) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    for thread in threads {
        let tid = thread.expect("it lives").file_name().to_string_lossy().parse().expect("a number");
        let tid = Pid::from_raw(tid);
        let allowed = sched_getaffinity(tid).expect("it lives");
        let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).expect("it may run somewhere");
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(tid, &one).expect("a processor it may use");
    }
}

/// Until the last stacks have stopped at no object whose table is still to come. Those that are still to come may be
/// of others, who woke the program.
fn settle(tracer: &mut Tracer, records: &mut Vec<Record>) {
    let begun = Instant::now();
    let settled = |records: &[Record]| {
        let stacks = by_id(records);
        let last =
            records.iter().rev().filter_map(|r| if let Record::OffCpu(w) = r { Some(w) } else { None });
        let ends: Vec<StackEnd> =
            last.take(ENOUGH).filter_map(|w| stacks.get(&w.user_stack)).map(|s| s.end).collect();
        let missing = [StackEnd::NoTable, StackEnd::FramePointers, StackEnd::Guessed, StackEnd::NoMapping];
        ends.len() > ENOUGH / 2 && !ends.iter().any(|end| missing.contains(end))
    };
    while !settled(records) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", tracer.unwinding());
        take(tracer, records);
    }
}

fn take(tracer: &mut Tracer, records: &mut Vec<Record>) {
    tracer.drain(&mut |r| records.push(r)).expect("drain");
    tracer.tick(&mut |r| records.push(r)).expect("tick");
    std::thread::sleep(Duration::from_millis(20));
}

/// Every stack of perf's with ours of the same switch.
fn twins<'a>(records: &'a [Record], theirs: &'a [PerfStack], maps: &str) -> Vec<Twins<'a>> {
    let stacks = by_id(records);
    let mut left: HashMap<u32, BTreeMap<Ns, (u64, bool)>> = HashMap::new();
    for record in records {
        if let Record::OffCpu(w) = record
            && !w.cut_start
        {
            let stay = (w.user_stack, w.state == State::Preempted);
            left.entry(w.thread.tid).or_default().insert(w.left, stay);
        }
    }
    let twin = |theirs: &'a PerfStack| {
        let left = left.get(&theirs.tid)?;
        let near = left.range(theirs.at.saturating_sub(APART)..theirs.at + APART);
        let (left, (id, preempted)) = near.min_by_key(|(at, _)| at.abs_diff(theirs.at))?;
        let ours = stacks.get(id).unwrap_or_else(|| panic!("stack {id} was never sent"));
        let places = ours.addresses.iter().map(|a| place(maps, *a)).collect();
        Some(Twins { ours, places, left: *left, theirs, preempted: *preempted })
    };
    let mut twins: Vec<Twins<'_>> = theirs.iter().filter_map(twin).collect();
    // One of ours has one twin, the nearest: a switch of which perf alone has a stack has none.
    twins.sort_by_key(|t| (t.theirs.tid, t.left, t.apart()));
    twins.dedup_by_key(|t| (t.theirs.tid, t.left));
    twins
}

fn has_the_same_stacks(name: &str, command: &mut Command) {
    if let Some(reason) = perf::missing() {
        leaves_out(&format!("another unwinder, for {name}: {reason}"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let recorded = folder.path().join("perf.data");
    let job = Job::start(command);
    on_one_processor(job.pid());
    let mut tracer = attach(&Config { threshold_ns: 0, sample_hz: 0, ..Config::default() });
    tracer.add_process(job.pid(), TargetKind::Named).expect("a target");
    let mut records = Vec::new();
    settle(&mut tracer, &mut records);
    let mut perf = perf::record_switches(job.pid(), SECONDS, &recorded);
    while perf.try_wait().expect("its own child").is_none() {
        take(&mut tracer, &mut records);
    }
    take(&mut tracer, &mut records);
    drop(tracer);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", job.pid())).expect("it lives");
    drop(job);
    let theirs = perf::stacks(&recorded);
    let twins = twins(&records, &theirs, &maps);
    println!("{name}: {} of perf's {} stacks have one of ours", twins.len(), theirs.len());
    for preempted in [false, true] {
        let what = if preempted { "taken from its processor" } else { "waiting" };
        let those: Vec<&Twins<'_>> = twins.iter().filter(|t| t.preempted == preempted).collect();
        print(&format!("{name}, {what}"), &those);
    }
    assert!(twins.len() >= ENOUGH, "{} of {}", twins.len(), theirs.len());
    let same = twins.iter().filter(|t| t.same_top()).count();
    assert!(same as f64 >= WANTED * twins.len() as f64, "{same} of {}", twins.len());
}

/// Says how they compare, with an example of every kind of difference.
fn print(what: &str, twins: &[&Twins<'_>]) {
    let same = twins.iter().filter(|t| t.same_top()).count();
    println!("{what}: the {TOP} innermost frames are the same in {same} of {}", twins.len());
    let mut kinds: BTreeMap<(Comparison, bool), Vec<&Twins<'_>>> = BTreeMap::new();
    for twins in twins {
        let start = twins.ours.end == StackEnd::Start;
        kinds.entry((twins.compare(), start)).or_default().push(twins);
    }
    for ((kind, start), those) in kinds {
        let whole = if start { "ours reaches the start" } else { "ours does not reach the start" };
        println!("  {kind:?}: {} ({whole})", those.len());
        if (kind, start) == (Comparison::Same, true) {
            continue;
        }
        let (example, at) = (those[0], those[0].common());
        let near = |frames: &[PerfFrame]| {
            let near = frames.iter().enumerate().skip(at.saturating_sub(2)).take(5);
            near.map(|(i, f)| format!("\n      {i}: {:x} in {}", f.offset, f.file)).collect::<String>()
        };
        println!("    an example, of clock readings {} ns apart:", example.apart());
        println!("    ours, {} frames:{}", example.places.len(), near(&example.places));
        println!("    theirs, {} frames:{}", example.theirs.frames.len(), near(&example.theirs.frames));
    }
}

/// Where in its file an address lies.
fn place(maps: &str, address: u64) -> PerfFrame {
    let line = line_of(maps, address);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let start = words[0].split('-').next().and_then(hex);
    let (Some(start), Some(offset)) = (start, words.get(2).and_then(|w| hex(w))) else {
        return PerfFrame { file: "[unknown]".into(), offset: address };
    };
    PerfFrame { file: words.get(5).unwrap_or(&"").to_string(), offset: address - start + offset }
}

#[test]
#[file_serial(probes)]
fn a_cpp_program_has_the_same_stacks() {
    let folder = tempfile::tempdir().expect("a folder");
    has_the_same_stacks("C++", &mut written(folder.path(), CPP));
}

#[test]
#[file_serial(probes)]
fn a_rust_program_has_the_same_stacks() {
    let folder = tempfile::tempdir().expect("a folder");
    has_the_same_stacks("Rust", &mut written(folder.path(), RUST));
}

#[test]
#[file_serial(probes)]
fn the_systems_python_has_the_same_stacks() {
    has_the_same_stacks("Python", Command::new("/usr/bin/python3").args(["-c", PYTHON]));
}
