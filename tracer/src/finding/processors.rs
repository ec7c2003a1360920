//! Evidence on processors: who wants them, who is held off them, and what is free.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Case, counted, percent, threads_in_words};
use crate::cause::{Cause, Mechanism, role, seconds};
use crate::timeline::{Activity, Thread, Timeline};
use crate::trace::{HostTick, Span};

/// Whether more members would help: how busy they are, and what processors are free.
pub(super) fn pool(case: &Case<'_>, causes: &[&Cause]) -> Vec<String> {
    let (timeline, idle) = (case.timeline, case.idle);
    let largest = causes.first().copied();
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
    let (mut life, mut working, mut running) = (0, 0, 0);
    for slice in members.iter().flat_map(|t| t.slices_in(idle.window)) {
        life += slice.span.len();
        if matches!(slice.activity, Activity::Running | Activity::Runnable(_)) {
            working += slice.span.len();
        }
        if matches!(slice.activity, Activity::Running) {
            running += slice.span.len();
        }
    }
    let mut lines = vec![format!(
        "{} like it {} on a processor, or waiting for one, {} of {} time.",
        threads_in_words(members.len()),
        if members.len() == 1 { "was" } else { "were" },
        percent(working, life),
        if members.len() == 1 { "its" } else { "their" },
    )];
    if leaf.pid != largest.and_then(|c| c.chain.first()).map_or(0, |l| l.pid) {
        let busy = idle.window.len().saturating_sub(idle.idle_ns).max(1);
        let count = u128::try_from(members.len()).unwrap_or(1);
        let needed = (count * u128::from(idle.window.len())).div_ceil(u128::from(busy));
        // Each as long on a processor as those that are there.
        let more = needed.saturating_sub(count) as f64 * running as f64 / life.max(1) as f64;
        if more > 0.0 && room(case) < more {
            lines.push("More of them would not help: there is no processor left for them.".to_owned());
        } else if needed <= count * 16 {
            lines.push(format!("At this pace about {needed} of them would keep the GPU busy."));
        }
    } else if largest.is_some_and(|c| c.chain.len() == 1) {
        let ns: u64 = causes.iter().map(|c| c.ns).sum();
        lines.push(format!(
            "It is the thread that feeds the GPU: preparation and the device's work never overlap. Were it done beside \
             that, by workers, up to {} of it would not be waited for.",
            seconds(ns.min(idle.window.len().saturating_sub(idle.idle_ns)))
        ));
    }
    lines.extend(free_processors(timeline, idle.window));
    lines
}

/// How many more processors the job could have had: none where it is held off the idle ones.
fn room(case: &Case<'_>) -> f64 {
    let held = |m: Mechanism| {
        matches!(
            m,
            Mechanism::ScheduleThrottled | Mechanism::ScheduleAffinity | Mechanism::ScheduleOversubscribed
        )
    };
    let ns: u64 = case.ledger.causes.iter().filter(|c| held(c.mechanism)).map(|c| c.ns).sum();
    if ns.saturating_mul(20) >= case.idle.idle_ns {
        return 0.0;
    }
    idle_processors(case.timeline, case.idle.window).unwrap_or(f64::MAX)
}

fn free_processors(timeline: &Timeline, window: Span) -> Option<String> {
    Some(format!(
        "{:.1} of {} processors were idle on average.",
        idle_processors(timeline, window)?,
        timeline.host.online_cpus.len()
    ))
}

/// A processor is idle too while somebody waits for a disk.
fn idle_processors(timeline: &Timeline, window: Span) -> Option<f64> {
    let (first, last) = ticks(timeline, window)?;
    let elapsed = last.at.checked_sub(first.at).filter(|&e| e > 0)?;
    let since = |&(cpu, idle, io, _): &(u32, u64, u64, u64)| {
        let before = first.cpus.iter().find(|c| c.0 == cpu)?;
        Some(idle.saturating_sub(before.1).saturating_add(io.saturating_sub(before.2)))
    };
    let idle = last.cpus.iter().filter_map(since).fold(0, u64::saturating_add);
    Some(idle as f64 / elapsed as f64)
}

fn ticks(timeline: &Timeline, window: Span) -> Option<(&HostTick, &HostTick)> {
    let mut inside = timeline.host_ticks.iter().filter(|t| window.start <= t.at && t.at <= window.end);
    let first = inside.next()?;
    Some((first, inside.next_back()?))
}

pub(super) fn scheduling(timeline: &Timeline, window: Span, threads: &[&Thread]) -> Vec<String> {
    let (mut runnable, mut running) = (0, 0);
    for slice in threads.iter().flat_map(|t| t.slices_in(window)) {
        match slice.activity {
            Activity::Runnable(_) => runnable += slice.span.len(),
            Activity::Running => running += slice.span.len(),
            Activity::Blocked(_) | Activity::Unseen => {}
        }
    }
    let wanting = (runnable + running) as f64 / window.len().max(1) as f64;
    let mut lines = vec![format!(
        "{} waited {} for a processor in all; on average {wanting:.1} ran or wanted to.",
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
            "Group {path} was throttled {}, {} in all, added up over processors.",
            counted(g.2 - g.0, "time"),
            seconds(g.3.saturating_sub(g.1))
        )
    }));
    lines
}
