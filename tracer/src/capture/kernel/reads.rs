//! Reads of regular files, per process and file. Watched all the time where asked for; otherwise in bursts, and
//! only while a target waits for storage.

use aya::Ebpf;
use tracer_ebpf::wire::{ReadKey, ReadValue, Reading};

use super::CaptureError;
use super::on_syscalls::{OnSyscalls, When, ready};
use super::settled::{Settled, Turn};
use super::tables::stored;
use crate::trace::{FileReads, Ns, OffCpu, ProbeStatus, Record, Span, State};

const PROGRAMS: [&str; 2] = ["read_exit", "read_enter"];

pub(super) struct Reads {
    rows: Settled<ReadKey, ReadValue>,
    calls: OnSyscalls<Reading>,
}

impl Reads {
    /// # Errors
    /// The object has no such map.
    pub(super) fn new(ebpf: &mut Ebpf, always: bool, probes: &[ProbeStatus]) -> Result<Self, CaptureError> {
        let when = match ready(probes, &PROGRAMS) {
            true if always => When::Always,
            true => When::Bursts(0),
            false => When::Never,
        };
        Ok(Self {
            rows: Settled::take(ebpf, "READS", |k: &ReadKey| k.epoch)?,
            calls: OnSyscalls::new(ebpf, PROGRAMS, "READING", when)?,
        })
    }

    /// A wait for storage makes the next burst worth while.
    pub(super) fn see(&mut self, record: &Record) {
        if let Record::OffCpu(OffCpu { state: State::Uninterruptible, file: Some(_), .. }) = record {
            self.calls.want();
        }
    }

    /// See [`OnSyscalls::stop_bursts`].
    pub(super) fn stop_bursts(&mut self, ebpf: &mut Ebpf) {
        self.calls.stop_bursts(ebpf);
    }

    /// See [`OnSyscalls::before_turn`].
    pub(super) fn before_turn(&mut self, ebpf: &mut Ebpf, at: Ns) {
        self.calls.before_turn(ebpf, at);
    }

    /// See [`OnSyscalls::after_turn`].
    ///
    /// # Errors
    /// A map could not be read.
    pub(super) fn after_turn(&mut self, ebpf: &mut Ebpf, at: Ns) -> Result<(), CaptureError> {
        self.calls.after_turn(ebpf, at)
    }

    /// # Errors
    /// The map could not be read.
    pub(super) fn flush(&mut self, turn: Turn, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.rows.flush(turn)?;
        send(rows, self.calls.watched(span), sink);
        Ok(())
    }

    /// What is left once no program runs any more.
    ///
    /// # Errors
    /// The map could not be read.
    pub(super) fn rest(&mut self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.rows.rest()?;
        send(rows, self.calls.watched(span), sink);
        Ok(())
    }
}

fn send(mut rows: Vec<(ReadKey, ReadValue)>, span: Span, sink: &mut dyn FnMut(Record)) {
    rows.sort_by_key(|(k, _)| (k.pid, k.file, k.epoch));
    rows.iter().for_each(|(k, v)| sink(Record::FileReads(file_reads(k, v, span))));
}

fn file_reads(k: &ReadKey, v: &ReadValue, span: Span) -> FileReads {
    FileReads {
        span,
        pid: k.pid,
        file: k.file,
        reads: v.reads,
        bytes: v.bytes,
        ns: v.ns,
        histogram: stored(v.histogram),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_record() {
        let mut v = ReadValue { reads: 3, bytes: 192, ns: 6_000, ..ReadValue::default() };
        (v.histogram[0], v.histogram[1]) = (2, u64::MAX);
        let span = Span::new(5, 9);
        let record = file_reads(&ReadKey { file: 7, pid: 4, epoch: 1 }, &v, span);
        assert_eq!((record.file, record.pid, record.span), (7, 4, span));
        assert_eq!((record.reads, record.bytes, record.ns), (3, 192, 6_000));
        assert_eq!(record.histogram[..3], [2, u32::MAX, 0]);
    }
}
