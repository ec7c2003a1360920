//! Sentences a sceptic can check, each with its figure.

use std::collections::{BTreeMap, BTreeSet};

use super::{Gpu, accounts, managed, questions, ranks, rhythm};
use crate::cause::{Cause, Ledger, Mechanism, Stage, role, seconds};
use crate::idle::{DeviceIdle, DeviceMap};
use crate::timeline::{Activity, Thread, Timeline};
use crate::trace::{CudaFamily, HostTick, OffCpu, Span};

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
        }
        Stage::Memory => lines.extend(accounts::memory(timeline, idle.window, &concerns)),
        Stage::Prepare => lines.extend(pool(timeline, idle, causes.first().copied())),
        Stage::Schedule => lines.extend(scheduling(timeline, idle.window, &threads)),
        Stage::Launch => {
            lines.extend(calls(idle, &threads));
            lines.extend(gpu.launches.as_ref().map(|l| questions::launching(l, gpu.window_ns)));
        }
        Stage::Driver => {
            lines.extend(calls(idle, &threads));
            lines.extend(accounts::ioctls(timeline, idle.window, &concerns));
        }
        Stage::Copy => {
            lines.extend(calls(idle, &threads));
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

fn percent(part: u64, whole: u64) -> String {
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
        let files: BTreeSet<_> = waits.iter().filter_map(|o| o.file).collect();
        let count = u64::try_from(waits.len()).unwrap_or(u64::MAX);
        mean = ns / count.max(1);
        lines.push(format!(
            "{count} waits for {} files, {} each on average, {} in all over {} threads.",
            files.len(),
            seconds(mean),
            seconds(ns),
            threads.len(),
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
        latency_ns: u64,
        busy_ns: u64,
    }
    let mut disks: BTreeMap<u32, Disk<'_>> = BTreeMap::new();
    for block in timeline.blocks.iter().filter(|b| b.span.intersect(window).is_some()) {
        let disk = disks.entry(block.dev).or_default();
        disk.name = &block.name;
        disk.requests = disk.requests.saturating_add(block.reads).saturating_add(block.writes);
        disk.bytes = disk.bytes.saturating_add(block.read_bytes);
        disk.latency_ns = disk.latency_ns.saturating_add(block.latency_ns);
        disk.busy_ns = disk.busy_ns.saturating_add(block.busy_ns);
    }
    disks
        .iter()
        .filter(|(_, d)| d.requests > 0)
        .map(|(dev, d)| {
            let name = if d.name.is_empty() { format!("{}:{}", dev >> 20, dev & 0xf_ffff) } else { d.name.to_owned() };
            let rate = d.bytes as f64 / 1e6 / (window.len() as f64 / 1e9).max(1e-9);
            let (latency, busy) = (d.latency_ns / d.requests, d.busy_ns.min(window.len()));
            let mut line = format!(
                "Disk {name}, all programs: {} requests, {} each on average, {rate:.1} MB/s read, a request in flight {} of the time.",
                d.requests,
                seconds(latency),
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

/// Whether more members would help: how busy they are, and what processors are free.
fn pool(timeline: &Timeline, idle: &DeviceIdle, largest: Option<&Cause>) -> Vec<String> {
    let Some(leaf) = largest.and_then(|c| c.chain.last()) else { return Vec::new() };
    let Some(thread) = timeline.threads.values().find(|t| t.key.tid == leaf.tid && t.pid == leaf.pid) else {
        return Vec::new();
    };
    let members: Vec<&Thread> = timeline
        .threads
        .values()
        .filter(|t| {
            role(&t.comm) == role(&thread.comm)
                && t.ppid == thread.ppid
                && (t.key.tid == t.pid) == (leaf.tid == leaf.pid)
        })
        .collect();
    let (mut life, mut working) = (0, 0);
    for slice in members.iter().flat_map(|t| t.slices_in(idle.window)) {
        life += slice.span.len();
        if matches!(slice.activity, Activity::Running | Activity::Runnable(_)) {
            working += slice.span.len();
        }
    }
    let mut lines = vec![format!(
        "{} threads like it were on a processor, or waiting for one, {} of their time.",
        members.len(),
        percent(working, life)
    )];
    if leaf.pid != largest.and_then(|c| c.chain.first()).map_or(0, |l| l.pid) {
        let busy = idle.window.len().saturating_sub(idle.idle_ns).max(1);
        let count = u128::try_from(members.len()).unwrap_or(1);
        let needed = (count * u128::from(idle.window.len())).div_ceil(u128::from(busy));
        if needed <= count * 16 {
            lines.push(format!("At this pace about {needed} of them would keep the GPU busy."));
        }
    } else if largest.is_some_and(|c| c.chain.len() == 1) {
        lines.push(
            "It is the thread that feeds the GPU: preparation and the device's work never overlap.".into(),
        );
    }
    lines.extend(free_processors(timeline, idle.window));
    lines
}

fn free_processors(timeline: &Timeline, window: Span) -> Option<String> {
    let (first, last) = ticks(timeline, window)?;
    let elapsed = last.at.checked_sub(first.at).filter(|&e| e > 0)?;
    let idle: u64 = last
        .cpus
        .iter()
        .filter_map(|&(cpu, idle, ..)| Some(idle.saturating_sub(first.cpus.iter().find(|c| c.0 == cpu)?.1)))
        .fold(0, u64::saturating_add);
    Some(format!(
        "{:.1} of {} processors were idle on average.",
        idle as f64 / elapsed as f64,
        timeline.host.online_cpus.len()
    ))
}

fn ticks(timeline: &Timeline, window: Span) -> Option<(&HostTick, &HostTick)> {
    let mut inside = timeline.host_ticks.iter().filter(|t| window.start <= t.at && t.at <= window.end);
    let first = inside.next()?;
    Some((first, inside.next_back()?))
}

fn scheduling(timeline: &Timeline, window: Span, threads: &[&Thread]) -> Vec<String> {
    let mut runnable = 0;
    for slice in threads.iter().flat_map(|t| t.slices_in(window)) {
        if matches!(slice.activity, Activity::Runnable(_)) {
            runnable += slice.span.len();
        }
    }
    let mut lines = vec![format!(
        "{} waited {} for a processor in all.",
        threads_in_words(threads.len()),
        seconds(runnable)
    )];
    let masks: BTreeSet<u32> =
        threads.iter().filter_map(|t| t.off_cpu.last()).map(|o| o.cpus_allowed).filter(|n| *n > 0).collect();
    let words: Vec<String> = masks.iter().map(u32::to_string).collect();
    if !words.is_empty() {
        lines.push(format!(
            "They may use {} of {} processors.",
            words.join(" or "),
            timeline.host.online_cpus.len()
        ));
    }
    lines.extend(free_processors(timeline, window));
    let mut groups: BTreeMap<&str, (u64, u64, u64, u64)> = BTreeMap::new();
    for tick in timeline.cgroup_ticks.iter().filter(|t| window.start <= t.at && t.at <= window.end) {
        let entry = groups.entry(&tick.path).or_insert((
            tick.throttled_count,
            tick.throttled_ns,
            tick.throttled_count,
            tick.throttled_ns,
        ));
        entry.2 = tick.throttled_count;
        entry.3 = tick.throttled_ns;
    }
    lines.extend(groups.iter().filter(|(_, g)| g.2 > g.0).map(|(path, g)| {
        format!(
            "Group {path} was throttled {} times, {} in all.",
            g.2 - g.0,
            seconds(g.3.saturating_sub(g.1))
        )
    }));
    lines
}

/// How often the feeding threads launch, synchronise, allocate.
fn calls(idle: &DeviceIdle, threads: &[&Thread]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(rate) = idle.launches_per_second.filter(|r| *r > 0.0) {
        lines.push(format!("{rate:.0} launches a second, one every {:.1} us.", 1e6 / rate));
    }
    // Calls, those whose return was seen, and the time of these.
    let mut by: BTreeMap<CudaFamily, (u64, u64, u64)> = BTreeMap::new();
    for call in threads.iter().flat_map(|t| &t.calls).filter(|c| idle.window.contains(c.entry)) {
        let slot = by.entry(call.family).or_default();
        slot.0 += 1;
        slot.1 += u64::from(call.own_ns().is_some());
        slot.2 = slot.2.saturating_add(call.own_ns().unwrap_or(0));
    }
    let per_second = |count: u64| count as f64 / (idle.window.len() as f64 / 1e9).max(1e-9);
    lines.extend(by.iter().map(|(family, &(count, returned, ns))| {
        let mean = ns.checked_div(returned).map_or_else(
            || "whose returns were not seen".into(),
            |ns| format!("{} each on average", seconds(ns)),
        );
        format!("{count} recorded {family:?} calls, {:.1} a second, {mean}.", per_second(count))
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
    (count > 0).then(|| format!("{count} processes started a program within the window."))
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

fn threads_in_words(n: usize) -> String {
    if n == 1 { "1 thread".to_owned() } else { format!("{n} threads") }
}
