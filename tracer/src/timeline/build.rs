//! Records in, in any order; [`Timeline`] out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::identity::{Identity, Names, share_process};
use super::model::{DeviceTrack, Thread, Timeline};
use super::order::{in_order, keep, keep_in, order};
use super::shorts::Index;
use super::slices::{Life, slices, tidy};
use super::waits;
use crate::trace::{
    Collective, CudaCall, Device, Host, HostTick, MajorFault, Ns, OffCpu, Reclaim, Record, Sample, Span,
    State, Submits, TargetKind, ThreadKey, WaitTotal,
};

#[derive(Default)]
struct Raw {
    names: Names,
    off_cpu: Vec<OffCpu>,
    totals: Vec<WaitTotal>,
    samples: Vec<Sample>,
    faults: Vec<MajorFault>,
    submits: Vec<Submits>,
    calls: Vec<CudaCall>,
    collectives: Vec<Collective>,
    reclaims: Vec<Reclaim>,
}

/// Everything, sorted into its place but not yet in order.
#[derive(Default)]
struct Sorter {
    timeline: Timeline,
    host: Option<Host>,
    ended: Option<crate::trace::End>,
    devices: BTreeMap<u32, Option<Device>>,
    threads: BTreeMap<ThreadKey, Raw>,
    /// First and last time of anything seen while it was recorded.
    first: Option<Ns>,
    last: Ns,
}

/// Builds the timeline of a recording. Takes records in any order, with duplicates, overlaps and
/// contradictions; the same records in another order give the same timeline.
#[must_use]
pub fn build(records: impl IntoIterator<Item = Record>) -> Timeline {
    let mut sorter = Sorter::default();
    for record in records {
        sorter.take(record);
    }
    sorter.finish()
}

impl Sorter {
    fn take(&mut self, record: Record) {
        let timeline = &mut self.timeline;
        match record {
            Record::Host(host) => keep(&mut self.host, host),
            Record::Device(device) => keep(self.devices.entry(device.index).or_default(), device),
            Record::Probe(probe) => timeline.probes.push(probe),
            Record::File(file) => keep_in(&mut timeline.files, file.id, file),
            Record::Stack(stack) => keep_in(&mut timeline.stacks, stack.id, stack),
            Record::PythonStack(stack) => keep_in(&mut timeline.python_stacks, stack.id, stack),
            Record::Symbol(symbol) => {
                keep_in(&mut timeline.names, (symbol.pid, symbol.image, symbol.address), Arc::new(symbol));
            }
            Record::Mapping(mapping) => {
                self.saw(mapping.at, mapping.at);
                self.timeline.mappings.push(mapping);
            }
            Record::Counter(counter) => {
                self.saw(counter.at, counter.at);
                self.timeline.counters.push(counter);
            }
            Record::DeviceProcess(process) => {
                self.reaches(process.at);
                self.track(process.device).processes.push(process);
            }
            Record::Reading(reading) => {
                self.reaches(reading.span.end);
                self.track(reading.device).readings.push(reading);
            }
            Record::Block(block) => {
                self.reaches(block.span.start.max(block.span.end));
                self.timeline.blocks.push(block);
            }
            Record::RanInstead(ran) => {
                self.reaches(ran.span.start.max(ran.span.end));
                self.timeline.ran_instead.push(ran);
            }
            Record::HostTick(tick) => {
                self.saw(tick.at, tick.at);
                self.timeline.host_ticks.push(tick);
            }
            Record::CgroupTick(tick) => {
                self.saw(tick.at, tick.at);
                self.timeline.cgroup_ticks.push(tick);
            }
            Record::Loss(loss) => {
                self.reaches(loss.at);
                self.timeline.losses.push(loss);
            }
            Record::Step(step) => {
                self.saw(step.at, step.at);
                self.timeline.steps.push(step);
            }
            Record::Polled(polled) => {
                self.saw(polled.at, polled.at);
                self.timeline.polled.push(polled);
            }
            Record::End(end) => {
                self.saw(end.at, end.at);
                let later = self.ended.as_ref().is_none_or(|kept| kept.at <= end.at);
                if self.ended.as_ref().is_some_and(|kept| kept.at < end.at) {
                    self.ended = None;
                }
                if later {
                    keep(&mut self.ended, end);
                }
            }
            Record::DeviceActivity(activity) => {
                self.reaches(activity.span.end);
                self.track(activity.device).activities.push(activity);
            }
            Record::DeviceState(state) => {
                self.reaches(state.at);
                self.track(state.device).states.push(state);
            }
            Record::DeviceEvent(event) => {
                self.reaches(event.at);
                self.track(event.device).events.push(event);
            }
            Record::DeviceClock(clock) => {
                self.reaches(clock.at);
                self.track(clock.device).clocks.push(clock);
            }
            Record::CudaContext(context) => {
                self.saw(context.at, context.at);
                self.timeline.cuda_contexts.push(context);
            }
            Record::CudaWatch(watch) => {
                self.saw(watch.at, watch.at);
                self.timeline.cuda_watches.push(watch);
            }
            Record::IoctlTotal(total) => {
                self.reaches(total.span.start.max(total.span.end));
                self.timeline.ioctls.push(total);
            }
            Record::FileReads(reads) => {
                self.reaches(reads.span.start.max(reads.span.end));
                self.timeline.file_reads.push(reads);
            }
            Record::FaultTotal(total) => {
                self.reaches(total.span.start.max(total.span.end));
                self.timeline.fault_totals.push(total);
            }
            record => self.take_of_thread(record),
        }
    }

