//! Wire records of driver calls and collectives, as trace records.

use std::collections::{BTreeMap, HashMap, HashSet};

use tracer_ebpf::wire;
use tracer_ebpf::wire::cuda::{self, layout};
use tracer_ebpf::wire::cuda::{GROUPS, Group, REST, Run, Submits as WireSubmits, call_flags, family, shape};

use super::decode::{DecodeError, Decoder, key, read};
use crate::trace::{
    Collective, CollectiveGroup, CopyDirection, CudaCall, CudaContext, CudaFamily, SubmitGroup, Submits,
};

const HEADER: usize = size_of::<WireSubmits>() - (GROUPS + REST) * size_of::<Group>();

/// Families by position, as cookies carry them.
const FAMILIES: [CudaFamily; 13] = [
    CudaFamily::Launch,
    CudaFamily::GraphLaunch,
    CudaFamily::Copy,
    CudaFamily::Memset,
    CudaFamily::Synchronize,
    CudaFamily::EventQuery,
    CudaFamily::Allocate,
    CudaFamily::Free,
    CudaFamily::HostAllocate,
    CudaFamily::Load,
    CudaFamily::SetContext,
    CudaFamily::EventRecord,
    CudaFamily::Collective,
];

const DIRECTIONS: [CopyDirection; 5] = [
    CopyDirection::HostToDevice,
    CopyDirection::DeviceToHost,
    CopyDirection::DeviceToDevice,
    CopyDirection::Unified,
    CopyDirection::Peer,
];

fn family(position: u32) -> CudaFamily {
    FAMILIES.get(position as usize).copied().unwrap_or(CudaFamily::SetContext)
}

#[must_use]
pub fn family_position(family: CudaFamily) -> u32 {
    FAMILIES.iter().position(|f| *f == family).and_then(|p| u32::try_from(p).ok()).unwrap_or(0)
}

/// As the kernel side has it: 0 for none.
fn direction(one_more: u32) -> Option<CopyDirection> {
    DIRECTIONS.get((one_more as usize).checked_sub(1)?).copied()
}

/// A run is sent only up to its last group.
pub(super) fn whole(bytes: &[u8]) -> Result<WireSubmits, DecodeError> {
    if bytes.len() < HEADER {
        return Err(DecodeError::Short { got: bytes.len(), wanted: HEADER });
    }
    let mut whole = [0; size_of::<WireSubmits>()];
    let sent = bytes.len().min(whole.len());
    whole[..sent].copy_from_slice(&bytes[..sent]);
    let mut wire: WireSubmits = read(&whole)?;
    wire.groups = wire.groups.min(((sent - HEADER) / size_of::<Group>()) as u32);
    Ok(wire)
}

impl Decoder {
    pub(super) fn submits(&self, wire: &WireSubmits) -> Submits {
        let rows = &wire.rows[..(wire.groups as usize).min(wire.rows.len())];
        let groups: Vec<SubmitGroup> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.count > 0)
            .map(|(at, row)| self.group(row, at >= GROUPS, wire.context))
            .collect();
        let Run { mut first, mut last, .. } = wire.run;
        if first == 0 {
            first = groups.iter().map(|g| g.first).min().unwrap_or(0);
            last = groups.iter().map(|g| g.last).max().unwrap_or(0);
        }
        Submits {
            thread: key(wire.tid, wire.start_boottime),
            pid: wire.pid,
            first,
            last: last.max(first),
            launches: wire.run.launches,
            graph_launches: wire.run.graph_launches,
            memsets: wire.run.memsets,
            copies: wire.run.copies,
            user_stack: wire.run.user_stack,
            groups,
        }
    }

    fn group(&self, row: &Group, rest: bool, context: u64) -> SubmitGroup {
        SubmitGroup {
            rest,
            family: family(row.what & 0xff),
            context: if rest { 0 } else { context },
            stream: row.stream,
            function: row.function,
            grid: row.grid,
            direction: direction(row.what >> 8),
            count: row.count,
            first: row.first,
            last: row.last.max(row.first),
            bytes: row.bytes,
            timed: row.timed,
            call_ns: row.call_ns.saturating_sub(row.timed.saturating_mul(self.trap.inside_call_ns())),
        }
    }

    pub(super) fn cuda_call(&mut self, wire: &wire::CudaCall) -> CudaCall {
        let what = &wire.what;
        let has = |flag: u32| what.flags & flag != 0;
        let result = has(call_flags::RESULT).then_some(wire.result);
        let direction = direction(what.direction);
        let pinned = match family(what.family) {
            CudaFamily::Copy => self.host_memory.pinned(wire.pid, what, direction),
            CudaFamily::HostAllocate | CudaFamily::Free => {
                if result.is_none_or(|r| r == 0) {
                    self.host_memory.changed(wire.pid, what);
                }
                None
            }
            _ => None,
        };
        let by_next = has(call_flags::BY_NEXT);
        let ended = wire.exit != 0 && !by_next;
        CudaCall {
            thread: key(wire.tid, wire.start_boottime),
            pid: wire.pid,
            family: family(what.family),
            entry: wire.entry,
            exit: (wire.exit != 0).then_some(wire.exit.max(wire.entry)),
            name: self.entry_points.get(&what.id).copied().unwrap_or_default().to_owned(),
            user_stack: wire.user_stack,
            context: wire.context,
            stream: has(call_flags::STREAM).then_some(what.stream),
            object: what.object,
            bytes: what.bytes,
            direction,
            result,
            pinned,
            exit_by_next: by_next,
            repeats: wire.repeats,
            recorded_at: what.recorded_at,
            probe_ns: if ended { self.trap.inside_call_ns() } else { 0 },
        }
    }

    pub(super) fn cuda_context(&mut self, wire: &wire::CudaContext) -> CudaContext {
        self.host_memory.has_context(wire.pid);
        CudaContext { at: wire.at, pid: wire.pid, context: wire.context, ordinal: wire.ordinal }
    }

    pub(super) fn collective(&self, wire: &wire::Collective) -> Collective {
        let known = wire.group != 0 && wire.ranks != 0;
        Collective {
            thread: key(wire.tid, wire.start_boottime),
            pid: wire.pid,
            entry: wire.entry,
            exit: (wire.exit != 0).then_some(wire.exit.max(wire.entry)),
            name: self.entry_points.get(&wire.id).copied().unwrap_or_default().to_owned(),
            communicator: wire.communicator,
            sequence: wire.sequence,
            group: known.then_some(CollectiveGroup { id: wire.group, rank: wire.rank, ranks: wire.ranks }),
            stream: wire.stream,
            user_stack: wire.user_stack,
        }
    }

    /// A call that had not returned when the recording ended, or whose return nobody looks for.
    #[must_use]
    pub(super) fn open_call(&mut self, state: &wire::CudaState) -> Option<CudaCall> {
        (state.sp != 0 && state.what.family == family::SYNCHRONIZE).then(|| {
            let slot = state.slot as usize % state.contexts.len();
            let mut what = state.what;
            if state.by_next != 0 {
                what.flags |= call_flags::BY_NEXT;
            }
            self.cuda_call(&wire::CudaCall {
                kind: wire::kind::CUDA_CALL,
                result: 0,
                tid: state.tid,
                pid: state.pid,
                start_boottime: state.start_boottime,
                entry: state.entry,
                exit: 0,
                user_stack: state.call_stack,
                context: state.contexts[slot],
                repeats: 0,
                what,
            })
        })
    }
}

