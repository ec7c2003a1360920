//! Where Python threads are: two functions blocking in the same builtin at the same depth are told apart.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::TargetKind;
use whyidle_tests::privileged::attach;
use whyidle_tests::python::{Python, interpreters};

const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that goes from one function to the other with every byte it is sent, and says which it enters.
const SCRIPT: &str = "
import os, threading
def first():
    os.write(1, b'1')
    return os.read(0, 1)
def second():
    os.write(1, b'2')
    return os.read(0, 1)
def work():
    while first() and second():
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
";

struct Job {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Job {
    fn start(python: &Python) -> Self {
        let mut command = python.command();
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, to, from }
    }

    fn enters(&mut self) -> u8 {
        let mut function = [0];
        self.from.read_exact(&mut function).expect("it says where it is");
        function[0]
    }

    /// The thread that blocks in `read`.
    fn reader(&self) -> u32 {
        let begun = Instant::now();
        loop {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it lives");
            let read = tasks.flatten().find(|task| {
                let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
                call.starts_with(&format!("{} 0x0 ", libc::SYS_read))
            });
            if let Some(task) = read {
                return task.file_name().to_str().and_then(|t| t.parse().ok()).expect("a thread id");
            }
            assert!(begun.elapsed() < PATIENCE, "it never read");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the thread go on to the next function. Where it then blocks, as the kernel side sees it.
    fn next(&mut self, tracer: &mut Tracer, tid: u32) -> (u8, u64) {
        self.to.write_all(b"x").expect("it lives");
        let function = self.enters();
        assert_eq!(self.reader(), tid);
        tracer.drain(&mut |_| {}).expect("drain");
        tracer.tick(&mut |_| {}).expect("tick");
        (function, tracer.python_place(tid).expect("a thread that was seen to switch"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.child.kill().expect("its own child");
        self.child.wait().expect("its own child");
    }
}

#[test]
#[file_serial(probes)]
fn functions_that_block_in_the_same_builtin_are_told_apart() {
    // Those of systems of their own begin behind a process that puts them there.
    for interpreter in interpreters().into_iter().filter(|python| python.root == Path::new("/")) {
        println!("{}", interpreter.program.display());
        let mut python = Job::start(&interpreter);
        assert_eq!(python.enters(), b'1');
        let tid = python.reader();
        assert_ne!(tid, python.child.id(), "a thread of its own");
        let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
        tracer.add_process(python.child.id(), TargetKind::Named).expect("a target");
        tracer.drain(&mut |_| {}).expect("drain");
        tracer.tick(&mut |_| {}).expect("tick");
        // A loop's first round may be compiled apart from the others.
        let places: Vec<(u8, u64)> = (0..8).map(|_| python.next(&mut tracer, tid)).skip(2).collect();
        let of = |function: u8| places.iter().filter(move |(f, _)| *f == function).map(|(_, p)| *p);
        let (first, second) = (places[1].1, places[0].1);
        assert!(of(b'1').all(|p| p == first) && of(b'2').all(|p| p == second), "{places:x?}");
        assert!(first != second && first != 0 && second != 0, "{places:x?}");
        assert_eq!((of(b'1').count(), of(b'2').count()), (3, 3));
    }
}

#[test]
#[file_serial(probes)]
fn a_thread_without_python_has_no_place() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
    let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    tracer.add_process(child.id(), TargetKind::Named).expect("a target");
    let (mut to, mut from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut byte = [0];
    while tracer.python_place(child.id()).is_none() {
        to.write_all(b"x").and_then(|()| from.read_exact(&mut byte)).expect("it lives");
        tracer.tick(&mut |_| {}).expect("tick");
    }
    assert_eq!(tracer.python_place(child.id()), Some(0));
    drop(to);
    child.wait().expect("its own child");
}
