//! `cargo xtask bench`: what tracing costs, ours beside others', in one run.
//!
//! Untraced and traced rounds alternate, so that every traced round has an untraced one on either side; the
//! figures are medians over the repeats. Machines drift, so only ratios within one run mean anything.

mod job;
mod load;
mod statistics;
mod table;
mod tracer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::shell::{is_root, output, say};
use crate::{demo, place, setup};
use load::{Load, Running};
use table::median;
use tracer::Tracer;

pub use load::{Load as LoadKind, serve};
pub use table::table;

#[derive(Debug, Args)]
pub struct Bench {
    /// How often everything is repeated.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Leave out the demo's job.
    #[arg(long)]
    no_job: bool,
    /// Print the tables without writing them to docs/performance.md.
    #[arg(long)]
    dry_run: bool,
}

pub fn bench(arguments: &Bench) -> Result<()> {
    ensure!(is_root(), "attaching tracers needs root: run `cargo xtask bench` as root");
    setup::everything()?;
    setup::install(&[
        ("bpftrace", "bpftrace"),
        ("bpftool", "bpftool"),
        ("libbpf-tools", "offcputime"),
        ("linux-perf", "perf"),
    ])?;
    demo::prepare()?;
    let folder = place::target().join("bench");
    fs::create_dir_all(&folder)?;
    let mut text = about()?;
    let mut storm = Timing::default();
    for load in [Load::Switches, Load::Reads] {
        let timing = Timing::take(load, arguments.repeats, &folder)?;
        text.push_str(&timing.tables(load));
        if load == Load::Switches {
            storm = timing;
        }
    }
    text.push_str(&written(&storm));
    text.push_str(&kernel_time(arguments.repeats, &folder)?);
    if !arguments.no_job {
        text.push_str(&job::tables(arguments.repeats, &folder)?);
    }
    text.push_str(&commands());
    println!("{text}");
    if arguments.dry_run { Ok(()) } else { table::write(&text) }
}

/// How many operations a round has: long enough for a tracer's buffers to matter, short enough to repeat.
fn count(load: Load, tracer: Tracer) -> u64 {
    match (load, tracer) {
        (Load::Switches, _) => 40_000,
        // A hundred times slower than the others: it stops at every system call.
        (Load::Reads, Tracer::PerfTrace) => 50_000,
        (Load::Reads, _) => 4_000_000,
    }
}

#[derive(Debug, Default)]
struct Timing {
    rows: Vec<(Tracer, Vec<f64>, Vec<f64>)>,
    untraced: Vec<f64>,
    bytes: Vec<(Tracer, Vec<f64>)>,
    /// Records lost, by cause.
    losses: BTreeMap<String, u64>,
}

impl Timing {
    fn take(load: Load, repeats: usize, folder: &Path) -> Result<Self> {
        let mut running = Running::start(load)?;
        let whole = count(load, Tracer::Whyidle);
        running.round(whole / 10)?;
        let mut timing = Self {
            rows: Tracer::COMPARED.map(|t| (t, Vec::new(), Vec::new())).to_vec(),
            bytes: Tracer::COMPARED.map(|t| (t, Vec::new())).to_vec(),
            ..Self::default()
        };
        for repeat in 1..=repeats {
            let mut before = running.timed(whole)?;
            timing.untraced.push(before);
            for index in 0..timing.rows.len() {
                let tracer = timing.rows[index].0;
                say(format!("{}, {repeat} of {repeats}: {}", load.name(), tracer.name()));
                let attached = tracer.start(running.pid(), folder)?;
                let traced = running.timed(count(load, tracer))?;
                let (bytes, file) = attached.stop()?;
                let after = running.timed(whole)?;
                let row = &mut timing.rows[index];
                row.1.push(traced);
                row.2.push(traced / ((before + after) / 2.0));
                timing.bytes[index].1.push(bytes as f64);
                timing.untraced.push(after);
                if tracer == Tracer::Whyidle {
                    losses(&file, &mut timing.losses)?;
                }
                before = after;
            }
        }
        Ok(timing)
    }

    fn tables(&self, load: Load) -> String {
        let mut rows = vec![vec!["untraced".into(), nanoseconds(median(&self.untraced)), "1".into()]];
        for (tracer, traced, ratio) in &self.rows {
            rows.push(vec![
                tracer.name().into(),
                nanoseconds(median(traced)),
                format!("{:.3} ({:.3} to {:.3})", median(ratio), least(ratio), most(ratio)),
            ]);
        }
        let title = match load {
            Load::Switches => "Switch storm: two threads on one processor hand a byte to and fro",
            Load::Reads => "64-byte reads of a cached file",
        };
        let head = ["tracer", "ns for one", "to the untraced rounds beside it (least to most)"];
        format!("### {title}\n\n{}\n", table(&head, &rows))
    }
}

