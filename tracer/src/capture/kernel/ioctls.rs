//! Calls into the NVIDIA driver's nodes: which are watched when, and their totals.
//!
//! Where the driver's entry points can be probed every call is seen. Elsewhere the tracepoints of the system call
//! are, which cost every system call of the host: all the time only where that was asked for, else in bursts.

use std::thread::JoinHandle;

use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapError};
use aya::programs::trace_point::{TracePointLink, TracePointLinkId};
use aya::programs::{Program, ProgramError, TracePoint};
use tracer_ebpf::wire::{IoctlKey, IoctlStart, IoctlValue};

use super::CaptureError;
use super::now::now;
use super::probes::SYSCALL_IOCTL;
use super::tables::{drained, stored, take};
use crate::trace::{Counter, IoctlTotal, Ns, NvidiaIoctl, ProbeStatus, Record, Span};

/// Length of a burst at least; taking tracepoints out takes tens of milliseconds.
const BURST: Ns = 300_000_000;
/// From the start of one burst to the next.
const EVERY: Ns = 20_000_000_000;
/// The first burst comes soon, so that short recordings have one.
const FIRST: Ns = 1_000_000_000;

/// Watched time so far, for rates: bursts in which nothing was called leave no totals.
pub const WATCHED: &str = "ioctl_watched_ns";

pub struct Ioctls {
    totals: HashMap<MapData, IoctlKey, IoctlValue>,
    open: HashMap<MapData, u32, IoctlStart>,
    way: Way,
    /// From when on nothing was handed out yet, while calls are watched.
    since: Option<Ns>,
    watched_ns: u64,
}

/// How calls are seen.
enum Way {
    /// At the driver's entry points, or by tracepoints that stay.
    Always,
    Bursts {
        next: Ns,
        state: Burst,
    },
    Never,
}

enum Burst {
    Off,
    On {
        began: Ns,
        links: Vec<TracePointLink>,
    },
    /// Being taken out behind the tick's back; ends with the time when that was done.
    Ending(JoinHandle<Ns>),
}

impl Ioctls {
    /// `always`: watch all the time whatever it costs. `driver`: a device node of the driver can be opened here.
    ///
    /// # Errors
    /// The object has no such maps.
    pub fn new(
        ebpf: &mut Ebpf,
        probes: &mut [ProbeStatus],
        always: bool,
        driver: bool,
        at: Ns,
    ) -> Result<Self, CaptureError> {
        let (totals, open) = (take(ebpf, "IOCTLS")?, take(ebpf, "IOCTLS_OPEN")?);
        let attached = |name: &str| probes.iter().any(|p| p.name == name && p.attached);
        let mut this = Self { totals, open, way: Way::Never, since: None, watched_ns: 0 };
        if attached("ioctl_enter") && attached("ioctl_return") {
            this.way = Way::Always;
            this.since = Some(at);
        } else if SYSCALL_IOCTL.iter().all(|(program, _)| attached(program)) {
            if !always {
                if driver {
                    this.way = Way::Bursts { next: at + FIRST, state: Burst::Off };
                }
                return Ok(this);
            }
            match links(ebpf) {
                // They go with their programs.
                Ok(_) => {
                    this.way = Way::Always;
                    this.since = Some(now());
                }
                Err(e) => refused(probes, &e),
            }
        }
        Ok(this)
    }

