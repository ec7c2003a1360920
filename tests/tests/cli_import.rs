//! `whyidle import` and `whyidle eval` as a user runs them.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use whyidle::cli::exit::Status;
use whyidle::trace::{Reader, Record};
use whyidle_tests::binary::{self, Ran};

/// Writes a recording of about `megabytes` as text: steps of an operator, a launch and its kernel on three
/// threads, with pauses. Without the device's events and calls if `processor_only`.
fn recording(to: impl Write, megabytes: usize, processor_only: bool) {
    let mut to = BufWriter::new(to);
    let mut written = to.write(b"{\"schemaVersion\":1,\"traceEvents\":[\n").unwrap();
    let mut at = 1_700_000_000_000_000_u64;
    let mut first = true;
    for n in 1_u64.. {
        let (tid, op, kernel) = (100 + n % 3, n * 7 % 900, n * 13 % 300);
        let mut step = if first { String::new() } else { ",\n".into() };
        step += &format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::op{op}","pid":100,"tid":{tid},"ts":{at},"dur":60.5,"args":{{"External id":{n},"Input Dims":[[],[]]}}}}"#
        );
        if !processor_only {
            let (launch, run) = (at + 10, at + 20);
            step += &format!(
                r#",
{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":100,"tid":{tid},"ts":{launch}.25,"dur":6,"args":{{"External id":{n},"cbid":211,"correlation":{n}}}}},
{{"ph":"X","cat":"kernel","name":"kernel_{kernel}<float, 4>","pid":0,"tid":7,"ts":{run}.5,"dur":33,"args":{{"External id":{n},"device":0,"context":1,"stream":7,"correlation":{n},"grid":[24,1,1],"block":[128,1,1]}}}}"#
            );
        }
        first = false;
        written += step.len();
        to.write_all(step.as_bytes()).unwrap();
        at += if n % 500 == 0 { 20_000 } else { 70 };
        if written > megabytes * 1_000_000 {
            break;
        }
    }
    to.write_all(b"]}\n").unwrap();
    to.flush().unwrap();
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn gzip(&self, name: &str, megabytes: usize, processor_only: bool) -> PathBuf {
        let path = self.path(name);
        let mut out = GzEncoder::new(fs::File::create(&path).unwrap(), Compression::fast());
        recording(&mut out, megabytes, processor_only);
        out.finish().unwrap();
        path
    }

    fn import(&self, recording: &Path) -> (Ran, PathBuf) {
        let trace = self.path("trace");
        let words = ["import", "kineto", "--force"].map(Into::into);
        let files = [recording.into(), "-o".into(), trace.clone().into_os_string()];
        (binary::run(words.into_iter().chain::<[std::ffi::OsString; 3]>(files)), trace)
    }
}