fn written(storm: &Timing) -> String {
    let mut rows = Vec::new();
    for (tracer, bytes) in &storm.bytes {
        if matches!(tracer, Tracer::Whyidle | Tracer::PerfSched) {
            rows.push(vec![tracer.name().into(), format!("{:.0}", median(bytes))]);
        }
    }
    let of = |t| storm.bytes.iter().find(|b| b.0 == t).map_or(f64::NAN, |b| median(&b.1));
    let lost = storm.losses.iter().map(|(cause, n)| format!("{n} {cause}")).collect::<Vec<_>>();
    let lost = if lost.is_empty() { "none".to_owned() } else { lost.join(", ") };
    format!(
        "### Bytes written on the switch storm ({} round trips)\n\n{}\nRatio: {:.4}. Records lost by whyidle in \
         all these rounds, by cause: {lost}.\n\n",
        count(Load::Switches, Tracer::Whyidle),
        table(&["tracer", "bytes"], &rows),
        of(Tracer::Whyidle) / of(Tracer::PerfSched),
    )
}

/// Adds the records lost, of every class, as the trace has them.
fn losses(trace: &Path, by_cause: &mut BTreeMap<String, u64>) -> Result<()> {
    let report = report(trace)?;
    let losses = report["losses"].as_array().context("the report has no losses")?;
    for loss in losses {
        let cause = loss["cause"].as_str().unwrap_or("unknown").to_owned();
        *by_cause.entry(cause).or_default() += loss["count"].as_u64().unwrap_or(0);
    }
    Ok(())
}

fn report(trace: &Path) -> Result<serde_json::Value> {
    let whyidle = place::target().join("release/whyidle");
    let json = output(Command::new(whyidle).arg("report").arg(trace).args(["--format", "json"]))?;
    serde_json::from_str(&json).context("the report's JSON")
}

/// Nanoseconds of kernel time a switch, of all the programs of a tracer, by the kernel's own account.
fn kernel_time(repeats: usize, folder: &Path) -> Result<String> {
    let _enabled = statistics::Enabled::new()?;
    let mut running = Running::start(Load::Switches)?;
    let compared = [Tracer::Empty, Tracer::Whyidle, Tracer::Bpftrace, Tracer::Offcputime];
    let mut totals = compared.map(|_| Vec::new());
    let mut details = compared.map(|_| Vec::new());
    for repeat in 1..=repeats {
        for (index, tracer) in compared.into_iter().enumerate() {
            say(format!("kernel statistics, {repeat} of {repeats}: {}", tracer.name()));
            let before = statistics::programs()?;
            let attached = tracer.start(running.pid(), folder)?;
            let start = statistics::programs()?;
            running.round(count(Load::Switches, Tracer::Whyidle))?;
            let ran = statistics::since(&before, &statistics::programs()?);
            attached.stop()?;
            let ran: Vec<_> = ran.iter().map(|p| p.less(&start)).filter(|p| p.run_cnt > 0).collect();
            let time: u64 = ran.iter().map(|p| p.run_time_ns).sum();
            totals[index].push(time as f64 / (2 * count(Load::Switches, Tracer::Whyidle)) as f64);
            details[index] = ran;
        }
    }
    let mut rows = Vec::new();
    for ((tracer, total), programs) in compared.iter().zip(&totals).zip(&details) {
        rows.push(vec![tracer.name().into(), "all".into(), String::new(), nanoseconds(median(total))]);
        for p in programs {
            let each = p.run_time_ns as f64 / p.run_cnt as f64;
            rows.push(vec![String::new(), format!("`{}`", p.name), p.run_cnt.to_string(), nanoseconds(each)]);
        }
    }
    let head = ["tracer", "program", "runs (last repeat)", "ns for a switch (all), for a run (one)"];
    Ok(format!("### Kernel time of the programs on the switch storm\n\n{}\n", table(&head, &rows)))
}

fn about() -> Result<String> {
    // Without the distribution's or the host's suffix, which says nothing to a reader.
    let kernel = output(Command::new("uname").arg("-sr"))?;
    let kernel = kernel.split('-').next().unwrap_or_default();
    let version = |program: &str| {
        let said = output(Command::new(program).arg("--version")).unwrap_or_default();
        said.lines().next().unwrap_or_default().to_owned()
    };
    Ok(format!(
        "{}, {} processors; {}; {}.\n\n",
        kernel.trim(),
        std::thread::available_parallelism()?,
        version("perf"),
        version("bpftrace"),
    ))
}

fn commands() -> String {
    let mut text = String::from("### Commands\n\n```sh\n");
    for tracer in Tracer::COMPARED.into_iter().chain([Tracer::Empty]) {
        let command = tracer.command(0, &PathBuf::from("DIR"));
        let mut words = vec![command.get_program().to_string_lossy().into_owned()];
        for argument in command.get_args().map(|a| a.to_string_lossy()) {
            let argument = if argument == "0" { "PID".into() } else { argument };
            words.push(if argument.contains(' ') { format!("'{argument}'") } else { argument.into_owned() });
        }
        if let Some(name) = words[0].rsplit('/').next() {
            words[0] = name.to_owned();
        }
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    text.push_str("```\n");
    text
}

fn nanoseconds(value: f64) -> String {
    format!("{value:.0}")
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
