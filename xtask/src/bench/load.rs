//! The loads that are timed. Each is a process of its own, so that a tracer can be given its id; it runs a
//! round whenever it is told a count, and answers with the nanoseconds the round took.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::table::median;

const PIECES: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Two threads on one processor hand a byte to and fro: two switches a round trip.
    Switches,
    /// 64 bytes of a cached file, again and again.
    Reads,
}

impl Load {
    pub fn name(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Reads => "reads",
        }
    }
}

/// The load's side: reads counts from standard input, one a line, until its end.
pub fn serve(load: Load) -> Result<()> {
    let mut round: Box<dyn FnMut(u64) -> Result<()>> = match load {
        Load::Switches => hand_over()?,
        Load::Reads => cached_reads()?,
    };
    let mut out = io::stdout();
    for line in io::stdin().lock().lines() {
        let count = line?.trim().parse()?;
        let began = Instant::now();
        round(count)?;
        writeln!(out, "{}", began.elapsed().as_nanos())?;
        out.flush()?;
    }
    Ok(())
}

fn hand_over() -> Result<Box<dyn FnMut(u64) -> Result<()>>> {
    pin()?;
    let (mut from_peer, mut to_us) = io::pipe()?;
    let (mut from_us, mut to_peer) = io::pipe()?;
    // Ends when its peer's end of the pipe is closed.
    thread::Builder::new().name("peer".into()).spawn(move || -> io::Result<()> {
        pin().map_err(io::Error::other)?;
        let mut byte = [0];
        loop {
            from_us.read_exact(&mut byte)?;
            to_us.write_all(&byte)?;
        }
    })?;
    Ok(Box::new(move |count| {
        let mut byte = [0];
        for _ in 0..count {
            to_peer.write_all(&byte)?;
            from_peer.read_exact(&mut byte)?;
        }
        Ok(())
    }))
}

fn cached_reads() -> Result<Box<dyn FnMut(u64) -> Result<()>>> {
    pin()?;
    let file: File = tempfile::tempfile()?;
    file.write_all_at(&[7; 4096], 0)?;
    Ok(Box::new(move |count| {
        let mut buffer = [0; 64];
        for _ in 0..count {
            file.read_exact_at(&mut buffer, 0)?;
        }
        Ok(())
    }))
}

/// On the last processor: the first takes most interrupts.
fn pin() -> Result<()> {
    let mut set = CpuSet::new();
    set.set(thread::available_parallelism()?.get() - 1);
    sched_setaffinity(None, &set).context("cannot pin the load")
}

/// The bench's side of a load.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(load: Load) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["load", load.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("piped")?;
        let output = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Self { child, input, output })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Nanoseconds for one of `count` operations: the median over pieces, which a host's pauses do not move.
    pub fn timed(&mut self, count: u64) -> Result<f64> {
        let pieces: Vec<f64> = (0..PIECES).map(|_| self.round(count / PIECES)).collect::<Result<_>>()?;
        Ok(median(&pieces))
    }

    /// Nanoseconds for each of `count` operations.
    pub fn round(&mut self, count: u64) -> Result<f64> {
        writeln!(self.input, "{count}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let total: u64 = line.trim().parse().context("the load stopped")?;
        Ok(total as f64 / count as f64)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
