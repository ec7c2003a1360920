//! Interpreters that are not named for what they are: in a program of another name, in a library of another name; and
//! those that are not known.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{ProbeStatus, Record, TargetKind};
use whyidle_tests::privileged::{attach, leaves_out};
use whyidle_tests::python::{Python, interpreters};
use whyidle_tests::truth::Outcome;

const TRAINER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trainer"));
const OTHER_PYTHON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/other-python"));
/// Empty where the build found no Python to link with.
const EMBEDDING_SHARED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/embedding-shared"));
const EMBEDDING_STATIC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/embedding-static"));

/// What the loader of programs exits with.
const NO_LIBRARY: i32 = 127;

fn program(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    path
}

/// Those of this system, each with its own files: the prefix, the program, and the library it is linked with.
fn here() -> impl Iterator<Item = (Python, [PathBuf; 3])> {
    let of = |python: Python| {
        let ask = "import sys, sysconfig as s; print(sys.base_prefix); print(sys.executable); \
                   print(s.get_config_var('LIBDIR') + '/' + s.get_config_var('INSTSONAME'))";
        let told = python.command().args(["-I", "-c", ask]).output().expect("Python");
        let told = String::from_utf8(told.stdout).expect("paths");
        let paths: Vec<PathBuf> = told.lines().map(PathBuf::from).collect();
        (python, paths.try_into().expect("three paths"))
    };
    interpreters().into_iter().filter(|python| python.root == Path::new("/")).map(of)
}

#[test]
#[file_serial(probes)]
fn a_program_of_another_name_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut failures = Vec::new();
    for (python, [prefix, program, _]) in here() {
        let copy = folder.path().join("trainer");
        fs::copy(program.canonicalize().expect("its program"), &copy).expect("a copy");
        let mut command = Command::new(&copy);
        command.env("PYTHONHOME", prefix);
        failures
            .extend(Outcome::of(Path::new("/"), command, "threads").failures(&format!("trainer: {python}")));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[file_serial(probes)]
fn a_library_of_another_name_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let trainer = program(folder.path(), "trainer", TRAINER);
    let mut failures = Vec::new();
    let (mut tried, library) = (0, folder.path().join("libmodel.so"));
    for (python, [prefix, _, own]) in here() {
        if own.extension().is_none_or(|extension| extension != "0") || fs::copy(&own, &library).is_err() {
            continue;
        }
        let mut command = Command::new(&trainer);
        command.arg(&library).env("PYTHONHOME", prefix);
        failures
            .extend(Outcome::of(Path::new("/"), command, "threads").failures(&format!("library: {python}")));
        tried += 1;
    }
    if tried == 0 {
        leaves_out("a libpython: none is installed");
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[file_serial(probes)]
fn a_program_that_is_linked_with_python_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut failures = Vec::new();
    for (name, bytes) in [("shared", EMBEDDING_SHARED), ("static", EMBEDDING_STATIC)] {
        if bytes.is_empty() {
            leaves_out("python3-config, Python.h and libpython.a (libpython3-dev) when the tests were built");
            continue;
        }
        let embedding = program(folder.path(), "embedding", bytes);
        let tried = Command::new(&embedding).arg("/dev/null").output().expect("a program");
        if tried.status.code() == Some(NO_LIBRARY) {
            leaves_out(&format!("what it is linked with: {}", String::from_utf8_lossy(&tried.stderr).trim()));
            continue;
        }
        let command = Command::new(embedding);
        failures.extend(Outcome::of(Path::new("/"), command, "threads").failures(name));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

struct Other(Child);

impl Other {
    fn start(path: &Path, minor: &str, free_threaded: &str) -> Self {
        let mut command = Command::new(path);
        let mut child =
            command.args([minor, free_threaded]).stdout(Stdio::piped()).spawn().expect("a program");
        let mut told = [0; 6];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut told).expect("it is ready");
        Self(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().expect("its own child");
        self.0.wait().expect("its own child");
    }
}

#[test]
#[file_serial(probes)]
fn each_kind_that_is_not_known_is_said_once_with_what_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = program(folder.path(), "other", OTHER_PYTHON);
    let kinds = [("63", "0"), ("63", "0"), ("e", "1"), ("63", "1")];
    let others = kinds.map(|(minor, free_threaded)| Other::start(&path, minor, free_threaded));
    let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    for other in &others {
        tracer.add_process(other.0.id(), TargetKind::Named).expect("a target");
    }
    let mut said = Vec::new();
    let mut take = |record| {
        if let Record::Probe(ProbeStatus { name, attached, reason }) = record
            && name == "python"
        {
            said.push((attached, reason));
        }
    };
    for _ in 0..4 {
        tracer.drain(&mut take).expect("drain");
        tracer.tick(&mut take).expect("tick");
    }
    drop(tracer.finish(&mut take).expect("finish"));
    said.sort();
    let expected = ["CPython 3.99", "free-threaded CPython 3.14", "free-threaded CPython 3.99"].map(|kind| {
        let reason = format!(
            "{kind} keeps its frames in a way that is not known here: stacks of its threads show native functions \
             only, not Python's"
        );
        (false, reason)
    });
    assert_eq!(said, expected);
}
