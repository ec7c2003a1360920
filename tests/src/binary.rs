//! The `whyidle` binary as a user runs it.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A run that takes longer hangs; the longest good one lasts a few seconds, under emulation minutes.
const DEADLINE: Duration = Duration::from_secs(400);

/// Path of the binary: what `WHYIDLE_BINARY` names, else built from the sources as they are now.
///
/// # Panics
/// When it does not build.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(named) = std::env::var_os("WHYIDLE_BINARY") {
            return named.into();
        }
        let test = std::env::current_exe().expect("a test knows its own path");
        // target/PROFILE/deps/test
        let profile = test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps");
        let target = profile.parent().expect("a profile lies in the target folder");
        if built_already() {
            return profile.join("whyidle");
        }
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--package", "whyidle"]);
        build.args(["--bin", "whyidle", "--target-dir"]).arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "whyidle did not build (see above)");
        profile.join("whyidle")
    })
}

/// Set by who builds everything before it runs the tests (`cargo xtask test`): they may be root's, and root is
/// not asked for to build.
#[must_use]
pub fn built_already() -> bool {
    std::env::var_os("WHYIDLE_TESTS_BUILT").is_some()
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// `None`: a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A run under way. Killed when dropped before its end.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    started: Instant,
}

/// Runs the binary to its end.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    start(arguments).end()
}

/// Starts the binary.
pub fn start<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Running {
    let mut command = Command::new(path());
    command.args(arguments);
    start_command(command)
}

/// Starts any command, for runs that change something first. Its environment names no device library.
///
/// # Panics
/// When it cannot be started.
pub fn start_command(mut command: Command) -> Running {
    command.env_remove("WHYIDLE_NVML").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    Running { child, stdout, stderr, started: Instant::now() }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Waits for its end.
    ///
    /// # Panics
    /// When it hangs.
    pub fn end(mut self) -> Ran {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(self.started.elapsed() < DEADLINE, "whyidle hangs");
            std::thread::sleep(Duration::from_millis(5));
        };
        let text =
            |reader: Option<JoinHandle<String>>| reader.map_or_else(String::new, |r| r.join().unwrap());
        Ran { status: status.code(), stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("it still runs");
    }

    /// Waits until `condition` holds.
    ///
    /// # Panics
    /// When the run ends or hangs before it does.
    pub fn until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        while !condition() {
            let ended = self.child.try_wait().expect("a child can be waited for");
            if ended.is_some() {
                let said = self.stderr.take().map_or_else(String::new, |r| r.join().unwrap());
                panic!("whyidle ended before {what}: {said}");
            }
            assert!(self.started.elapsed() < DEADLINE, "whyidle hangs before {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

impl Ran {
    /// Asserts that it was refused: this status, nothing on standard output, one line on standard error that
    /// begins with the program's name and contains `says`.
    ///
    /// # Panics
    /// When anything of that does not hold.
    #[track_caller]
    pub fn refused(&self, status: whyidle::cli::exit::Status, says: &str) {
        assert_eq!(self.status, Some(status as i32), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        // That this machine has no device library is said where recording began.
        let lines: Vec<&str> =
            self.stderr.lines().filter(|l| !l.ends_with("recorded all the same")).collect();
        let [line] = lines[..] else { panic!("not one line: {self:?}") };
        assert!(line.starts_with("whyidle: "), "{line}");
        assert!(line.contains(says), "{says:?} is not in: {line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