    fn take_of_thread(&mut self, record: Record) {
        match record {
            Record::Thread(seen) => {
                self.saw(seen.at, seen.at);
                self.raw(seen.key, None).names.seen.push(seen);
            }
            Record::ThreadExec(exec) => {
                self.saw(exec.at, exec.at);
                self.raw(exec.key, None).names.execs.push(exec);
            }
            Record::ThreadExit(exit) => {
                self.saw(exit.at, exit.at);
                self.raw(exit.key, None).names.exits.push(exit);
            }
            Record::OffCpu(off) => {
                self.saw(off.left, off.ran);
                self.raw(off.thread, Some(off.pid)).off_cpu.push(off);
            }
            Record::WaitTotal(total) => {
                self.saw(total.first, total.last);
                self.raw(total.thread, Some(total.pid)).totals.push(total);
            }
            Record::Sample(sample) => {
                self.saw(sample.at, sample.at);
                self.raw(sample.thread, Some(sample.pid)).samples.push(sample);
            }
            Record::MajorFault(fault) => {
                self.saw(fault.at, fault.at);
                self.raw(fault.thread, Some(fault.pid)).faults.push(fault);
            }
            Record::Submits(submits) => {
                self.saw(submits.first, submits.last);
                self.raw(submits.thread, Some(submits.pid)).submits.push(submits);
            }
            Record::CudaCall(call) => {
                self.saw(call.entry, call.exit.unwrap_or(call.entry));
                self.raw(call.thread, Some(call.pid)).calls.push(call);
            }
            Record::Collective(collective) => {
                self.saw(collective.entry, collective.exit.unwrap_or(collective.entry));
                self.raw(collective.thread, Some(collective.pid)).collectives.push(collective);
            }
            Record::Reclaim(reclaim) => {
                self.saw(reclaim.span.start, reclaim.span.end);
                self.raw(reclaim.thread, Some(reclaim.pid)).reclaims.push(reclaim);
            }
            _ => {}
        }
    }

    /// Something seen while it was recorded: it went on then.
    fn saw(&mut self, from: Ns, to: Ns) {
        self.first = Some(self.first.map_or(from, |first| first.min(from)));
        self.reaches(from.max(to));
    }

    /// Something that may come from before the recording, as a device's memory of its load does: it tells
    /// nothing of the start.
    fn reaches(&mut self, to: Ns) {
        self.last = self.last.max(to);
    }

    fn track(&mut self, device: u32) -> &mut DeviceTrack {
        self.timeline.devices.entry(device).or_default()
    }

    fn raw(&mut self, key: ThreadKey, pid: Option<u32>) -> &mut Raw {
        let raw = self.threads.entry(key).or_default();
        // The largest, so that which came last does not matter.
        raw.names.pid = raw.names.pid.max(pid);
        raw
    }

    fn finish(mut self) -> Timeline {
        // With no start and nothing seen, no time is known to have been recorded.
        let start = self.host.as_ref().map(|h| h.start_ns).or(self.first).unwrap_or(self.last);
        let end = self.ended.as_ref().map_or(self.last, |e| e.at);
        let span = Span::new(start, end);
        self.timeline.span = span;
        for (index, device) in std::mem::take(&mut self.devices) {
            self.track(index).device = device.unwrap_or_default();
        }
        let mut timeline = self.timeline;
        timeline.host_known = self.host.is_some();
        timeline.host = self.host.unwrap_or_else(|| without_host(&timeline.host_ticks, start));
        timeline.ended = self.ended;
        for (&index, track) in &mut timeline.devices {
            track.device.index = index;
            order(&mut track.processes, |p| p.at);
            track.readings = in_order(std::mem::take(&mut track.readings));
            order(&mut track.activities, |a| a.span.start);
            order(&mut track.states, |s| s.at);
            order(&mut track.events, |e| e.at);
            order(&mut track.clocks, |c| c.at);
        }
        order(&mut timeline.probes, |_| 0);
        order(&mut timeline.mappings, |m| m.at);
        order(&mut timeline.blocks, |b| b.span.start);
        order(&mut timeline.ran_instead, |r| r.span.start);
        order(&mut timeline.host_ticks, |t| t.at);
        order(&mut timeline.cgroup_ticks, |t| t.at);
        order(&mut timeline.losses, |l| l.at);
        order(&mut timeline.steps, |s| s.at);
        order(&mut timeline.polled, |p| p.at);
        order(&mut timeline.cuda_contexts, |c| c.at);
        order(&mut timeline.cuda_watches, |w| w.at);
        order(&mut timeline.ioctls, |i| i.span.start);
        order(&mut timeline.counters, |c| c.at);
        order(&mut timeline.file_reads, |r| r.span.start);
        order(&mut timeline.fault_totals, |f| f.span.start);

        let mut identities: BTreeMap<_, _> =
            self.threads.iter_mut().map(|(&key, raw)| (key, raw.names.resolve())).collect();
        share_process(&mut identities);
        for ((key, raw), identity) in self.threads.into_iter().zip(identities.into_values()) {
            timeline.threads.insert(key, thread(key, raw, identity, &timeline.host, span));
        }
        link(&mut timeline.threads);
        timeline
    }
}

