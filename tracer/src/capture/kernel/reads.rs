//! Reads of regular files, per process and file. Watched all the time where asked for; otherwise in bursts, and
//! only while a target waits for storage: the pair of programs taxes every system call on the host.

use aya::Ebpf;
use tracer_ebpf::wire::{ReadKey, ReadValue};

use super::CaptureError;
use super::probes::OnDemand;
use super::settled::{Settled, Turn};
use super::tables::stored;
use crate::trace::{FileReads, Ns, OffCpu, ProbeStatus, Record, Span, State};

const PROGRAMS: [&str; 2] = ["read_exit", "read_enter"];
/// A burst lasts at least this long, to the end of its tick.
const BURST: Ns = 300_000_000;
/// From one burst's beginning to the next one's.
const EVERY: Ns = 20_000_000_000;

pub(super) struct Reads {
    rows: Settled<ReadKey, ReadValue>,
    programs: OnDemand,
    always: bool,
    /// Both programs are loaded.
    can: bool,
    /// A target waited for storage since the last burst began.
    wanted: bool,
    since: Option<Ns>,
    next: Ns,
    watches: u64,
}

impl Reads {
    /// # Errors
    /// The object has no such map.
    pub(super) fn new(ebpf: &mut Ebpf, always: bool, probes: &[ProbeStatus]) -> Result<Self, CaptureError> {
        let can = PROGRAMS.iter().all(|p| probes.iter().any(|s| s.name == *p && s.attached));
        Ok(Self {
            rows: Settled::take(ebpf, "READS", |k: &ReadKey| k.epoch)?,
            programs: OnDemand::default(),
            always,
            can,
            wanted: false,
            since: None,
            next: 0,
            watches: 0,
        })
    }

    /// A wait for storage makes the next burst worth while.
    pub(super) fn see(&mut self, record: &Record) {
        if let Record::OffCpu(OffCpu { state: State::Uninterruptible, file: Some(_), .. }) = record {
            self.wanted = true;
        }
    }

    /// Before the tables are turned over: ends a burst that lasted long enough, so that what it counted lies in
    /// the tick that ends now.
    pub(super) fn before_turn(&mut self, at: Ns, ebpf: &mut Ebpf) {
        if !self.always && self.since.is_some_and(|since| at >= since + BURST) {
            self.programs.detach(ebpf);
            self.since = None;
        }
    }

    /// After it: what is due to begin then covers whole ticks. Gives the number of the watch that begins.
    pub(super) fn after_turn(&mut self, at: Ns) -> Option<u64> {
        let due = self.always || (self.wanted && at >= self.next);
        if !self.can || self.since.is_some() || !due {
            return None;
        }
        self.watches += 1;
        (self.wanted, self.since, self.next) = (false, Some(at), at + EVERY);
        Some(self.watches)
    }

    /// Once the kernel side knows the watch's number.
    pub(super) fn begin(&mut self, ebpf: &mut Ebpf) {
        if let Err(error) = self.programs.attach(ebpf, &PROGRAMS) {
            tracing::warn!(%error, "watching reads");
            self.programs.detach(ebpf);
            self.can = false;
        }
    }

    /// # Errors
    /// The map could not be read.
    pub(super) fn flush(&mut self, turn: Turn, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.rows.flush(turn)?;
        send(rows, span, sink);
        Ok(())
    }

    /// What is left once no program runs any more.
    ///
    /// # Errors
    /// The map could not be read.
    pub(super) fn rest(&mut self, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let (rows, span) = self.rows.rest()?;
        send(rows, span, sink);
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
