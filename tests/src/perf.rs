//! `perf` as another unwinder: it copies registers and a piece of the stack at an event, and walks them afterwards
//! in user space, with code of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use whyidle::trace::Ns;

/// Bytes of stack that are copied at each event.
pub const COPIED: usize = 16 << 10;

/// A user stack, from the innermost frame outward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfStack {
    pub tid: u32,
    /// By the monotonic clock.
    pub at: Ns,
    pub frames: Vec<PerfFrame>,
}

/// Where in a file: of a caller `perf` names the byte before where the call returns to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfFrame {
    pub file: String,
    pub offset: u64,
}

/// Why there is no `perf` that unwinds, `None` where there is.
#[must_use]
pub fn missing() -> Option<String> {
    let Ok(told) = Command::new("perf").args(["version", "--build-options"]).output() else {
        return Some("perf: it is not installed".into());
    };
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let has = |name: &str| told.lines().any(|line| line.contains(name) && line.contains("[ on"));
    if has("libunwind") || has("libdw-dwarf-unwind") {
        return None;
    }
    Some("perf: it was built without an unwinder".into())
}

/// Records for so many seconds the stack of every switch that takes a processor from a thread of the process.
///
/// # Panics
/// `perf` does not start.
#[must_use]
pub fn record_switches(pid: u32, seconds: u32, to: &Path) -> Child {
    let copied = format!("dwarf,{COPIED}");
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--event", "sched:sched_switch", "--clockid", "CLOCK_MONOTONIC"]);
    perf.args(["--user-callchains", "--call-graph", &copied, "--mmap-pages", "4096"]);
    perf.args(["--pid", &pid.to_string(), "--output"]).arg(to);
    perf.args(["--", "sleep", &seconds.to_string()]);
    perf.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("perf starts")
}

/// Unwinds what was recorded.
///
/// # Panics
/// `perf` fails, or prints what is not understood.
#[must_use]
pub fn stacks(recorded: &Path) -> Vec<PerfStack> {
    let mut perf = Command::new("perf");
    perf.args([
        "script",
        "--no-inline",
        "--ns",
        "--max-stack",
        "127",
        "--fields",
        "tid,time,ip,dso",
        "--input",
    ]);
    perf.arg(recorded).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = perf.spawn().expect("perf starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let stacks = parsed(lines.map(|line| line.expect("text")));
    assert!(child.wait().expect("its own child").success(), "perf script");
    stacks
}

/// A line `tid time:` for each event, then one for each frame.
fn parsed(lines: impl Iterator<Item = String>) -> Vec<PerfStack> {
    let mut stacks: Vec<PerfStack> = Vec::new();
    for line in lines {
        let text = line.trim();
        if let Some((offset, file)) = text.split_once(" (") {
            let offset = u64::from_str_radix(offset.trim_end(), 16).unwrap_or_else(|_| panic!("{line:?}"));
            let frame = PerfFrame { file: file.trim_end_matches(')').to_owned(), offset };
            stacks.last_mut().expect("an event comes first").frames.push(frame);
        } else if let Some((tid, time)) = text.trim_end_matches(':').split_once(' ') {
            let at = nanoseconds(time.trim_start()).unwrap_or_else(|| panic!("{line:?}"));
            let tid = tid.parse().unwrap_or_else(|_| panic!("{line:?}"));
            stacks.push(PerfStack { tid, at, frames: Vec::new() });
        } else {
            assert_eq!(text, "", "a line of perf's");
        }
    }
    stacks
}

fn nanoseconds(time: &str) -> Option<Ns> {
    let (seconds, rest) = time.split_once('.')?;
    (rest.len() == 9).then_some(())?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + rest.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_script_is_understood() {
        let text =
            "   15 3.000000200: \n\t    7f10 (/lib/a b.so)\n\t    55aa ([vdso])\n\n   16 4.100000000: \n\n";
        let stacks = parsed(text.lines().map(str::to_owned));
        let frame = |file: &str, offset| PerfFrame { file: file.into(), offset };
        let frames = vec![frame("/lib/a b.so", 0x7f10), frame("[vdso]", 0x55aa)];
        let expected = [
            PerfStack { tid: 15, at: 3_000_000_200, frames },
            PerfStack { tid: 16, at: 4_100_000_000, frames: Vec::new() },
        ];
        assert_eq!(stacks, expected);
    }
}
