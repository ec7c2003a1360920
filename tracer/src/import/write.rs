//! Items in the order of time become records.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::collect::{Call, Collector, Sorted, What};
use super::event::Stamp;
use super::reduce::{Edges, THRESHOLD_NS};
use super::stacks::{Open, Out, PERIOD_NS, Stacks};
use super::truth::{NVML_WINDOW_NS, Union, Windows};
use super::{Activity, Imported, lacks};
use crate::trace::{
    CudaContext, Device, DeviceProcess, End, Host, Loss, LossCause, LossClass, Ns, Record, Span, TargetKind,
    ThreadSeen,
};

/// Where the first host event lies in the trace. A device's activity may come a day before it.
const ORIGIN_NS: Ns = 3 * 86_400_000_000_000;
/// Unix times of the profiler's age, in nanoseconds: where a stamp lies in it, it is one.
const UNIX: std::ops::Range<i64> = 1_400_000_000_000_000_000..4_000_000_000_000_000_000;

pub(super) fn write(
    collector: Collector,
    cut: Option<String>,
    activity: Activity,
    out: &mut Out,
) -> io::Result<Imported> {
    let mut sorted = collector.sorted()?;
    let first = sorted.next().transpose()?;
    let Some(first) = first else {
        return Ok(Imported { tally: sorted.tally, cut, ..Imported::default() });
    };
    let origin = sorted.first_host.unwrap_or(first.at);
    let mut writer = Writer::new(origin, first.at, activity);
    writer.host(&sorted, first.at, out)?;
    let mut next = Some(first);
    while let Some(timed) = next {
        let span = writer.span(timed.at, timed.end.0);
        writer.end = writer.end.max(span.end);
        match timed.what {
            What::Busy { device } => writer.busy(device, span, out)?,
            What::Op { name } => writer.op(&sorted, timed.thread, span, name, out)?,
            What::Call(call) => writer.call(&sorted, timed.thread, span, &call, out)?,
        }
        next = sorted.next().transpose()?;
    }
    writer.finish(&sorted, cut, out)
}

/// One thread as far as the items have come.
#[derive(Debug, Default)]
struct Thread {
    edges: Edges,
    open: Open,
}

struct Writer<'a> {
    activity: Activity<'a>,
    origin: Stamp,
    start: Ns,
    end: Ns,
    threads: BTreeMap<u32, Thread>,
    stacks: Stacks,
    devices: BTreeMap<u32, (Union, Option<Windows>)>,
    /// Written already: processes on devices, and their contexts.
    on: BTreeSet<(u32, u32)>,
    contexts: BTreeSet<(u32, u64)>,
}

impl<'a> Writer<'a> {
    fn new(origin: Stamp, first: Stamp, activity: Activity<'a>) -> Self {
        let mut writer = Self {
            activity,
            origin,
            start: 0,
            end: 0,
            threads: BTreeMap::new(),
            stacks: Stacks::default(),
            devices: BTreeMap::new(),
            on: BTreeSet::new(),
            contexts: BTreeSet::new(),
        };
        writer.start = writer.ns(first);
        writer
    }

    fn ns(&self, stamp: Stamp) -> Ns {
        ORIGIN_NS.saturating_add_signed(stamp.saturating_sub(self.origin))
    }

    fn span(&self, start: Stamp, end: Stamp) -> Span {
        Span::new(self.ns(start), self.ns(end))
    }

    fn window(&self) -> u64 {
        match self.activity {
            Activity::Readings(window) => window,
            Activity::Truth(_) => NVML_WINDOW_NS,
        }
    }

    fn host(&self, sorted: &Sorted, first: Stamp, out: &mut Out) -> io::Result<()> {
        let unix = first.saturating_add(sorted.base.unwrap_or(0));
        out(Record::Host(Host {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            threshold_ns: THRESHOLD_NS,
            sample_period_ns: PERIOD_NS,
            tick_ns: self.window(),
            start_ns: self.start,
            start_unix_ns: if UNIX.contains(&unix) { unix.unsigned_abs() } else { 0 },
            command: "import of a PyTorch profiler's recording".into(),
            ..Host::default()
        }))
    }

    fn busy(&mut self, device: u32, span: Span, out: &mut Out) -> io::Result<()> {
        let (union, windows) = self.devices.entry(device).or_default();
        let done = union.add(span);
        done.map_or(Ok(()), |done| stretch(&mut self.activity, windows, device, done, out))
    }

