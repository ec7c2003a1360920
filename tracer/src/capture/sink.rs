//! The way of every record into the trace: completed, looked at for new targets, appended.

use super::cgroup::Cgroups;
use super::enrich::Enricher;
use super::names::Names;
use super::selection::Targets;
use crate::trace::{Loss, LossCause, LossClass, Ns, Record, TargetKind, ThreadSeen, TraceError, Writer};

/// Takes records one at a time. After an error that lasts (a full disk) it takes no more.
#[derive(Debug)]
pub struct Sink {
    writer: Writer,
    pub enricher: Enricher,
    pub cgroups: Cgroups,
    pub targets: Targets,
    names: Names,
    /// Records appended so far.
    pub records: u64,
    /// Records lost so far, here and in the kernel.
    pub lost: u64,
    /// Records that could not be stored although the trace goes on.
    refused: u64,
    failed: Option<TraceError>,
}

impl Sink {
    #[must_use]
    pub fn new(writer: Writer, targets: Targets) -> Self {
        Self {
            writer,
            enricher: Enricher::new(),
            cgroups: Cgroups::new(),
            targets,
            names: Names::default(),
            records: 0,
            lost: 0,
            refused: 0,
            failed: None,
        }
    }

    /// Completes and appends a record.
    pub fn take(&mut self, record: Record) {
        let (record, more) = self.enricher.enrich(record);
        self.follow(&record);
        self.append(&record);
        for mapping in self.names.see(&record) {
            self.append(&mapping);
        }
        if let Some(more) = more {
            self.append(&more);
        }
    }

    /// Appends a record as it is.
    pub fn append(&mut self, record: &Record) {
        if self.failed.is_some() {
            return;
        }
        match self.writer.append(record) {
            Ok(()) => self.records += 1,
            Err(e @ (TraceError::Write { .. } | TraceError::CutShort { .. })) => self.failed = Some(e),
            Err(_) => self.refused += 1,
        }
    }

    /// A target's child is a target: its groups and libraries count too.
    fn follow(&mut self, record: &Record) {
        match record {
            Record::Thread(t) if matches!(t.kind, TargetKind::Named | TargetKind::Inherited) => {
                self.follow_process(t);
            }
            Record::Loss(loss) => self.lost = self.lost.saturating_add(loss.count),
            _ => {}
        }
    }

    fn follow_process(&mut self, thread: &ThreadSeen) {
        if thread.key.tid == thread.pid && !thread.kernel_thread {
            self.targets.watch(thread.pid);
            self.cgroups.follow(&thread.cgroups);
        }
    }

    /// Appends a name for every address of the stacks that were taken.
    pub fn name_addresses(&mut self, at: Ns) {
        // Once the trace cannot be written any more, names have no place to go to.
        if self.failed.is_none() {
            for symbol in std::mem::take(&mut self.names).resolve(at) {
                self.append(&symbol);
            }
        }
    }

    /// Hands what was appended to the operating system, with what could not be.
    ///
    /// # Errors
    /// The trace cannot be written any more.
    pub fn flush(&mut self, at: Ns) -> Result<(), TraceError> {
        let refused = std::mem::take(&mut self.refused);
        if refused > 0 {
            self.lost = self.lost.saturating_add(refused);
            self.append(&Record::Loss(Loss {
                at,
                class: LossClass::Stored,
                cpu: None,
                cause: LossCause::Userspace,
                count: refused,
                ns_at_risk: 0,
            }));
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// Its last frames cannot be written.
    pub fn finish(self) -> Result<(), TraceError> {
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::selection::Selection;
    use super::*;
    use crate::trace::{Counter, Reader};

    fn sink(path: &std::path::Path) -> Sink {
        Sink::new(Writer::create(path).unwrap(), Targets::new(Selection::Pids(vec![]), vec![195]))
    }

    #[test]
    fn a_record_that_cannot_be_stored_is_counted_in_the_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let mut sink = sink(&path);
        let counter = |name: String| Record::Counter(Counter { at: 1, name, value: 2 });
        sink.take(counter("x".repeat(64 << 20)));
        sink.take(counter("y".into()));
        sink.flush(5).unwrap();
        sink.finish().unwrap();
        let records: Vec<Record> = Reader::open(&path).unwrap().map(Result::unwrap).collect();
        let lost = records.iter().find_map(|r| match r {
            Record::Loss(l) => Some((l.count, l.cause)),
            _ => None,
        });
        assert_eq!(lost, Some((1, LossCause::Userspace)), "{records:?}");
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn a_trace_that_cannot_be_written_any_more_is_reported_once() {
        let (reader, writer) = std::io::pipe().unwrap();
        let file = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
        let writer = Writer::new(file, std::path::Path::new("pipe")).unwrap();
        let mut sink = Sink::new(writer, Targets::new(Selection::Command, vec![195]));
        drop(reader);
        sink.take(Record::Counter(Counter { at: 1, name: "x".into(), value: 2 }));
        let error = sink.flush(5).unwrap_err();
        assert!(matches!(error, TraceError::Write { records: 1, .. }), "{error}");
        sink.flush(6).unwrap();
    }
}
