//! Cuts a thread's calls down to the records that the probes would have kept of them.

use std::io;

use super::calls::{copy_name, known};
use super::collect::Call;
use super::names::Who;
use super::stacks::Out;
use crate::trace::{CudaCall, CudaFamily, Ns, Record, Span, StackId, SubmitGroup, Submits};

/// This long without a submit ends a run.
const SILENCE_NS: u64 = 200_000;
/// Calls at least this long have a record.
pub(super) const THRESHOLD_NS: u64 = 100_000;
/// A run without a silence is cut into pieces of this length.
const LONGEST_NS: u64 = 50_000_000;
/// A query like one that was kept is only counted for so long.
const SAME_NS: u64 = 10_000_000;
/// Groups of one run; the rest goes into one a family, or into the next run.
const MAX_GROUPS: usize = 32;
/// A kind that finds all groups taken ends a run that is at least this old.
const FULL_NS: u64 = 1_000_000;

/// One thread between two calls.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// `first` and `last` are those of its submits, or of its copies where it has no submit yet.
    run: Option<Submits>,
    /// Entry of its first submit or copy.
    begun: Ns,
    /// The call under way.
    outer: Span,
    /// Context of the thread's last call that told one.
    context: u64,
    /// The last query kept, and how many like it were not.
    query: Option<(CudaCall, u64)>,
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
            ..CudaCall::default()
        };
        match known.family {
            CudaFamily::Launch | CudaFamily::GraphLaunch | CudaFamily::Memset | CudaFamily::Copy => {
                self.count(who, &record, call, out)?;
            }
            CudaFamily::EventQuery => return self.query(record, out),
            // What it tells is kept with the call that waits for the event.
            CudaFamily::EventRecord => return Ok(()),
            _ => {}
        }
        // Which host memory is pinned shows only from all calls that pin it.
        let pins = known.family == CudaFamily::HostAllocate || known.name == "cuMemFreeHost";
        let synchronised = known.family == CudaFamily::Synchronize;
        if synchronised || pins || span.len() >= THRESHOLD_NS {
            out(Record::CudaCall(record))?;
        }
        if synchronised { self.finish(out) } else { Ok(()) }
    }

    /// The run ends here.
    pub(super) fn finish(&mut self, out: &mut Out) -> io::Result<()> {
        self.run.take().map_or(Ok(()), |run| out(Record::Submits(run)))
    }

    /// Counts a submit or copy with its run.
    fn count(&mut self, who: &Who, record: &CudaCall, call: &Call, out: &mut Out) -> io::Result<()> {
        let at = record.entry;
        let copy = record.family == CudaFamily::Copy;
        let own = own_group(record, call);
        if let Some(run) = &self.run {
            let silence = !copy && run.submits() > 0 && at.saturating_sub(run.last) >= SILENCE_NS;
            let age = at.saturating_sub(self.begun);
            let full = || position(&run.groups, &own).is_none() && is_full(&run.groups);
            if silence || age >= LONGEST_NS || (age >= FULL_NS && full()) {
                self.finish(out)?;
            }
        }
        let begun = &mut self.begun;
        let run = self.run.get_or_insert_with(|| {
            *begun = at;
            Submits { thread: who.key, pid: who.pid, ..Submits::default() }
        });
        let before = run.submits();
        match record.family {
            CudaFamily::GraphLaunch => run.graph_launches += 1,
            CudaFamily::Memset => run.memsets += 1,
            CudaFamily::Copy => run.copies += 1,
            _ => run.launches += 1,
        }
        if before == 0 && (!copy || run.copies == 1) {
            (run.first, run.user_stack) = (at, record.user_stack);
        }
        if !copy || before == 0 {
            run.last = at;
        }
        add(&mut run.groups, own, record);
        Ok(())
    }

    fn query(&mut self, record: CudaCall, out: &mut Out) -> io::Result<()> {
        if let Some((kept, repeats)) = &mut self.query {
            let same = (kept.object, kept.stream, &kept.name) == (record.object, record.stream, &record.name);
            if same && record.entry.saturating_sub(kept.entry) < SAME_NS {
                *repeats += 1;
                return Ok(());
            }
        }
        let repeats = match self.query.take() {
            Some((kept, repeats)) if kept.object == record.object => repeats,
            _ => 0,
        };
        let record = CudaCall { repeats, ..record };
        self.query = Some((record.clone(), 0));
        out(Record::CudaCall(record))
    }
}

/// The group that a call begins where it finds none like it.
fn own_group(record: &CudaCall, call: &Call) -> SubmitGroup {
    let launch = record.family == CudaFamily::Launch;
    SubmitGroup {
        family: record.family,
        context: record.context,
        stream: record.stream.unwrap_or(0),
        function: record.object,
        grid: if launch { call.told.grid } else { [0; 3] },
        direction: record.direction,
        first: record.entry,
        ..SubmitGroup::default()
    }
}

/// The group whose calls are like those of `own`.
fn position(groups: &[SubmitGroup], own: &SubmitGroup) -> Option<usize> {
    let key = |g: &SubmitGroup| (g.rest, g.family, g.context, g.stream, g.function, g.grid, g.direction);
    groups.iter().position(|group| key(group) == key(own))
}

fn is_full(groups: &[SubmitGroup]) -> bool {
    groups.iter().filter(|group| !group.rest).count() >= MAX_GROUPS
}

/// Counts a call in its group, or in that of the rest of its family.
fn add(groups: &mut Vec<SubmitGroup>, own: SubmitGroup, record: &CudaCall) {
    let mut at = position(groups, &own);
    if at.is_none() {
        let rest = SubmitGroup { rest: true, family: own.family, first: own.first, ..SubmitGroup::default() };
        let fresh = if is_full(groups) { rest } else { own };
        at = position(groups, &fresh);
        if at.is_none() {
            groups.push(fresh);
        }
    }
    let at = at.unwrap_or(groups.len() - 1);
    let group = &mut groups[at];
    group.count += 1;
    group.last = record.entry;
    group.bytes = group.bytes.saturating_add(record.bytes);
    group.timed += 1;
    group.call_ns += record.exit.map_or(0, |exit| exit - record.entry);
}
