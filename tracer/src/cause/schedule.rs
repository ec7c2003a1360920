//! Why a runnable thread had no processor.

use std::collections::BTreeMap;

use super::context::Context;
use super::jobs::is_own;
use super::{Culprit, CulpritKind, Mechanism, groups};
use crate::timeline::{Activity, Shorts, Thread, Timeline, apportion, prefix_share};
use crate::trace::{HostTick, Loss, LossClass, OffCpu, RanInstead, Span};

/// The verdict, or why there is none.
pub(crate) type Verdict = Result<(Mechanism, Option<Culprit>), String>;

/// `off` is the interval whose runnable part `span` is; `None` for short ones, of which only totals remain.
pub(crate) fn why(context: &Context<'_>, thread: &Thread, off: Option<&OffCpu>, span: Span) -> Verdict {
    if off.is_some_and(|o| o.throttled) {
        return Ok((Mechanism::ScheduleThrottled, groups::throttled(context, thread)));
    }
    if let Some(off) = off {
        let shares = context.processors_over(span);
        if shares.as_ref().is_some_and(|s| s.steal(off.cpu_ran) >= 0.5 || s.steal(off.cpu_queued) >= 0.5) {
            let name = "hypervisor".to_owned();
            return Ok((Mechanism::ScheduleSteal, Some(Culprit { kind: CulpritKind::Process, name })));
        }
        if let Some(shares) = shares
            && confined(context, off)
            && shares.idle_outside(off) >= 0.5
        {
            return Ok((Mechanism::ScheduleAffinity, Some(mask(context, off))));
        }
    }
    let (own, others) = ran_instead(context, thread.pid, off, span);
    let sum = |ran: &Ran| ran.values().fold(0_u64, |sum, (ns, _)| sum.saturating_add(*ns));
    let top = |ran: &Ran| {
        let most = ran.iter().max_by(|a, b| a.1.0.cmp(&b.1.0).then(b.0.cmp(a.0)));
        most.map(|(&pid, &(_, record))| process(context, pid, record))
    };
    match (sum(&own), sum(&others)) {
        (0, 0) if oversubscribed(context, thread.pid, off, span) => {
            Ok((Mechanism::ScheduleOversubscribed, pool(context, thread)))
        }
        (0, 0) => Err("runnable, and no record says who ran instead".to_owned()),
        (own_ns, other_ns) if other_ns > own_ns => Ok((Mechanism::ScheduleContention, top(&others))),
        _ => Ok((Mechanism::ScheduleOversubscribed, pool(context, thread).or_else(|| top(&own)))),
    }
}

/// Waits for a processor in which nobody ran instead are wake-ups on their way: they belong to the short waits that
/// they ended.
pub(crate) fn wake_ups(context: &Context<'_>, thread: &Thread, shorts: &mut Shorts, span: Span) {
    let queued = shorts.runnable_ns.saturating_sub(shorts.throttled_ns);
    let weights: Vec<u64> = shorts.blocked.iter().map(|b| b.ns).collect();
    if queued == 0 || weights.iter().all(|&ns| ns == 0) || !context.knows_who_ran {
        return;
    }
    let allowed = thread.off_cpu.last();
    let running =
        |span: Span| thread.running_before(span.end).saturating_sub(thread.running_before(span.start));
    let mut ran = 0_u64;
    for record in around(context, span).filter(|r| allowed.is_none_or(|off| in_mask(off, r.cpu))) {
        let Some(inside) = record.span.intersect(span) else { continue };
        // Short waits lie in a thread's running time, so that is where these do.
        let part = prefix_share(record.ns, running(record.span), 0, running(inside));
        ran = ran.saturating_add(part);
    }
    let woken = queued.saturating_sub(ran);
    shorts.runnable_ns -= woken;
    for (wait, part) in shorts.blocked.iter_mut().zip(apportion(woken, &weights)) {
        wait.ns += part;
    }
}

/// Who ran instead is counted in the kernel's maps, which may have been full, and written down every tick.
pub(crate) fn knows_who_ran(timeline: &Timeline) -> bool {
    let lost = |l: &Loss| l.class == LossClass::WaitTotal && l.count > 0;
    !timeline.ran_instead.is_empty() && !timeline.losses.iter().any(lost)
}

/// Who ran instead, in records that may overlap a span.
fn around<'t>(context: &Context<'t>, span: Span) -> impl Iterator<Item = &'t RanInstead> {
    let records = &context.timeline.ran_instead;
    // One record a tick: nothing that starts long before can still overlap.
    let reach = context.timeline.host.tick_ns.max(1_000_000_000).saturating_mul(4);
    let from = records.partition_point(|r| r.span.start < span.start.saturating_sub(reach));
    records[from..].iter().take_while(move |r| r.span.start < span.end)
}

/// The verdict on throttled short stays.
pub(crate) fn throttled(context: &Context<'_>, thread: &Thread) -> (Mechanism, Option<Culprit>) {
    (Mechanism::ScheduleThrottled, groups::throttled(context, thread))
}

fn confined(context: &Context<'_>, off: &OffCpu) -> bool {
    let online = context.timeline.host.online_cpus.len();
    usize::try_from(off.cpus_allowed).is_ok_and(|n| n > 0 && n < online)
}

