//! Sentences a sceptic can check, each with its figure.

use std::collections::{BTreeMap, BTreeSet};

use super::{Gpu, accounts, managed, processors, questions, ranks, rhythm};
use crate::cause::{Cause, Ledger, Mechanism, Stage, role, seconds, steps};
use crate::idle::{DeviceIdle, DeviceMap};
use crate::timeline::{Thread, Timeline};
use crate::trace::{CudaFamily, OffCpu, Span};

/// What a finding on one device is made from.
pub(super) struct Case<'c> {
    pub timeline: &'c Timeline,
    pub map: &'c DeviceMap,
    pub idle: &'c DeviceIdle,
    pub ledger: &'c Ledger,
    pub gpu: &'c Gpu,
}

pub(super) fn of(case: &Case<'_>, mechanism: Mechanism, causes: &[&Cause]) -> Vec<String> {
    let &Case { timeline, idle, ledger, gpu, .. } = case;
    let mut lines = vec![size(idle, ledger, mechanism, causes)];
    lines.extend(rhythm::sentence(timeline, idle, ledger, mechanism));
    lines.extend(causes.first().map(|c| chain(c)));
    lines.extend(culprits(causes));
    lines.extend(causes.first().and_then(|c| spread(c)));
    let threads = leaf_threads(timeline, causes);
    // The job on this device: its feeders' processes and those its chains lead to.
    let chains: BTreeSet<u32> = ledger.causes.iter().flat_map(|c| &c.chain).map(|l| l.pid).collect();
    let concerns = |pid: u32| {
        chains.contains(&pid) || case.map.of_process(pid).is_some_and(|on| on.devices.contains(&idle.device))
    };
    match mechanism.stage() {
        Stage::Storage | Stage::Network => {
            lines.extend(files(timeline, idle.window, &threads, mechanism));
            lines.extend(accounts::reads(timeline, idle.window, &concerns));
            if mechanism == Mechanism::StorageFault {
                lines.extend(accounts::faults(timeline, idle.window, &concerns));
            }
        }
        Stage::Memory => lines.extend(accounts::memory(timeline, idle.window, &concerns)),
        Stage::Prepare => lines.extend(processors::pool(case, causes)),
        Stage::Schedule => lines.extend(processors::scheduling(timeline, idle.window, &threads)),
        Stage::Launch => {
            lines.extend(calls(case, &threads));
            lines.extend(gpu.launches.as_ref().map(|l| questions::launching(l, gpu.window_ns)));
        }
        Stage::Driver => {
            lines.extend(calls(case, &threads));
            lines.extend(accounts::ioctls(timeline, idle.window, &concerns));
        }
        Stage::Copy => {
            lines.extend(calls(case, &threads));
            lines.extend(gpu.copies.as_ref().map(questions::copying));
        }
        Stage::Peer => {
            lines.extend(gpu.collectives.as_ref().and_then(ranks::slowest));
            lines.extend(peers(causes));
        }
        _ => {}
    }
    if matches!(mechanism.stage(), Stage::Driver | Stage::Memory | Stage::Copy | Stage::Launch) {
        lines.extend(managed::memory(timeline, idle.window));
    }
    if mechanism == Mechanism::ProcessSpawn {
        lines.extend(starts(timeline, idle.window));
    }
    lines.push(elsewhere(idle, ledger, mechanism));
    lines.extend(
        causes.first().and_then(|c| c.note.as_ref()).map(|note| format!("How it was found: {note}.")),
    );
    lines
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0 %".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

fn size(idle: &DeviceIdle, ledger: &Ledger, mechanism: Mechanism, causes: &[&Cause]) -> String {
    let ns: u64 = causes.iter().map(|c| c.ns).sum();
    let of_it = |i: usize| ledger.causes.get(i).is_some_and(|c| c.mechanism == mechanism);
    let gaps: BTreeSet<Span> = ledger.pieces.iter().filter(|p| of_it(p.cause)).map(|p| p.gap).collect();
    format!(
        "{} of {} idle ({} of the window) go to {mechanism}, in {} gaps.",
        seconds(ns),
        seconds(idle.idle_ns),
        percent(ns, idle.window.len()),
        gaps.len(),
    )
}

fn chain(cause: &Cause) -> String {
    let links: Vec<String> =
        cause.chain.iter().map(|l| format!("{} {} {} ({})", l.comm, l.tid, l.state, l.what)).collect();
    format!("The largest chain, {}: {}.", seconds(cause.ns), links.join(" <- "))
}

fn culprits(causes: &[&Cause]) -> Option<String> {
    let mut by: BTreeMap<&str, u64> = BTreeMap::new();
    for cause in causes {
        if let Some(culprit) = &cause.culprit {
            *by.entry(&culprit.name).or_default() += cause.ns;
        }
    }
    let mut named: Vec<_> = by.into_iter().collect();
    named.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let words: Vec<String> =
        named.iter().take(4).map(|(name, ns)| format!("{name} ({})", seconds(*ns))).collect();
    (!words.is_empty()).then(|| format!("To blame: {}.", words.join(", ")))
}

fn spread(cause: &Cause) -> Option<String> {
    let details: Vec<&str> = cause.chain.iter().filter_map(|l| l.detail.as_deref()).collect();
    (!details.is_empty()).then(|| format!("Behind it: {}.", details.join("; ")))
}

/// Threads of the processes in which the causes' chains end.
fn leaf_threads<'t>(timeline: &'t Timeline, causes: &[&Cause]) -> Vec<&'t Thread> {
    let roles: BTreeSet<(String, u32)> = causes
        .iter()
        .filter_map(|c| c.chain.last())
        .filter_map(|l| timeline.threads.values().find(|t| t.key.tid == l.tid && t.pid == l.pid))
        .map(|t| (role(&t.comm), t.ppid))
        .collect();
    timeline.threads.values().filter(|t| roles.contains(&(role(&t.comm), t.ppid))).collect()
}