/// Which host memory is pinned, as far as calls were seen.
#[derive(Debug, Default)]
pub(super) struct HostMemory {
    /// Address to bytes.
    pinned: HashMap<u32, BTreeMap<u64, u64>>,
    /// Processes that began while they were watched, and those of which a context was seen to be made: nothing
    /// is pinned before that, so of one that is both all was seen.
    born: HashSet<u32>,
    contexts: HashSet<u32>,
}

impl HostMemory {
    /// Whoever had this id before is forgotten only now: births and ends come by a ring that is read before the
    /// one of the calls, so an end may come before the process's last calls.
    pub(super) fn born(&mut self, pid: u32) {
        self.pinned.remove(&pid);
        self.contexts.remove(&pid);
        self.born.insert(pid);
    }

    fn has_context(&mut self, pid: u32) {
        self.contexts.insert(pid);
    }

    fn changed(&mut self, pid: u32, what: &cuda::What) {
        let ranges = self.pinned.entry(pid).or_default();
        match what.layout >> layout::SHAPE & 31 {
            shape::HOST_ALLOCATE | shape::HOST_REGISTER => {
                ranges.insert(what.address, what.bytes);
            }
            shape::HOST_FREE => {
                ranges.remove(&what.address);
            }
            _ => {}
        }
    }

    fn pinned(&self, pid: u32, what: &cuda::What, direction: Option<CopyDirection>) -> Option<bool> {
        let ranges = self.pinned.get(&pid);
        let within = |address: u64| {
            let (start, bytes) = ranges?.range(..=address).next_back()?;
            (address != 0 && address - start < *bytes).then_some(true)
        };
        // Of unified addresses nobody says which side is the host's, if any.
        let sure = matches!(direction, Some(CopyDirection::HostToDevice | CopyDirection::DeviceToHost));
        let all_seen = self.born.contains(&pid) && self.contexts.contains(&pid);
        let not = (sure && what.address != 0 && all_seen).then_some(false);
        within(what.address).or_else(|| within(what.address_too)).or(not)
    }
}

#[cfg(test)]
mod tests {
    use tracer_ebpf::wire::cuda::What;

    use super::super::trap::TrapCost;
    use super::*;

    #[test]
    fn families_keep_their_positions() {
        for (family, position) in [
            (CudaFamily::Synchronize, family::SYNCHRONIZE),
            (CudaFamily::Copy, family::COPY),
            (CudaFamily::Memset, family::MEMSET),
            (CudaFamily::GraphLaunch, family::GRAPH_LAUNCH),
            (CudaFamily::EventQuery, family::EVENT_QUERY),
            (CudaFamily::SetContext, family::SET_CONTEXT),
            (CudaFamily::EventRecord, family::EVENT_RECORD),
            (CudaFamily::Collective, family::COLLECTIVE),
        ] {
            assert_eq!(family_position(family), position);
        }
        for (i, f) in FAMILIES.iter().enumerate() {
            assert_eq!(family_position(*f) as usize, i);
            assert_eq!(*f as usize, i, "the trace's order");
        }
        for (i, d) in DIRECTIONS.iter().enumerate() {
            assert_eq!(*d as usize, i, "the trace's order");
        }
    }

