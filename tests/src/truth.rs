//! Python stacks against what a program writes down about itself: function and line of every frame.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Ns, PythonFunction, Record, StackId, TargetKind};

use crate::privileged::attach;

const PROGRAM: &str = include_str!("../python/truth.py");
/// Workers and interpreters have fewer threads.
const ROUNDS: [&str; 2] = ["3", "5"];
/// Of those without a Python stack, of each kind.
const SHOWN: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a thread was between two times: frames from the innermost, `line:function`.
#[derive(Debug)]
struct Truth {
    since: Ns,
    until: Ns,
    frames: Vec<String>,
}

/// A thread that was seen to wait or to run.
#[derive(Debug)]
struct Seen {
    tid: u32,
    from: Ns,
    to: Ns,
    stack: StackId,
    waited: bool,
}

struct Run {
    child: Child,
    folder: PathBuf,
}

impl Run {
    /// Begins the program and waits until it is ready to be let go.
    fn start(root: &Path, mut command: Command, work: &str) -> Self {
        let folder = root.join("tmp/whyidle-truth");
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("truth.py"), PROGRAM).expect("the program");
        let inside = Path::new("/tmp/whyidle-truth");
        command
            .arg(inside.join("truth.py"))
            .arg(inside.join("log"))
            .args([ROUNDS[usize::from(work != "threads")], work]);
        command.env("PYTHONIOENCODING", "utf-8").env("PYTHONUTF8", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python");
        let mut told = [0; 6];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut told).expect("it is ready");
        assert_eq!(&told, b"ready\n");
        Self { child, folder }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it lives");
    }

    /// The process and those it began: what puts it into a system of its own stands before it.
    fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.child.id()];
        let mut at = 0;
        while let Some(pid) = all.get(at) {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|c| c.parse::<u32>().ok()));
            at += 1;
        }
        all
    }

    fn truth(&self) -> HashMap<u32, Vec<Truth>> {
        let mut truth: HashMap<u32, Vec<Truth>> = HashMap::new();
        for file in fs::read_dir(&self.folder).expect("its folder").flatten() {
            if !file.file_name().to_string_lossy().starts_with("log") {
                continue;
            }
            let text = fs::read_to_string(file.path()).expect("it wrote where it was");
            for line in text.lines() {
                let mut words = line.split(' ');
                let mut number = || words.next().and_then(|w| w.parse::<u64>().ok()).expect("a number");
                let (tid, since, until) = (number(), number(), number());
                let frames = words.map(str::to_owned).collect();
                let tid = u32::try_from(tid).expect("a thread id");
                truth.entry(tid).or_default().push(Truth { since, until, frames });
            }
        }
        truth
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.child.kill().expect("its own child");
        self.child.wait().expect("its own child");
    }
}

#[derive(Default)]
struct Records {
    seen: Vec<Seen>,
    /// The Python stack of each stack.
    stacks: HashMap<StackId, StackId>,
    python: HashMap<StackId, Vec<PythonFunction>>,
    /// As the threads know themselves.
    own_ids: HashMap<u32, u32>,
    others: Vec<Record>,
}

impl Records {
    fn take(&mut self, record: Record) {
        match record {
            Record::OffCpu(off) if !off.cut_start && !off.cut_end => {
                let (tid, from, to) = (off.thread.tid, off.left, off.ran);
                self.seen.push(Seen { tid, from, to, stack: off.user_stack, waited: true });
            }
            Record::Sample(sample) => {
                let (tid, at) = (sample.thread.tid, sample.at);
                self.seen.push(Seen { tid, from: at, to: at, stack: sample.user_stack, waited: false });
            }
            Record::Stack(stack) => drop(self.stacks.insert(stack.id, stack.python)),
            Record::PythonStack(stack) => drop(self.python.insert(stack.id, stack.functions)),
            Record::Thread(thread) => {
                let (pid, tid) = (thread.pid, thread.key.tid);
                let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
                let own = status.ok().and_then(|status| {
                    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.to_owned();
                    ids.split_ascii_whitespace().next_back()?.parse().ok()
                });
                // Told of again when it is gone, it stays what it was.
                match own {
                    Some(own) => drop(self.own_ids.insert(tid, own)),
                    None => drop(self.own_ids.entry(tid).or_insert(tid)),
                }
            }
            Record::Loss(_) | Record::Probe(_) => self.others.push(record),
            _ => {}
        }
    }

    fn functions(&self, seen: &Seen) -> Option<&[PythonFunction]> {
        self.python.get(self.stacks.get(&seen.stack)?).map(Vec::as_slice)
    }
}

fn record(run: &mut Run, mut tracer: Tracer) -> Records {
    let mut records = Records::default();
    for pid in run.processes() {
        tracer.add_process(pid, TargetKind::Named).expect("a target");
    }
    // Where its interpreter is becomes known before it goes on.
    for _ in 0..2 {
        tracer.drain(&mut |r| records.take(r)).expect("drain");
        tracer.tick(&mut |r| records.take(r)).expect("tick");
    }
    run.go();
    let begun = Instant::now();
    let log = run.folder.join("log");
    while !log.exists() {
        let ended = run.child.try_wait().expect("its own child");
        assert!(ended.is_none() && begun.elapsed() < PATIENCE, "it did not come to its end: {ended:?}");
        tracer.wait(Duration::from_millis(150)).expect("wait");
        tracer.drain(&mut |r| records.take(r)).expect("drain");
        tracer.tick(&mut |r| records.take(r)).expect("tick");
    }
    drop(tracer.finish(&mut |r| records.take(r)).expect("finish"));
    let mut told = [0; 5];
    run.child.stdout.as_mut().expect("a pipe").read_exact(&mut told).expect("it is done");
    records
}

