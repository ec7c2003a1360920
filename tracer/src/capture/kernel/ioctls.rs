//! Calls into the NVIDIA driver's nodes: totals per process and command.
//!
//! Where the driver's entry points can be probed every call is seen. Elsewhere system calls are watched: all the
//! time only where that was asked for, else in bursts.

use aya::Ebpf;
use tracer_ebpf::wire::{IoctlKey, IoctlStart, IoctlValue};

use super::CaptureError;
use super::on_syscalls::{OnSyscalls, When, ready};
use super::settled::{Settled, Turn};
use super::tables::stored;
use crate::trace::{Counter, IoctlTotal, Ns, NvidiaIoctl, ProbeStatus, Record, Span};

const PROGRAMS: [&str; 2] = ["ioctl_sysexit", "ioctl_sysenter"];
/// The first burst comes soon, so that short recordings have one.
const FIRST: Ns = 1_000_000_000;

/// Watched time so far, for rates: bursts in which nothing was called leave no totals.
pub const WATCHED: &str = "ioctl_watched_ns";

pub struct Ioctls {
    rows: Settled<IoctlKey, IoctlValue>,
    calls: OnSyscalls<IoctlStart>,
    /// Since when the driver's own entry points are probed.
    entries: Option<Ns>,
}

impl Ioctls {
    /// `always`: watch all the time whatever it costs. `driver`: a device node of the driver can be opened here.
    ///
    /// # Errors
    /// The object has no such maps.
    pub fn new(
        ebpf: &mut Ebpf,
        probes: &[ProbeStatus],
        always: bool,
        driver: bool,
        at: Ns,
    ) -> Result<Self, CaptureError> {
        let entries = ready(probes, &["ioctl_enter", "ioctl_return"]);
        let when = match ready(probes, &PROGRAMS) && !entries {
            true if always => When::Always,
            true if driver => When::Bursts(at + FIRST),
            _ => When::Never,
        };
        Ok(Self {
            rows: Settled::take(ebpf, "IOCTLS", |k: &IoctlKey| k.epoch)?,
            calls: OnSyscalls::new(ebpf, PROGRAMS, "IOCTLS_OPEN", when)?,
            entries: entries.then_some(at),
        })
    }

    /// See [`OnSyscalls::stop_bursts`].
    pub fn stop_bursts(&mut self, ebpf: &mut Ebpf) {
        self.calls.stop_bursts(ebpf);
    }

    /// See [`OnSyscalls::before_turn`].
    pub fn before_turn(&mut self, ebpf: &mut Ebpf, at: Ns) {
        self.calls.before_turn(ebpf, at);
    }

    /// See [`OnSyscalls::after_turn`].
    ///
    /// # Errors
    /// A map could not be read.
    pub fn after_turn(&mut self, ebpf: &mut Ebpf, at: Ns) -> Result<(), CaptureError> {
        self.calls.want();
        self.calls.after_turn(ebpf, at)
    }

    /// Hands out what was added up in the tick before the one that just ended.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn flush(&mut self, turn: Turn, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.rows.flush(turn)?;
        self.send(rows, self.calls.watched(span), turn.span.end, sink);
        Ok(())
    }

    /// The last totals, once nothing is attached any more.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn rest(&mut self, at: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.rows.rest()?;
        self.send(rows, self.calls.watched(span), at, sink);
        if self.watched_ns(at) > 0 {
            self.say_watched(at, sink);
        }
        Ok(())
    }

    fn send(&self, mut rows: Vec<(IoctlKey, IoctlValue)>, span: Span, at: Ns, sink: &mut dyn FnMut(Record)) {
        rows.sort_by_key(|(k, _)| (k.pid, k.major, k.command, k.inner, k.has_inner, k.epoch));
        rows.iter().for_each(|(key, value)| sink(Record::IoctlTotal(total(span, key, value))));
        if !rows.is_empty() {
            self.say_watched(at, sink);
        }
    }

    fn say_watched(&self, at: Ns, sink: &mut dyn FnMut(Record)) {
        sink(Record::Counter(Counter { at, name: WATCHED.into(), value: self.watched_ns(at) }));
    }

    fn watched_ns(&self, at: Ns) -> u64 {
        self.entries.map_or_else(|| self.calls.watched_ns(at), |since| at.saturating_sub(since))
    }
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