    /// Hands out what was added up in the epochs before `turn`, and begins or ends a burst.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn tick(
        &mut self,
        ebpf: &mut Ebpf,
        turn: u32,
        at: Ns,
        sink: &mut dyn FnMut(Record),
    ) -> Result<(), CaptureError> {
        let closed = self.closed();
        self.flush(turn, closed.unwrap_or(at), sink)?;
        if closed.is_some() {
            self.since = None;
        }
        let Way::Bursts { next, state } = &mut self.way else { return Ok(()) };
        match std::mem::replace(state, Burst::Off) {
            Burst::Off if at >= *next => {
                *next = at + EVERY;
                // Calls under way when the last burst ended.
                drained(&mut self.open, |_| true).map_err(|e| failed("IOCTLS_OPEN", e))?;
                match links(ebpf).and_then(|ids| ids.into_iter().map(|(p, id)| owned(ebpf, p, id)).collect())
                {
                    Ok(links) => {
                        let began = now();
                        *state = Burst::On { began, links };
                        self.since = Some(began);
                    }
                    Err(e) => {
                        tracing::debug!(error = %e, "ioctls are not watched in bursts");
                        self.way = Way::Never;
                    }
                }
            }
            Burst::On { began, links } if at >= began + BURST => {
                let closing = move || {
                    // Entries first: a call must not be entered without an exit to come.
                    links.into_iter().rev().for_each(drop);
                    now()
                };
                *state = Burst::Ending(std::thread::spawn(closing));
            }
            same => *state = same,
        }
        Ok(())
    }

    /// When the last burst was over, if it is and that was not said yet.
    fn closed(&mut self) -> Option<Ns> {
        let Way::Bursts { state, .. } = &mut self.way else { return None };
        match std::mem::replace(state, Burst::Off) {
            Burst::Ending(closing) if closing.is_finished() => Some(closing.join().unwrap_or_else(|_| now())),
            same => {
                *state = same;
                None
            }
        }
    }

    fn flush(&mut self, turn: u32, at: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let Some(since) = self.since else { return Ok(()) };
        let span = Span::new(since, at);
        self.since = Some(at);
        self.watched_ns += span.len();
        let mut rows = drained(&mut self.totals, |k| k.epoch != turn).map_err(|e| failed("IOCTLS", e))?;
        rows.sort_by_key(|(k, _)| (k.pid, k.major, k.command, k.inner, k.has_inner, k.epoch));
        for (key, value) in &rows {
            sink(Record::IoctlTotal(total(span, key, value)));
        }
        if !rows.is_empty() {
            sink(Record::Counter(Counter { at, name: WATCHED.into(), value: self.watched_ns }));
        }
        Ok(())
    }

    /// The last totals, once nothing is attached any more.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn finish(&mut self, turn: u32, at: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        if let Way::Bursts { state, .. } = &mut self.way {
            match std::mem::replace(state, Burst::Off) {
                Burst::On { links, .. } => drop(links),
                Burst::Ending(closing) => drop(closing.join()),
                Burst::Off => {}
            }
        }
        self.flush(turn, at, sink)?;
        if self.watched_ns > 0 {
            sink(Record::Counter(Counter { at, name: WATCHED.into(), value: self.watched_ns }));
        }
        Ok(())
    }
}

fn failed(what: &str, error: MapError) -> CaptureError {
    CaptureError::Kernel { what: what.into(), source: Box::new(error) }
}

fn refused(probes: &mut [ProbeStatus], error: &ProgramError) {
    for (program, _) in SYSCALL_IOCTL {
        for status in probes.iter_mut().filter(|s| s.name == program) {
            (status.attached, status.reason) = (false, error.to_string());
        }
    }
}

fn program<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut TracePoint, ProgramError> {
    ebpf.program_mut(name).map_or(Err(ProgramError::NotLoaded), |p: &mut Program| p.try_into())
}

/// Attaches both, the exit first: a call must not be entered without an exit to come.
fn links(ebpf: &mut Ebpf) -> Result<Vec<(&'static str, TracePointLinkId)>, ProgramError> {
    SYSCALL_IOCTL
        .iter()
        .rev()
        .map(|(name, event)| Ok((*name, program(ebpf, name)?.attach("syscalls", event)?)))
        .collect()
}

fn owned(ebpf: &mut Ebpf, name: &str, id: TracePointLinkId) -> Result<TracePointLink, ProgramError> {
    program(ebpf, name)?.take_link(id)
}

fn total(span: Span, key: &IoctlKey, value: &IoctlValue) -> IoctlTotal {
    let inner = (key.has_inner != 0).then_some(key.inner);
    IoctlTotal {
        span,
        pid: key.pid,
        major: key.major,
        ioctl: NvidiaIoctl { command: key.command, inner },
        count: value.count,
        ns: value.ns,
        longest_ns: value.longest,
        histogram: stored(value.histogram),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_a_total() {
        let key =
            IoctlKey { pid: 4, major: 195, command: 0xc020_462a, inner: 0x0101, has_inner: 1, epoch: 9 };
        let mut value = IoctlValue { count: 3, ns: 900, longest: 500, ..IoctlValue::default() };
        value.histogram[0] = 3;
        let seen = total(Span::new(5, 8), &key, &value);
        assert_eq!(seen.ioctl, NvidiaIoctl { command: 0xc020_462a, inner: Some(0x0101) });
        assert_eq!((seen.count, seen.ns, seen.longest_ns, seen.histogram[0]), (3, 900, 500, 3));
        let without = total(Span::new(5, 8), &IoctlKey { has_inner: 0, ..key }, &value);
        assert_eq!(without.ioctl.inner, None);
    }
}
