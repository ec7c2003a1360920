//! The tracers that are compared, each started on one process and stopped as a person would.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::statistics;
use crate::place;
use crate::shell::line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracer {
    Whyidle,
    Bpftrace,
    Offcputime,
    PerfSched,
    PerfTrace,
    /// A program that does nothing, on the same tracepoint.
    Empty,
}

const POLL: Duration = Duration::from_millis(300);

/// So many looks in a row must find no new program: a large one takes the verifier half a second.
const SETTLED: u32 = 5;

/// Off-CPU time with both stacks, of one process, as a person writes it.
pub const SCRIPT: &str = "\
tracepoint:sched:sched_switch /pid == $1/
{ @start[tid] = nsecs; @kernel[tid] = kstack; @user[tid] = ustack; }
tracepoint:sched:sched_switch /@start[args->next_pid]/
{ $t = args->next_pid; @ns[@kernel[$t], @user[$t]] = sum(nsecs - @start[$t]); delete(@start[$t]); }
";

impl Tracer {
    /// Those that time the same thing; the first is ours.
    pub const COMPARED: [Self; 5] =
        [Self::Whyidle, Self::Bpftrace, Self::Offcputime, Self::PerfSched, Self::PerfTrace];

    pub fn name(self) -> &'static str {
        match self {
            Self::Whyidle => "whyidle",
            Self::Bpftrace => "bpftrace, off-CPU with both stacks",
            Self::Offcputime => "offcputime (libbpf-tools)",
            Self::PerfSched => "perf sched record",
            Self::PerfTrace => "perf trace -s",
            Self::Empty => "an empty program",
        }
    }

    pub fn command(self, pid: u32, folder: &Path) -> Command {
        let pid = pid.to_string();
        match self {
            Self::Whyidle => {
                let mut c = Command::new(place::target().join("release/whyidle"));
                c.args(["record", "--pid", &pid, "--duration", "10m", "-o"]).arg(self.file(folder));
                c
            }
            Self::Bpftrace => {
                let mut c = Command::new("bpftrace");
                c.args(["-e", SCRIPT, &pid]);
                c
            }
            Self::Offcputime => {
                let mut c = Command::new("offcputime");
                c.args(["-p", &pid, "600"]);
                c
            }
            Self::PerfSched => {
                let mut c = Command::new("perf");
                c.args(["sched", "record", "-o"]).arg(self.file(folder)).args(["--", "sleep", "600"]);
                c
            }
            Self::PerfTrace => {
                let mut c = Command::new("perf");
                c.args(["trace", "-s", "-p", &pid]);
                c
            }
            Self::Empty => {
                let mut c = Command::new("bpftrace");
                c.args(["-e", "tracepoint:sched:sched_switch { }"]);
                c
            }
        }
    }

    /// What it leaves on the disk.
    fn file(self, folder: &Path) -> PathBuf {
        match self {
            Self::Whyidle => folder.join("bench.whyidle"),
            Self::PerfSched => folder.join("perf.data"),
            _ => folder.join("output"),
        }
    }

    fn is_bpf(self) -> bool {
        matches!(self, Self::Whyidle | Self::Bpftrace | Self::Offcputime | Self::Empty)
    }

    /// Starts it and waits until it is attached.
    pub fn start(self, pid: u32, folder: &Path) -> Result<Attached> {
        let file = self.file(folder);
        drop(fs::remove_file(&file));
        let before = statistics::programs()?;
        let mut command = self.command(pid, folder);
        let said = folder.join(format!("{self:?}.log"));
        command
            .stdin(Stdio::null())
            .stdout(File::create(folder.join("output"))?)
            .stderr(File::create(&said)?);
        let child = command.spawn().with_context(|| line(&command))?;
        let mut attached = Attached { child, file, said };
        let began = Instant::now();
        let mut seen = None;
        let mut quiet = 0;
        while quiet < SETTLED {
            ensure!(began.elapsed().as_secs() < 30, "{} did not attach within 30 s", self.name());
            sleep(POLL);
            attached.still_running()?;
            // What a tracer has loaded tells when its start is over; the others are given the same time.
            let programs = statistics::since(&before, &statistics::programs()?).len();
            let same = seen == Some(programs) && (programs > 0 || !self.is_bpf());
            quiet = if same { quiet + 1 } else { 0 };
            seen = Some(programs);
        }
        Ok(attached)
    }
}

#[derive(Debug)]
pub struct Attached {
    child: Child,
    file: PathBuf,
    said: PathBuf,
}

impl Attached {
    fn still_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let said = fs::read_to_string(&self.said).unwrap_or_default();
            bail!("a tracer ended at once: {status}\n{}", said.trim());
        }
        Ok(())
    }

    /// Ends it as Ctrl-C does; bytes it wrote, and its file.
    pub fn stop(mut self) -> Result<(u64, PathBuf)> {
        self.still_running()?;
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(began.elapsed().as_secs() < 30, "a tracer did not end within 30 s of SIGINT");
            sleep(Duration::from_millis(50));
        }
        let bytes = fs::metadata(&self.file).map_or(0, |m| m.len());
        Ok((bytes, self.file.clone()))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