fn report(trace: &Path) -> String {
    let ran = binary::run(["report".as_ref(), trace.as_os_str()]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    ran.stdout
}

fn records(trace: &Path) -> Vec<Record> {
    Reader::open(trace).unwrap().map(Result::unwrap).collect()
}

#[test]
fn an_imported_recording_gives_a_ledger() {
    let files = Files::new();
    let (ran, trace) = files.import(&files.gzip("r.json.gz", 2, false));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stderr.contains("without scheduling"), "{ran:?}");
    assert!(ran.stderr.lines().all(|l| l.starts_with("whyidle: ")), "{ran:?}");
    let text = report(&trace);
    for part in ["GPU 0 stood idle", "idle in all", "scheduling: a profiler's recording holds none"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let json = binary::run(["report", trace.to_str().unwrap(), "--format", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let gpu = &json["gpus"][0];
    let parts: u64 = gpu["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(parts), gpu["idle_ns"].as_u64());
    assert!(parts > 0, "{gpu}");
}

#[test]
fn a_recording_of_the_processor_only_says_what_it_lacks() {
    let files = Files::new();
    let (ran, trace) = files.import(&files.gzip("r.json.gz", 1, true));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for lack in ["without device activity: ", "without CUDA calls: ", "without Python functions: "] {
        assert_eq!(ran.stderr.lines().filter(|l| l.contains(lack)).count(), 1, "{lack}: {ran:?}");
    }
    assert!(report(&trace).contains("No device was read"));
}

#[test]
fn a_file_cut_in_the_middle_gives_what_is_there() {
    let files = Files::new();
    let whole = fs::read(files.gzip("r.json.gz", 4, false)).unwrap();
    let cut = files.path("cut.json.gz");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let (ran, trace) = files.import(&cut);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the file ends in the middle"), "{ran:?}");
    let records = records(&trace);
    assert!(records.iter().any(|r| matches!(r, Record::Loss(_))));
    let launches = |r: &Record| if let Record::Submits(s) = r { s.launches } else { 0 };
    assert!(records.iter().map(launches).sum::<u64>() > 1000);
    let text = report(&trace);
    assert!(text.contains("The recording is cut"), "{text}");
}

#[test]
fn what_is_no_recording_is_refused_and_costs_no_older_trace() {
    let files = Files::new();
    let file = files.path("r.json.gz");
    for (content, says) in [
        (&b"not gzip, not JSON"[..], "not JSON, nor JSON compressed"),
        (b"", "it is empty"),
        (b"\x1f\x8b\x08\x00broken", "compressed data is damaged"),
        (b"{\"a\": 1}", "without a list named traceEvents"),
        (b"{\"traceEvents\": []}", "holds no event"),
    ] {
        fs::write(&file, content).unwrap();
        fs::write(files.path("trace"), "an older one").unwrap();
        let (ran, trace) = files.import(&file);
        ran.refused(Status::NotARecording, says);
        assert_eq!(fs::read_to_string(trace).unwrap(), "an older one");
    }
    fs::remove_file(files.path("trace")).unwrap();
    let (ran, trace) = files.import(&file);
    ran.refused(Status::NotARecording, "holds no event");
    assert!(!trace.exists(), "an empty trace was left behind");
    files.import(&files.path("missing")).0.refused(Status::CannotRead, "missing");
    files.import(files.folder.path()).0.refused(Status::CannotRead, "cannot be read");
    let no = ["import", "kineto", file.to_str().unwrap(), "-o", "/nowhere/at/all"];
    binary::run(no).refused(Status::CannotCreate, "there is no folder");
}

#[test]
fn placement_is_scored_as_a_table_and_as_json() {
    let files = Files::new();
    let file = files.gzip("r.json.gz", 3, false);
    let file = file.to_str().unwrap();
    let ran = binary::run(["eval", "placement", file]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let rows: Vec<&str> = ran.stdout.lines().filter(|l| l.starts_with("r ")).collect();
    assert_eq!(rows.len(), 2, "{ran:?}");
    assert!(rows[0].contains("166ms") && rows[1].contains("100ms"), "{rows:?}");
    let ran = binary::run(["eval", "placement", "--json", "--window", "50ms", file]);
    let rows: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let row = &rows[0];
    assert_eq!((row["file"].as_str(), row["window_ns"].as_u64()), (Some("r.json.gz"), Some(50_000_000)));
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (recall, precision) = (number(&row["all"]["recall"]), number(&row["all"]["precision"]));
    let f1 = 2.0 * recall * precision / (recall + precision);
    assert!((number(&row["all"]["f1"]) - f1).abs() < 1e-9, "{row}");
    assert!(number(&row["mass_error"]) < 0.02 && f1 > 0.5, "{row}");
    files.import(Path::new("/dev/null")).0.refused(Status::NotARecording, "it is empty");
    binary::run(["eval", "placement", "/dev/null"]).refused(Status::NotARecording, "it is empty");
}

#[test]
fn a_file_that_may_not_grow_ends_every_verb_with_a_line_and_leaves_what_was_there() {
    let files = Files::new();
    let recording = files.gzip("r.json.gz", 1, false);
    let (ran, trace) = files.import(&recording);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let out = files.path("out");
    let limited = |blocks: &str, script: &str, words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -f {blocks}; {script}"), "sh"]).arg(binary::path()).args(words);
        binary::start_command(command).end()
    };
    let there = || fs::read_dir(files.folder.path()).unwrap().count();
    let [recording, trace, out_name] = [&recording, &trace, &out].map(|path| path.to_str().unwrap());
    // Nothing at all, and less than is to be written.
    for blocks in ["0", "1"] {
        for words in [
            &["import", "kineto", recording, "--force", "-o", out_name][..],
            &["flame", trace, "--kind", "oncpu", "--force", "-o", out_name],
        ] {
            limited(blocks, "exec \"$@\"", words).refused(Status::OutOfSpace, "out: cannot write");
            assert_eq!(there(), 2, "something was left behind by {words:?}");
            fs::write(&out, "an older one").unwrap();
            limited(blocks, "exec \"$@\"", words).refused(Status::OutOfSpace, "out: cannot write");
            assert_eq!((fs::read(&out).unwrap().as_slice(), there()), (&b"an older one"[..], 3), "{words:?}");
            fs::remove_file(&out).unwrap();
        }
        let ran = limited(blocks, &format!("exec \"$@\" > {out_name}"), &["report", trace]);
        ran.refused(Status::OutOfSpace, "standard output: cannot write");
        fs::remove_file(&out).unwrap();
    }
}

/// Most memory a run of the binary had, in kB.
fn peak(arguments: &[&str]) -> u64 {
    let mut command = Command::new(binary::path());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let read = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(read.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return peak;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn ten_times_the_recording_takes_no_more_memory() {
    let files = Files::new();
    let trace = files.path("trace");
    let of = |megabytes| {
        let file = files.gzip(&format!("{megabytes}.json.gz"), megabytes, false);
        let words = ["import", "kineto", file.to_str().unwrap(), "--force", "-o", trace.to_str().unwrap()];
        peak(&words)
    };
    let (small, large) = (of(30), of(300));
    eprintln!("{small} kB for 30 MB, {large} kB for 300 MB");
    assert!(small > 0 && large < small * 2, "{small} kB for 30 MB, {large} kB for 300 MB");
}