    fn copy(address: u64) -> What {
        What { address, direction: 1, ..What::default() }
    }

    fn host(shape: u64, address: u64, bytes: u64) -> What {
        What { address, bytes, layout: shape << layout::SHAPE, ..What::default() }
    }

    #[test]
    fn memory_is_pinned_from_its_allocation_to_its_end() {
        let mut memory = HostMemory::default();
        let to_device = Some(CopyDirection::HostToDevice);
        memory.changed(1, &host(shape::HOST_ALLOCATE, 0x1000, 0x100));
        memory.changed(1, &host(shape::HOST_REGISTER, 0x3000, 0x10));
        for (address, wanted) in [(0x1000, Some(true)), (0x10ff, Some(true)), (0x3008, Some(true))] {
            assert_eq!(memory.pinned(1, &copy(address), to_device), wanted, "{address:#x}");
        }
        // Unknown, since what came before was not seen; and nothing is known of another process.
        assert_eq!(memory.pinned(1, &copy(0x1100), to_device), None);
        assert_eq!(memory.pinned(2, &copy(0x1000), to_device), None);
        memory.changed(1, &host(shape::HOST_FREE, 0x1000, 0));
        assert_eq!(memory.pinned(1, &copy(0x1000), to_device), None);
    }

    #[test]
    fn memory_is_pageable_only_where_all_was_seen() {
        let mut memory = HostMemory::default();
        let to_device = Some(CopyDirection::HostToDevice);
        memory.has_context(1);
        assert_eq!(memory.pinned(1, &copy(0x1000), to_device), None, "it ran before");
        memory.born(2);
        assert_eq!(memory.pinned(2, &copy(0x1000), to_device), None, "its driver may have run before");
        memory.born(1);
        assert_eq!(memory.pinned(1, &copy(0x1000), to_device), None, "the context was another's");
        memory.has_context(1);
        assert_eq!(memory.pinned(1, &copy(0x1000), to_device), Some(false));
        assert_eq!(memory.pinned(1, &copy(0x1000), Some(CopyDirection::Unified)), None);
    }

    #[test]
    fn the_probes_own_time_is_told_where_a_return_was_seen() {
        let trap = TrapCost { entry_ns: 14_000, return_ns: 2_000 };
        let mut decoder = Decoder { trap, ..Decoder::default() };
        let mut call = |exit, flags| {
            let what = What { family: family::SYNCHRONIZE, flags, ..What::default() };
            let blank: wire::CudaCall = read(&[0; size_of::<wire::CudaCall>()]).expect("long enough");
            decoder.cuda_call(&wire::CudaCall { entry: 1_000, exit, what, ..blank })
        };
        let returned = call(31_000, call_flags::RESULT);
        assert_eq!(
            (returned.exit, returned.probe_ns),
            (Some(31_000), 8_000),
            "stamps are as they were taken"
        );
        assert_eq!((returned.returned(), returned.own_ns()), (Some(31_000), Some(22_000)));
        assert_eq!(call(2_000, call_flags::RESULT).own_ns(), Some(0), "never less than nothing");
        let by_next = call(31_000, call_flags::BY_NEXT);
        assert_eq!((by_next.exit, by_next.returned(), by_next.own_ns()), (Some(31_000), None, None));
        assert_eq!(by_next.probe_ns, 0);
        assert_eq!(call(0, 0).own_ns(), None);
    }

    #[test]
    fn a_call_whose_return_nobody_looks_for_is_not_under_way_at_the_end() {
        let mut decoder = Decoder::default();
        let mut open = |by_next| {
            let what = What { family: family::SYNCHRONIZE, ..What::default() };
            let blank: wire::CudaState = read(&[0; size_of::<wire::CudaState>()]).expect("long enough");
            decoder.open_call(&wire::CudaState { sp: 8, by_next, what, ..blank }).expect("a synchronise")
        };
        assert_eq!((open(0).exit, open(0).exit_by_next), (None, false));
        assert_eq!((open(1).exit, open(1).exit_by_next), (None, true));
    }

    #[test]
    fn a_run_has_as_many_groups_as_were_sent() {
        let mut bytes = vec![0; HEADER + 2 * size_of::<Group>()];
        bytes[..4].copy_from_slice(&wire::kind::SUBMITS.to_le_bytes());
        bytes[4..8].copy_from_slice(&36u32.to_le_bytes());
        let wire = whole(&bytes).expect("long enough");
        assert_eq!(wire.groups, 2);
        assert_eq!(Decoder::default().submits(&wire).groups, [], "rows without calls are left out");
        assert!(whole(&bytes[..HEADER - 1]).is_err());
    }
}
