//! The kernel side's tables, read every tick: totals of short waits, who ran instead, disks, losses.

use std::collections::HashMap as StdMap;
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::{Ebpf, Pod};
use tracer_ebpf::wire::{BUCKETS, BlockStats, RanKey, RanValue, TotalKey, TotalValue, control, loss};

use super::CaptureError;
use super::decode::{key, text};
use super::reclaim::Reclaims;
use super::rings::missing;
use super::settled::Turn;
use crate::trace::{BlockTotal, Loss, LossCause, LossClass, Ns, RanInstead, Record, Span, WaitTotal};

/// A program reads the epoch and writes its row within microseconds; rows written later than this after the
/// turn go out with the next tick.
const TURN: Duration = Duration::from_micros(20);

const CLASSES: [LossClass; loss::CLASSES as usize] = [
    LossClass::OffCpu,
    LossClass::WaitTotal,
    LossClass::Lifecycle,
    LossClass::Sample,
    LossClass::Stack,
    LossClass::File,
    LossClass::Cuda,
    LossClass::Block,
    LossClass::Fault,
    LossClass::Ioctl,
];
const CAUSES: [LossCause; loss::CAUSES as usize] = [
    LossCause::RingFull,
    LossCause::MapFull,
    LossCause::Recursion,
    LossCause::TimeTravel,
    LossCause::ReadFault,
    LossCause::Unannounced,
];

pub struct Tables {
    control: Array<MapData, u64>,
    totals: HashMap<MapData, TotalKey, TotalValue>,
    ran: HashMap<MapData, RanKey, RanValue>,
    disks: HashMap<MapData, u32, BlockStats>,
    reclaims: Reclaims,
    losses: PerCpuArray<MapData, loss::Lost>,
    turn: u32,
    last: Ns,
    disks_before: StdMap<u32, BlockStats>,
    disk_names: StdMap<u32, String>,
    losses_before: StdMap<(u32, usize), loss::Lost>,
}

impl Tables {
    /// # Errors
    /// The object has no such maps.
    pub fn new(ebpf: &mut Ebpf, at: Ns) -> Result<Self, CaptureError> {
        Ok(Self {
            control: take(ebpf, "CONTROL")?,
            totals: take(ebpf, "TOTALS")?,
            ran: take(ebpf, "RAN")?,
            disks: take(ebpf, "DISKS")?,
            reclaims: Reclaims::new(ebpf)?,
            losses: take(ebpf, "LOSSES")?,
            turn: 0,
            last: at,
            disks_before: StdMap::new(),
            disk_names: StdMap::new(),
            losses_before: StdMap::new(),
        })
    }

    /// Stays shorter than this make no record from now on.
    ///
    /// # Errors
    /// The map could not be written.
    pub fn set_threshold_ns(&mut self, ns: u64) -> Result<(), CaptureError> {
        self.control.set(control::THRESHOLD_NS, ns, 0).map_err(|e| failed("CONTROL", e))
    }

    /// One CPU sample in `every` is taken from now on.
    ///
    /// # Errors
    /// The map could not be written.
    pub fn set_sample_every(&mut self, every: u64) -> Result<(), CaptureError> {
        self.control.set(control::SAMPLE_EVERY, every, 0).map_err(|e| failed("CONTROL", e))
    }

    /// Of so many stays that follow a short one the user stack of one is walked from now on.
    ///
    /// # Errors
    /// The map could not be written.
    pub fn set_stack_every(&mut self, every: u64) -> Result<(), CaptureError> {
        self.control.set(control::STACK_EVERY, every, 0).map_err(|e| failed("CONTROL", e))
    }