/// Waits for files of the threads at fault: how many, on how many files, how long, on which disks.
fn files(timeline: &Timeline, window: Span, threads: &[&Thread], mechanism: Mechanism) -> Vec<String> {
    let waits: Vec<&OffCpu> = threads
        .iter()
        .flat_map(|t| &t.off_cpu)
        .filter(|o| o.left < window.end && o.ran > window.start && on_file(timeline, o))
        .collect();
    let (mut lines, mut mean) = (Vec::new(), 0);
    if !waits.is_empty() {
        let ns: u64 = waits.iter().map(|o| o.woken.unwrap_or(o.ran).saturating_sub(o.left)).sum();
        // Of a look-up only the path is known that was asked for.
        let files: BTreeSet<_> = waits.iter().filter_map(|o| o.file).collect();
        let paths: BTreeSet<_> =
            waits.iter().filter(|o| o.file.is_none()).filter_map(|o| o.path_arg.as_ref()).collect();
        let count = u64::try_from(waits.len()).unwrap_or(u64::MAX);
        mean = ns / count.max(1);
        lines.push(format!(
            "{} of 100 us or more for {}, {} each on average, {} in all over {}.",
            counted(count, "wait"),
            counted((files.len() + paths.len()) as u64, "file"),
            seconds(mean),
            seconds(ns),
            threads_in_words(threads.len()),
        ));
    }
    if mechanism.stage() == Stage::Storage {
        lines.extend(disks(timeline, window, mean));
    }
    lines
}

fn on_file(timeline: &Timeline, off: &OffCpu) -> bool {
    let regular =
        |id| timeline.files.get(&id).is_some_and(|f| matches!(f.mode & 0o170_000, 0o100_000 | 0o040_000));
    off.file.is_some_and(regular) || off.path_arg.is_some()
}

/// A wait this many times longer than the disk's own answer was not spent at the disk.
const HELD_BACK: u64 = 5;

/// `wait_ns`: mean length of the waits whose leaf is a disk, 0 where there is none.
fn disks(timeline: &Timeline, window: Span, wait_ns: u64) -> Vec<String> {
    #[derive(Default)]
    struct Disk<'t> {
        name: &'t str,
        requests: u64,
        bytes: u64,
        written: u64,
        latency_ns: u64,
        busy_ns: u64,
    }
    let mut disks: BTreeMap<u32, Disk<'_>> = BTreeMap::new();
    for block in timeline.blocks.iter().filter(|b| b.span.intersect(window).is_some()) {
        let disk = disks.entry(block.dev).or_default();
        disk.name = &block.name;
        disk.requests = disk.requests.saturating_add(block.reads).saturating_add(block.writes);
        disk.bytes = disk.bytes.saturating_add(block.read_bytes);
        disk.written = disk.written.saturating_add(block.write_bytes);
        disk.latency_ns = disk.latency_ns.saturating_add(block.latency_ns);
        disk.busy_ns = disk.busy_ns.saturating_add(block.busy_ns);
    }
    disks
        .iter()
        .filter(|(_, d)| d.requests > 0)
        .map(|(dev, d)| {
            let name = if d.name.is_empty() { format!("{}:{}", dev >> 20, dev & 0xf_ffff) } else { d.name.to_owned() };
            let rate = |bytes: u64| bytes as f64 / 1e6 / (window.len() as f64 / 1e9).max(1e-9);
            let (latency, busy) = (d.latency_ns / d.requests, d.busy_ns.min(window.len()));
            let mut line = format!(
                "Disk {name}, all programs: {}, {:.1} KB and {} each on average, {:.1} MB/s read, {:.1} MB/s written, a \
                 request in flight {} of the time.",
                counted(d.requests, "request"),
                d.bytes.saturating_add(d.written) as f64 / 1e3 / d.requests as f64,
                seconds(latency),
                rate(d.bytes),
                rate(d.written),
                percent(busy, window.len()),
            );
            if wait_ns / HELD_BACK > latency && busy < window.len() / 2 {
                line.push_str(
                    " It answers far sooner than the waits last and is mostly free: reads are held back before it, \
                     by an I/O limit of the control group (blkio.throttle, io.max) or one request at a time.",
                );
            }
            line
        })
        .collect()
}