pub(crate) fn in_mask(off: &OffCpu, cpu: u32) -> bool {
    let word = usize::try_from(cpu / 64).ok().and_then(|w| off.cpu_mask.get(w));
    // Past the stored bits nothing is known, so such a processor is not said to be outside.
    word.is_none_or(|w| w >> (cpu % 64) & 1 == 1)
}

fn mask(context: &Context<'_>, off: &OffCpu) -> Culprit {
    let online = &context.timeline.host.online_cpus;
    let allowed: Vec<String> = online.iter().filter(|&&c| in_mask(off, c)).map(u32::to_string).collect();
    let name = format!("processors {} of {}", allowed.join(","), online.len());
    Culprit { kind: CulpritKind::Mask, name }
}

/// Processes by their ids: how long they ran, and one record of it.
type Ran<'t> = BTreeMap<u32, (u64, &'t RanInstead)>;

/// Who ran on the processors it could have had: of the job, and others.
fn ran_instead<'t>(context: &Context<'t>, pid: u32, off: Option<&OffCpu>, span: Span) -> (Ran<'t>, Ran<'t>) {
    let (mut own, mut others) = (Ran::new(), Ran::new());
    for record in around(context, span) {
        let here = match off {
            Some(off) => record.cpu == off.cpu_queued || record.cpu == off.cpu_ran,
            None => true,
        };
        if here && record.span.intersect(span).is_some() {
            let side = if context.jobs.together(pid, record.pid) { &mut own } else { &mut others };
            let ran = side.entry(record.pid).or_insert((0, record));
            ran.0 = ran.0.saturating_add(record.ns.min(record.span.len()));
        }
    }
    (own, others)
}

/// The process's own name rather than one of its threads', and its id, as names are shared.
fn process(context: &Context<'_>, pid: u32, record: &RanInstead) -> Culprit {
    let leader = context.process(pid).iter().find(|k| k.tid == pid).and_then(|&k| context.thread(k));
    let comm = leader.map_or(&record.comm, |t| &t.comm);
    let mark = if pid == context.timeline.host.own_pid { ", this tracer" } else { "" };
    Culprit { kind: CulpritKind::Process, name: format!("{comm} (pid {pid}{mark})") }
}

/// More threads of the job want a processor in the middle of the wait than it may use.
fn oversubscribed(context: &Context<'_>, pid: u32, off: Option<&OffCpu>, span: Span) -> bool {
    let at = span.start + span.len() / 2;
    let processors = off.map_or(0, |o| o.cpus_allowed);
    let processors = match usize::try_from(processors) {
        Ok(n) if n > 0 => n,
        _ => context.timeline.host.online_cpus.len(),
    };
    let wanting = context
        .timeline
        .threads
        .values()
        .filter(|t| is_own(t) && context.jobs.together(pid, t.pid))
        .filter(|t| {
            t.slices_in(Span::new(at, at + 1))
                .any(|s| matches!(s.activity, Activity::Running | Activity::Runnable(_)))
        })
        .count();
    processors > 0 && wanting > processors
}

/// The library whose pool of threads is as wide as the host, where the samples of the process show one.
fn pool(context: &Context<'_>, thread: &Thread) -> Option<Culprit> {
    context.pool_library(thread.pid).map(|(library, threads)| Culprit {
        kind: CulpritKind::Library,
        name: format!("{library} ({threads} threads)"),
    })
}

/// What the processors did over the ticks around a span, as shares of the time between them.
#[derive(Debug)]
pub(crate) struct Shares {
    idle: BTreeMap<u32, f64>,
    steal: BTreeMap<u32, f64>,
}

impl Shares {
    /// Between two ticks, given by their indices.
    pub(crate) fn between(ticks: &[HostTick], from: usize, to: usize) -> Option<Self> {
        let (before, after) = (ticks.get(from)?, ticks.get(to)?);
        let first: BTreeMap<u32, _> =
            before.cpus.iter().map(|&(cpu, idle, io, steal)| (cpu, (idle, io, steal))).collect();
        let elapsed = after.at.checked_sub(before.at).filter(|&e| e > 0)?;
        let (mut idle, mut steal) = (BTreeMap::new(), BTreeMap::new());
        for &(cpu, idle_after, io_after, steal_after) in &after.cpus {
            if let Some(&(idle_before, io_before, steal_before)) = first.get(&cpu) {
                let share = |ns: u64| ns as f64 / elapsed as f64;
                let rested =
                    idle_after.saturating_sub(idle_before).saturating_add(io_after.saturating_sub(io_before));
                idle.insert(cpu, share(rested));
                steal.insert(cpu, share(steal_after.saturating_sub(steal_before)));
            }
        }
        Some(Self { idle, steal })
    }

    fn steal(&self, cpu: u32) -> f64 {
        self.steal.get(&cpu).copied().unwrap_or(0.0)
    }

    /// Processors' worth of idle time outside the thread's mask.
    fn idle_outside(&self, off: &OffCpu) -> f64 {
        self.idle.iter().filter(|&(&cpu, _)| !in_mask(off, cpu)).map(|(_, share)| share).sum()
    }
}
