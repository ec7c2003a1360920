//! The demo's job, traced and not: one job throughout, its rate taken from what the device really did.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

use super::table::{median, table};
use super::tracer::Tracer;
use crate::demo::case::Case;
use crate::demo::job::Job;
use crate::device::{Device, truth};
use crate::setup;
use crate::shell::say;

/// How long each traced and untraced stretch is.
const STRETCH: Duration = Duration::from_secs(4);

/// A stretch on CLOCK_MONOTONIC, nanoseconds.
type Stretch = (u64, u64);

pub fn tables(repeats: usize, folder: &Path) -> Result<String> {
    let folder = folder.join("job");
    fs::create_dir_all(&folder)?;
    let written = folder.join("truth.jsonl");
    let device = Device::new(&folder.join("lib"), &written, &BTreeMap::new())?;
    let case = Case::Healthy;
    let mut options = vec!["--data".to_owned(), folder.join("images").display().to_string()];
    options.extend(case.job().iter().map(ToString::to_string));
    let mut job = Job::start(&setup::python()?, &options, &device, &folder, None)?;
    job.wait_ready(&|| false)?;

    let mut taken: Vec<(Tracer, Stretch, Stretch, Stretch)> = Vec::new();
    let mut before = stretch();
    for repeat in 1..=repeats {
        for tracer in Tracer::COMPARED {
            // The others are there for scale: once will do.
            if tracer != Tracer::Whyidle && repeat > 1 {
                continue;
            }
            say(format!("the demo's job, {repeat} of {repeats}: {}", tracer.name()));
            let attached = tracer.start(job.pid(), &folder)?;
            let traced = stretch();
            attached.stop()?;
            let after = stretch();
            taken.push((tracer, before, traced, after));
            before = after;
        }
    }
    job.stop()?;
    let busy = truth::read(&written)?;
    let share = |(from, to): Stretch| truth::busy_ns(&busy, 0, from, to) as f64 / (to - from) as f64;

    let mut rows = Vec::new();
    for tracer in Tracer::COMPARED {
        let of_it: Vec<_> = taken.iter().filter(|t| t.0 == tracer).collect();
        let rates: Vec<f64> = of_it.iter().map(|t| share(t.2)).collect();
        let ratios: Vec<f64> = of_it.iter().map(|t| share(t.2) / ((share(t.1) + share(t.3)) / 2.0)).collect();
        rows.push(vec![
            tracer.name().into(),
            ratios.len().to_string(),
            format!("{:.2}", median(&rates) * 100.0),
            format!("{:.4}", median(&ratios)),
        ]);
    }
    let head = ["tracer", "times", "device busy, %", "step rate to the untraced stretches beside it"];
    Ok(format!("### The demo's job (`{}`)\n\n{}\n", case.name(), table(&head, &rows)))
}

fn stretch() -> Stretch {
    let from = now();
    sleep(STRETCH);
    (from, now())
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Both are not negative: the clock starts at boot.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