/// How often the feeding threads launch, synchronise, allocate.
fn calls(case: &Case<'_>, threads: &[&Thread]) -> Vec<String> {
    let idle = case.idle;
    let mut lines = Vec::new();
    // Of launches only long ones have a record of their own.
    let launches = case.gpu.launches.as_ref().and_then(|l| l.per_second);
    if let Some(rate) = idle.launches_per_second.filter(|r| *r > 0.0 && launches.is_none()) {
        lines.push(format!("{rate:.0} launches a second, one every {:.1} us.", 1e6 / rate));
    }
    let launch = |f: &CudaFamily| matches!(f, CudaFamily::Launch | CudaFamily::GraphLaunch);
    let feeder = idle.main_feeder().and_then(|key| case.timeline.threads.get(&key));
    let steps = feeder.map_or(0, |t| steps(t, idle.window).len());
    // Calls, those whose return was seen, and the time of these.
    let mut by: BTreeMap<CudaFamily, (u64, u64, u64)> = BTreeMap::new();
    for call in threads.iter().flat_map(|t| &t.calls).filter(|c| idle.window.contains(c.entry)) {
        let slot = by.entry(call.family).or_default();
        slot.0 += 1;
        slot.1 += u64::from(call.own_ns().is_some());
        slot.2 = slot.2.saturating_add(call.own_ns().unwrap_or(0));
    }
    let per_second = |count: u64| count as f64 / (idle.window.len() as f64 / 1e9).max(1e-9);
    lines.extend(by.iter().filter(|(family, _)| !launch(family)).map(|(family, &(count, returned, ns))| {
        let mean = ns.checked_div(returned).map_or_else(
            || "whose returns were not seen".into(),
            |ns| format!("{} each on average", seconds(ns)),
        );
        let step =
            if steps > 0 { format!(", {:.1} a step", count as f64 / steps as f64) } else { String::new() };
        format!(
            "{} of family {family:?}, {:.1} a second{step}, {mean}.",
            counted(count, "call"),
            per_second(count)
        )
    }));
    lines
}

/// What the ranks that were waited for did themselves.
fn peers(causes: &[&Cause]) -> Vec<String> {
    let mut by: BTreeMap<&str, BTreeMap<Mechanism, u64>> = BTreeMap::new();
    for cause in causes {
        let name = cause.culprit.as_ref().map_or("another rank", |c| c.name.as_str());
        *by.entry(name).or_default().entry(cause.leaf).or_default() += cause.ns;
    }
    let told = by.into_iter().filter_map(|(name, leaves)| {
        let (leaf, ns) = leaves.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0)))?;
        let all: u64 = leaves.values().sum();
        Some(format!(
            "Of {} of waiting for {name}, that one's own first cause is {leaf} ({}).",
            seconds(all),
            seconds(*ns)
        ))
    });
    told.collect()
}

fn starts(timeline: &Timeline, window: Span) -> Option<String> {
    let count = timeline.threads.values().flat_map(|t| &t.execs).filter(|&&e| window.contains(e)).count();
    let started = counted(u64::try_from(count).unwrap_or(u64::MAX), "start");
    (count > 0).then(|| format!("{started} of a program within the window."))
}

/// What else the idle time went to, so that suspects are cleared with numbers too.
fn elsewhere(idle: &DeviceIdle, ledger: &Ledger, mechanism: Mechanism) -> String {
    let mut by: BTreeMap<Stage, u64> = [Stage::Storage, Stage::Prepare].into_iter().map(|s| (s, 0)).collect();
    for cause in ledger.causes.iter().filter(|c| c.mechanism != mechanism) {
        *by.entry(cause.stage).or_default() += cause.ns;
    }
    // Storage and preparing are cleared by a figure of 0 too.
    let shown = |(stage, ns): &(Stage, u64)| {
        matches!(stage, Stage::Storage | Stage::Prepare) || ns.saturating_mul(1_000) >= idle.idle_ns
    };
    let words: Vec<String> = by
        .into_iter()
        .filter(shown)
        .map(|(stage, ns)| format!("{} {}", stage.name(), percent(ns, idle.idle_ns)))
        .collect();
    format!("The rest of the idle time: {}.", words.join(", "))
}

pub(super) fn threads_in_words(n: usize) -> String {
    counted(u64::try_from(n).unwrap_or(u64::MAX), "thread")
}

/// A number of things.
pub(super) fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
