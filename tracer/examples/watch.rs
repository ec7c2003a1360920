//! Watches processes for some seconds and prints what the kernel side sees: `watch SECONDS PID...`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Record, TargetKind};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().context("usage: watch SECONDS PID...")?.parse()?;
    let begun = Instant::now();
    let mut tracer = Tracer::attach(&Config::default())?;
    eprintln!("attached in {:?}", begun.elapsed());
    for probe in tracer.probes() {
        eprintln!("{:16} {}", probe.name, if probe.attached { "attached" } else { &probe.reason });
    }
    let _stats = aya::sys::enable_stats(aya::sys::Stats::RunTime)?;
    for pid in args {
        tracer.add_process(pid.parse()?, TargetKind::Named)?;
    }
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut print = |record: Record| {
        let text = format!("{record:?}");
        let kind = text.split('(').next().unwrap_or_default().to_owned();
        let n = counts.entry(kind).or_default();
        *n += 1;
        if *n <= 12 {
            println!("{text}");
        }
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        tracer.wait(Duration::from_millis(166))?;
        tracer.drain(&mut print)?;
        tracer.tick(&mut print)?;
    }
    for (name, insns) in tracer.verified() {
        eprintln!("{name:16} {insns:9} instructions verified");
    }
    for (name, ns, runs) in tracer.run_times().into_iter().filter(|(_, _, runs)| *runs > 0) {
        eprintln!("{name:16} {runs:9} runs {:7} ns each", ns / runs);
    }
    let begun = Instant::now();
    drop(tracer.finish(&mut print)?);
    eprintln!("finished in {:?}; {counts:?}", begun.elapsed());
    Ok(())
}