    /// What was written until the programs were taken out.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn rest(&mut self, end: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        self.reclaims.rest(end, sink)
    }

    /// Turns the tables over and hands out what was added up since the last time.
    ///
    /// # Errors
    /// A map could not be read.
    pub fn flush(&mut self, now: Ns, sink: &mut dyn FnMut(Record)) -> Result<Turn, CaptureError> {
        let span = Span::new(self.last, now);
        self.last = now;
        self.turn = self.turn.wrapping_add(1);
        let epoch = u64::from(self.turn);
        self.control.set(control::EPOCH, epoch, 0).map_err(|e| failed("CONTROL", e))?;
        std::thread::sleep(TURN);
        let turn = self.turn;
        let mut totals = drained(&mut self.totals, |k| k.epoch != turn).map_err(|e| failed("TOTALS", e))?;
        totals.sort_by_key(|(k, v)| (v.first, k.tid, k.waker_tid, k.syscall, k.arg0));
        for (k, v) in totals {
            sink(Record::WaitTotal(wait_total(&k, &v)));
        }
        let mut ran = drained(&mut self.ran, |k| k.epoch != turn).map_err(|e| failed("RAN", e))?;
        ran.sort_by_key(|(k, _)| (k.cpu, k.tid, k.start_boottime, k.epoch));
        for (k, v) in ran {
            sink(Record::RanInstead(RanInstead {
                span,
                cpu: k.cpu,
                thread: key(k.tid, k.start_boottime),
                pid: v.pid,
                comm: text(&v.comm),
                ns: v.ns.min(span.len()),
                target: v.target != 0,
            }));
        }
        self.flush_disks(span, sink)?;
        let turn = Turn { epoch: turn, span };
        self.reclaims.flush(turn, sink)?;
        Ok(turn)
    }

    fn flush_disks(&mut self, span: Span, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        let mut disks = self.disks.iter().collect::<Result<Vec<_>, _>>().map_err(|e| failed("DISKS", e))?;
        disks.sort_by_key(|(dev, _)| *dev);
        for (dev, mut stats) in disks {
            // The stretch under way belongs to this tick.
            let flying = stats.in_flight as i64 > 0;
            if flying && span.end > stats.changed && stats.changed != 0 {
                stats.busy_ns += span.end - stats.changed;
            }
            let before = self.disks_before.insert(dev, stats).unwrap_or_default();
            let mut total = block_total(dev, span, &before, &stats, self.turn.wrapping_sub(1));
            if total.reads + total.writes + total.busy_ns == 0 {
                continue;
            }
            total.name = self.disk_names.entry(dev).or_insert_with(|| disk_name(dev)).clone();
            sink(Record::Block(total));
        }
        Ok(())
    }

    /// What was lost since the last time, per processor, class and cause.
    ///
    /// # Errors
    /// The map could not be read.
    pub fn losses(&mut self, at: Ns, sink: &mut dyn FnMut(Record)) -> Result<(), CaptureError> {
        for row in 0..loss::CLASSES * loss::CAUSES {
            let per_cpu = self.losses.get(&row, 0).map_err(|e| failed("LOSSES", e))?;
            for (cpu, now) in per_cpu.iter().enumerate() {
                let before = self.losses_before.insert((row, cpu), *now).unwrap_or_default();
                let count = now.count.wrapping_sub(before.count);
                if count > 0 {
                    sink(Record::Loss(Loss {
                        at,
                        class: CLASSES[(row / loss::CAUSES) as usize],
                        cpu: u32::try_from(cpu).ok(),
                        cause: CAUSES[(row % loss::CAUSES) as usize],
                        count,
                        ns_at_risk: now.ns_at_risk.wrapping_sub(before.ns_at_risk),
                    }));
                }
            }
        }
        Ok(())
    }
}

/// Takes a map out of the object under its type.
pub(super) fn take<M>(ebpf: &mut Ebpf, name: &str) -> Result<M, CaptureError>
where
    M: TryFrom<Map, Error = MapError>,
{
    let map = ebpf.take_map(name).ok_or_else(|| missing(name))?;
    M::try_from(map).map_err(|e| failed(name, e))
}

pub(super) fn failed(what: &str, error: MapError) -> CaptureError {
    CaptureError::Kernel { what: what.into(), source: Box::new(error) }
}

/// Removes and returns the rows whose key is `wanted`.
pub(super) fn drained<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    wanted: impl Fn(&K) -> bool,
) -> Result<Vec<(K, V)>, MapError> {
    let keys = map.keys().filter(|k| k.as_ref().map_or(true, &wanted)).collect::<Result<Vec<K>, _>>()?;
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        match map.get(&key, 0) {
            Ok(value) => rows.push((key, value)),
            Err(MapError::KeyNotFound) => continue,
            Err(e) => return Err(e),
        }
        map.remove(&key)?;
    }
    Ok(rows)
}