/// How many of what was seen the program told of; how many of them were right, lacked only names of functions that
/// were gone, or had no Python stack.
#[derive(Debug, Default, Clone, Copy)]
pub struct Score {
    pub told: u32,
    pub right: u32,
    pub unnamed: u32,
    pub none: u32,
}

/// What became of one run.
#[derive(Debug)]
pub struct Outcome {
    /// By whether it was a wait.
    pub scores: BTreeMap<bool, Score>,
    pub invented: BTreeSet<String>,
    pub others: Vec<Record>,
}

impl Outcome {
    /// Runs the program by `command`, begun in the system at `root`, with its threads at `work`.
    ///
    /// # Panics
    /// Whatever prevents it.
    #[must_use]
    pub fn of(root: &Path, command: Command, work: &str) -> Self {
        let mut run = Run::start(root, command, work);
        let tracer = attach(&Config { sample_hz: 199, threshold_ns: 100_000, ..Config::default() });
        let records = record(&mut run, tracer);
        let scores = judge(&records, &run.truth());
        let invented = invented(root, &records);
        Self { scores, invented, others: records.others }
    }

    /// In how far fewer than 98 of 100 stacks are right, or anything was invented.
    #[must_use]
    pub fn failures(&self, name: &str) -> Vec<String> {
        self.failures_with(name, 98)
    }

    /// Likewise where only so many of 100 have to be right and have all their names; of those that have any Python
    /// functions, 98 of 100 have to be right in what they have.
    #[must_use]
    pub fn failures_with(&self, name: &str, named: u32) -> Vec<String> {
        println!("{name}: {:?} invented {:?} {:?}", self.scores, self.invented, self.others);
        let mut failures = Vec::new();
        for waited in [false, true] {
            let score = self.scores.get(&waited).copied().unwrap_or_default();
            let Score { told, right, unnamed, none } = score;
            if told < 20 || right * 100 < told * named || (right + unnamed) * 100 < (told - none) * 98 {
                failures.push(format!("{name}: waits: {waited}: {score:?}"));
            }
        }
        if !self.invented.is_empty() {
            failures.push(format!("{name}: invented: {:?}", self.invented));
        }
        failures
    }
}

fn shown(functions: &[PythonFunction]) -> Vec<String> {
    let one = |f: &PythonFunction| format!("{}:{}", f.line.unwrap_or(0), f.name.replace(' ', "_"));
    functions.iter().map(one).collect()
}

fn judge(records: &Records, truth: &HashMap<u32, Vec<Truth>>) -> BTreeMap<bool, Score> {
    let mut scores: BTreeMap<bool, Score> = BTreeMap::new();
    for seen in &records.seen {
        let tid = records.own_ids.get(&seen.tid).copied().unwrap_or(seen.tid);
        // The thread may have told it from more than one interpreter, the innermost first.
        let all = truth.get(&tid).map(Vec::as_slice).unwrap_or_default().iter();
        let told: Vec<_> = all.filter(|truth| truth.since <= seen.from && seen.to <= truth.until).collect();
        let Some(first) = told.first() else { continue };
        let score = scores.entry(seen.waited).or_default();
        score.told += 1;
        let Some(functions) = records.functions(seen) else {
            score.none += 1;
            if score.none <= SHOWN {
                let python = records.stacks.get(&seen.stack);
                println!("none ({python:?}): {seen:?}\n  told: {}", first.frames.join(" "));
            }
            continue;
        };
        let found = shown(functions);
        let is_unnamed = |told: &Truth| {
            let pairs = || found.iter().zip(&told.frames);
            found.len() == told.frames.len() && pairs().all(|(found, told)| found == "0:" || found == told)
        };
        if told.iter().any(|told| found == told.frames) {
            score.right += 1;
        } else {
            score.unnamed += u32::from(told.iter().any(|told| is_unnamed(told)));
            println!("wrong ({}): {}\n  told: {}", seen.waited, found.join(" "), first.frames.join(" "));
        }
    }
    scores
}

/// A file of the system at `root`, in which links lead where they do there.
fn text_of(root: &Path, path: &str) -> Option<String> {
    let path = root.join(path.strip_prefix('/')?);
    let path = match fs::read_link(&path) {
        Ok(to) if to.is_absolute() => root.join(to.strip_prefix("/").ok()?),
        _ => path,
    };
    fs::read_to_string(path).ok()
}

/// Functions that are in no file: neither in the program nor in the standard library.
fn invented(root: &Path, records: &Records) -> BTreeSet<String> {
    let functions = records.python.values().flatten();
    let mut texts: HashMap<&str, Option<String>> = HashMap::new();
    let mut invented = BTreeSet::new();
    for function in functions.filter(|f| !f.name.is_empty()) {
        let text = texts.entry(&function.file).or_insert_with(|| text_of(root, &function.file));
        let last = function.name.rsplit('.').next().unwrap_or_default();
        let there = match text {
            Some(text) => {
                let named = last.starts_with('<')
                    || ["def", "class"].iter().any(|kind| text.contains(&format!("{kind} {last}")));
                let lines = text.lines().count();
                named && function.line.is_none_or(|line| line as usize <= lines)
            }
            // What `multiprocessing` gives its workers by `-c`, and what an interpreter is told to run.
            None if ["<string>", "<script>"].contains(&function.file.as_str()) => last == "<module>",
            None if function.file == "<made>" => {
                ["first", "second", "third", "<module>"].contains(&last)
                    && function.line.is_none_or(|l| l < 7)
            }
            None => function.file.starts_with("<frozen "),
        };
        if !there {
            invented.insert(format!("{function:?}"));
        }
    }
    invented
}
