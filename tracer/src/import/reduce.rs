//! Cuts a thread's calls down to the records that the probes would have kept of them.

use std::io;

use super::calls::{copy_name, known};
use super::collect::Call;
use super::names::Who;
use super::stacks::Out;
use crate::trace::{CudaCall, CudaFamily, Record, Span, StackId, SubmitGroup, Submits};

/// This long without a submit ends a run.
const SILENCE_NS: u64 = 200_000;
/// Calls at least this long have a record.
pub(super) const THRESHOLD_NS: u64 = 100_000;
/// Groups of one run; the rest goes into one a family.
const MAX_GROUPS: usize = 32;

/// One thread between two calls.
#[derive(Debug, Default)]
pub(super) struct Edges {
    run: Option<Submits>,
    /// Copies since the last run, which are counted with the next.
    copies: u64,
    groups: Vec<SubmitGroup>,
    /// The call under way.
    outer: Span,
    /// Context of the thread's last call that told one.
    context: u64,
    /// A query without another call since.
    query: Option<CudaCall>,
}

impl Edges {
    /// The thread's next call.
    pub(super) fn call(
        &mut self,
        who: &Who,
        span: Span,
        call: &Call,
        user_stack: StackId,
        out: &mut Out,
    ) -> io::Result<()> {
        // The driver's own doing, or the driver's call inside the runtime's: counted with the outer one.
        if self.outer.contains(span.start) && span.end <= self.outer.end {
            return Ok(());
        }
        self.outer = span;
        if call.told.context != 0 {
            self.context = call.told.context;
        }
        let known = known(call.entry_point);
        let record = CudaCall {
            thread: who.key,
            pid: who.pid,
            family: known.family,
            entry: span.start,
            exit: Some(span.end),
            name: copy_name(known.name, call.told.direction()).into(),
            user_stack,
            context: self.context,
            stream: call.told.stream,
            object: if call.told.event == 0 { call.told.function } else { call.told.event },
            bytes: call.told.bytes,
            direction: call.told.direction(),
            result: None,
            pinned: call.told.pinned,
            exit_by_next: false,
            repeats: 0,
        };
        if known.family != CudaFamily::EventQuery {
            self.flush_query(out)?;
        }
        match known.family {
            CudaFamily::Launch | CudaFamily::GraphLaunch | CudaFamily::Memset => {
                self.submit(who, &record, call, out)?;
            }
            CudaFamily::Copy => {
                self.copies += 1;
                self.group(&record, call);
            }
            CudaFamily::EventQuery => return self.query(record, out),
            // Only one that something waited for later tells which event it is about.
            CudaFamily::EventRecord if record.object != 0 => return out(Record::CudaCall(record)),
            _ => {}
        }
        let synchronised = known.family == CudaFamily::Synchronize;
        if synchronised || span.len() >= THRESHOLD_NS {
            out(Record::CudaCall(record))?;
        }
        if synchronised { self.flush_run(out) } else { Ok(()) }
    }

    /// What is still open when the recording ends.
    pub(super) fn finish(&mut self, out: &mut Out) -> io::Result<()> {
        self.flush_query(out)?;
        self.flush_run(out)
    }

    fn submit(&mut self, who: &Who, record: &CudaCall, call: &Call, out: &mut Out) -> io::Result<()> {
        let at = record.entry;
        if self.run.as_ref().is_some_and(|run| at.saturating_sub(run.last) >= SILENCE_NS) {
            self.flush_run(out)?;
        }
        let run = self.run.get_or_insert_with(|| Submits {
            thread: who.key,
            pid: who.pid,
            first: at,
            user_stack: record.user_stack,
            ..Submits::default()
        });
        run.last = at;
        match record.family {
            CudaFamily::GraphLaunch => run.graph_launches += 1,
            CudaFamily::Memset => run.memsets += 1,
            _ => run.launches += 1,
        }
        self.group(record, call);
        Ok(())
    }

    fn group(&mut self, record: &CudaCall, call: &Call) {
        let launch = record.family == CudaFamily::Launch;
        let fresh = SubmitGroup {
            rest: false,
            family: record.family,
            context: record.context,
            stream: record.stream.unwrap_or(0),
            function: record.object,
            grid: if launch { call.told.grid } else { [0; 3] },
            direction: record.direction,
            first: record.entry,
            ..SubmitGroup::default()
        };
        let alike = |group: &SubmitGroup, fresh: &SubmitGroup| {
            let key =
                |g: &SubmitGroup| (g.rest, g.family, g.context, g.stream, g.function, g.grid, g.direction);
            key(group) == key(fresh)
        };
        let mut at = self.groups.iter().position(|group| alike(group, &fresh));
        if at.is_none() {
            let full = self.groups.iter().filter(|group| !group.rest).count() >= MAX_GROUPS;
            let fresh = if full {
                let (family, first) = (fresh.family, fresh.first);
                SubmitGroup { rest: true, family, first, ..SubmitGroup::default() }
            } else {
                fresh
            };
            at = self.groups.iter().position(|group| alike(group, &fresh));
            if at.is_none() {
                self.groups.push(fresh);
            }
        }
        let at = at.unwrap_or(self.groups.len() - 1);
        let group = &mut self.groups[at];
        group.count += 1;
        group.last = record.entry;
        group.bytes = group.bytes.saturating_add(record.bytes);
        group.timed += 1;
        group.call_ns += record.exit.map_or(0, |exit| exit - record.entry);
    }

    fn query(&mut self, record: CudaCall, out: &mut Out) -> io::Result<()> {
        let same = |query: &CudaCall| (query.object, &query.name) == (record.object, &record.name);
        match &mut self.query {
            Some(query) if same(query) => {
                let repeats = query.repeats + 1;
                *query = CudaCall { repeats, ..record };
                Ok(())
            }
            _ => {
                self.flush_query(out)?;
                self.query = Some(record);
                Ok(())
            }
        }
    }

    fn flush_query(&mut self, out: &mut Out) -> io::Result<()> {
        self.query.take().map_or(Ok(()), |query| out(Record::CudaCall(query)))
    }

    /// A run of nothing but copies has no record: they wait for the next.
    fn flush_run(&mut self, out: &mut Out) -> io::Result<()> {
        let Some(mut run) = self.run.take() else { return Ok(()) };
        run.copies = std::mem::take(&mut self.copies);
        run.groups = std::mem::take(&mut self.groups);
        out(Record::Submits(run))
    }
}