    fn op(&mut self, sorted: &Sorted, number: u32, span: Span, name: u32, out: &mut Out) -> io::Result<()> {
        let who = sorted.names.who(number);
        let thread = self.threads.entry(number).or_default();
        self.stacks.sample(who, &mut thread.open, span.start, &sorted.names, out)?;
        thread.open.enter(name, span.end);
        Ok(())
    }

    fn call(
        &mut self,
        sorted: &Sorted,
        number: u32,
        span: Span,
        call: &Call,
        out: &mut Out,
    ) -> io::Result<()> {
        let who = sorted.names.who(number);
        if let Some(device) = call.told.device {
            let (at, pid, context) = (span.start, who.pid, call.told.context);
            if self.on.insert((pid, device)) {
                out(Record::DeviceProcess(DeviceProcess { at, device, pid, used_memory: None }))?;
            }
            if context != 0 && self.contexts.insert((pid, context)) {
                out(Record::CudaContext(CudaContext { at, pid, context, ordinal: device }))?;
            }
        }
        let thread = self.threads.entry(number).or_default();
        self.stacks.sample(who, &mut thread.open, span.start, &sorted.names, out)?;
        let stack = self.stacks.at(who, &mut thread.open, span.start, &sorted.names, out)?;
        thread.edges.call(who, span, call, stack, out)
    }

    fn finish(mut self, sorted: &Sorted, cut: Option<String>, out: &mut Out) -> io::Result<Imported> {
        for (&device, (union, windows)) in &mut self.devices {
            if let Some(last) = union.last() {
                stretch(&mut self.activity, windows, device, last, out)?;
            }
            if let Some(reading) = windows.and_then(Windows::last) {
                out(Record::Reading(reading))?;
            }
            out(Record::Device(Device {
                index: device,
                name: sorted.devices.get(&device).cloned().unwrap_or_default(),
                sample_period_ns: match self.activity {
                    Activity::Readings(window) => Some(window),
                    Activity::Truth(_) => None,
                },
                ..Device::default()
            }))?;
        }
        for (&number, thread) in &mut self.threads {
            let who = sorted.names.who(number);
            self.stacks.sample(who, &mut thread.open, self.end, &sorted.names, out)?;
            thread.edges.finish(out)?;
            out(Record::Thread(ThreadSeen {
                at: self.start,
                key: who.key,
                pid: who.pid,
                ppid: 0,
                comm: sorted.names.comm(number).into(),
                creator: None,
                born: None,
                kind: TargetKind::Named,
                kernel_thread: false,
                cgroups: Vec::new(),
                cmdline: Vec::new(),
            }))?;
        }
        let lacks = lacks::of(&sorted.tally, cut.as_deref());
        for probe in lacks::probes(&sorted.tally, &lacks) {
            out(Record::Probe(probe))?;
        }
        let tally = &sorted.tally;
        let lost = [
            (u64::from(cut.is_some()), LossClass::Stored, LossCause::Damaged),
            (tally.malformed, LossClass::Cuda, LossCause::Undecodable),
            (tally.negative, LossClass::Cuda, LossCause::TimeTravel),
        ];
        for (count, class, cause) in lost.into_iter().filter(|row| row.0 > 0) {
            out(Record::Loss(Loss { at: self.end, class, cpu: None, cause, count, ns_at_risk: 0 }))?;
        }
        self.stacks.symbols(&sorted.names, out)?;
        if cut.is_none() {
            let (at, reason) = (self.end, "the recording ended".into());
            out(Record::End(End { at, reason, exit_status: None }))?;
        }
        let span = Span::new(self.start, self.end);
        Ok(Imported { tally: sorted.tally, lacks, cut, span })
    }
}

/// A busy stretch of a device is complete.
fn stretch(
    activity: &mut Activity,
    windows: &mut Option<Windows>,
    device: u32,
    span: Span,
    out: &mut Out,
) -> io::Result<()> {
    match activity {
        Activity::Readings(window) => {
            let windows = windows.get_or_insert_with(|| Windows::new(device, *window));
            windows.busy(span, &mut |reading| out(Record::Reading(reading)))
        }
        Activity::Truth(by_device) => {
            by_device.entry(device).or_default().push(span);
            Ok(())
        }
    }
}