/// What other records tell of a host whose own record is lost.
fn without_host(ticks: &[HostTick], start_ns: Ns) -> Host {
    let mut online_cpus: Vec<u32> = ticks.iter().flat_map(|t| &t.cpus).map(|cpu| cpu.0).collect();
    online_cpus.sort_unstable();
    online_cpus.dedup();
    Host { online_cpus, start_ns, ..Host::default() }
}

fn thread(key: ThreadKey, mut raw: Raw, identity: Identity, host: &Host, recording: Span) -> Thread {
    order(&mut raw.off_cpu, |o| o.left);
    for total in &mut raw.totals {
        total.last = total.last.max(total.first);
    }
    order(&mut raw.totals, |t| t.first);
    order(&mut raw.samples, |s| s.at);
    order(&mut raw.faults, |f| f.at);
    for submits in &mut raw.submits {
        submits.last = submits.last.max(submits.first);
    }
    order(&mut raw.submits, |s| s.first);
    for call in &mut raw.calls {
        call.exit = call.exit.map(|exit| exit.max(call.entry));
    }
    order(&mut raw.calls, |c| c.entry);
    order(&mut raw.collectives, |c| c.entry);
    order(&mut raw.reclaims, |r| r.span.start);

    let own = [
        raw.off_cpu.first().map(|o| o.left),
        raw.totals.first().map(|t| t.first),
        raw.samples.first().map(|s| s.at),
        raw.submits.first().map(|s| s.first),
        raw.calls.first().map(|c| c.entry),
    ];
    let own = own.into_iter().flatten().min();
    // Own records are only ever written of targets, so a thread that has some was one.
    let kind = match identity.kind {
        TargetKind::Bystander if own.is_some() => TargetKind::Adopted,
        kind => kind,
    };
    let life = life(&identity, kind, own, &raw.off_cpu, host, recording);
    let exited = identity.exited.is_some() || raw.off_cpu.iter().any(|o| o.state == State::Dead);
    let off_cpu = tidy(raw.off_cpu, life.span);
    let slices = if kind == TargetKind::Bystander { Vec::new() } else { slices(&off_cpu, life) };
    let index = Index::new(&slices, &raw.totals);
    Thread {
        key,
        pid: identity.pid,
        ppid: identity.ppid,
        comm: identity.comm,
        kind,
        kernel_thread: identity.kernel_thread,
        creator: identity.creator,
        born: identity.born,
        exited: exited.then_some(life.span.end),
        execs: identity.execs,
        cgroups: identity.cgroups,
        cmdline: identity.cmdline,
        slices,
        off_cpu,
        totals: raw.totals,
        samples: raw.samples,
        faults: raw.faults,
        submits: raw.submits,
        calls: raw.calls,
        collectives: raw.collectives,
        reclaims: raw.reclaims,
        merged: Vec::new(),
        given: Vec::new(),
        index,
    }
}

fn life(
    identity: &Identity,
    kind: TargetKind,
    own: Option<Ns>,
    off_cpu: &[OffCpu],
    host: &Host,
    recording: Span,
) -> Life {
    let start = identity.born.unwrap_or(recording.start).clamp(recording.start, recording.end);
    let dead = off_cpu.iter().filter(|o| o.state == State::Dead).map(|o| o.left).min();
    // An exiting thread may still wait (tearing down its memory) after it said that it exits.
    let lasted = off_cpu.iter().map(|o| o.ran).max().unwrap_or(0);
    let end = dead.or(identity.exited.map(|e| e.max(lasted))).unwrap_or(recording.end);
    let span = Span::new(start, end.clamp(start, recording.end));
    let since = [identity.target_since, own].into_iter().flatten().min().unwrap_or(span.start);
    // Finding the first targets takes a moment after the recording's start, and what they did in it was
    // running unless an interval cut at the start says otherwise.
    let from_start = kind != TargetKind::Adopted && since <= recording.start.saturating_add(host.tick_ns);
    let seen_from = if identity.born.is_some() || from_start { span.start } else { since };
    Life { span, seen_from }
}

/// Fills in what takes all threads: wake-ups given, and the waits that are one because of them.
fn link(threads: &mut BTreeMap<ThreadKey, Thread>) {
    let mut given = waits::given(threads);
    for (key, thread) in threads {
        thread.given = given.remove(key).unwrap_or_default();
        thread.merged = waits::merge(thread);
        let mut merged_of = vec![None; thread.off_cpu.len()];
        for (group, wait) in thread.merged.iter().enumerate() {
            for &member in &wait.members {
                merged_of[member] = Some(group);
            }
        }
        thread.index.merged_of = merged_of;
    }
}