fn wait_total(k: &TotalKey, v: &TotalValue) -> WaitTotal {
    WaitTotal {
        thread: key(k.tid, k.start_boottime),
        pid: v.pid,
        waker: (k.waker_tid != 0).then(|| key(k.waker_tid, k.waker_start)),
        waker_pid: if k.waker_tid == 0 { 0 } else { v.waker_pid },
        syscall: k.syscall,
        arg0: k.arg0,
        count: v.count,
        blocked_ns: v.blocked_ns,
        runnable_ns: v.runnable_ns,
        throttled_ns: v.throttled_ns,
        first: v.first,
        last: v.last.max(v.first),
    }
}

fn block_total(dev: u32, span: Span, before: &BlockStats, now: &BlockStats, turn: u32) -> BlockTotal {
    let since = std::array::from_fn(|i| now.histogram[i].saturating_sub(before.histogram[i]));
    let flying = u32::try_from(now.in_flight.min(before.in_flight)).unwrap_or(0);
    BlockTotal {
        span,
        dev,
        reads: now.reads.saturating_sub(before.reads),
        writes: now.writes.saturating_sub(before.writes),
        read_bytes: now.read_bytes.saturating_sub(before.read_bytes),
        write_bytes: now.write_bytes.saturating_sub(before.write_bytes),
        latency_ns: now.latency_ns.saturating_sub(before.latency_ns),
        busy_ns: now.busy_ns.saturating_sub(before.busy_ns).min(span.len()),
        max_in_flight: if now.max_epoch == turn { now.max_in_flight } else { flying },
        histogram: stored(since),
        name: String::new(),
    }
}

/// A histogram as the trace holds it.
pub(super) fn stored(counts: [u64; BUCKETS]) -> [u32; BUCKETS] {
    counts.map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// Kernel name of a disk by its device number.
fn disk_name(dev: u32) -> String {
    let link = format!("/sys/dev/block/{}:{}", dev >> 20, dev & 0xf_ffff);
    std::fs::read_link(link)
        .ok()
        .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_give_differences() {
        let before = BlockStats { reads: 5, busy_ns: 1_000, ..BlockStats::default() };
        let mut now = BlockStats { reads: 9, busy_ns: 1_400, max_in_flight: 3, max_epoch: 7, ..before };
        now.histogram[2] = 4;
        let span = Span::new(0, 300);
        let total = block_total(8 << 20, span, &before, &now, 7);
        assert_eq!((total.reads, total.busy_ns, total.max_in_flight, total.histogram[2]), (4, 300, 3, 4));
        let quiet = block_total(8 << 20, span, &now, &now, 8);
        assert_eq!((quiet.reads, quiet.busy_ns, quiet.max_in_flight), (0, 0, 0));
    }

    #[test]
    fn loss_rows_are_the_traces_variants() {
        for (row, class) in [
            (loss::OFF_CPU, LossClass::OffCpu),
            (loss::WAIT_TOTAL, LossClass::WaitTotal),
            (loss::LIFECYCLE, LossClass::Lifecycle),
            (loss::SAMPLE, LossClass::Sample),
            (loss::STACK, LossClass::Stack),
            (loss::FILE, LossClass::File),
            (loss::CUDA, LossClass::Cuda),
            (loss::BLOCK, LossClass::Block),
            (loss::FAULT, LossClass::Fault),
            (loss::IOCTL, LossClass::Ioctl),
        ] {
            assert_eq!(CLASSES[row as usize], class);
        }
        for (row, cause) in [
            (loss::RING_FULL, LossCause::RingFull),
            (loss::MAP_FULL, LossCause::MapFull),
            (loss::RECURSION, LossCause::Recursion),
            (loss::TIME_TRAVEL, LossCause::TimeTravel),
            (loss::READ_FAULT, LossCause::ReadFault),
            (loss::UNANNOUNCED, LossCause::Unannounced),
        ] {
            assert_eq!(CAUSES[row as usize], cause);
        }
    }
}
