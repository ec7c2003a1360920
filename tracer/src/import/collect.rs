//! From events in the file's order to host calls, operators and busy stretches in the order of time, each
//! call joined with what its correlation id told.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::calls;
use super::event::{Bad, Item, OpKind, Stamp};
use super::names::Names;
use super::sort::{Merge, Scratch, Sorter};
use super::told::Told;

/// Stamps further than a day from the day that holds most are nonsense.
const DAY_NS: i64 = 86_400_000_000_000;
/// Days told apart; more are nonsense too.
const MAX_DAYS: usize = 4096;
/// Calls of one correlation id held for joining. The profiler gives each call its own.
const MAX_SAME: usize = 16;
/// Calls that lasted longer are frames of a stack, as samples of a live thread would show them.
const FRAME_NS: i64 = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Call {
    /// Place in the table of entry points.
    pub entry_point: u16,
    pub told: Told,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum What {
    Op { name: u32 },
    Call(Call),
    Busy { device: u32 },
}

/// Ordered by start, and of two that start together the longer first: it is the outer one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Timed {
    pub at: Stamp,
    pub end: Reverse<Stamp>,
    /// `u32::MAX` for a device.
    pub thread: u32,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Half {
    Call { at: Stamp, end: Reverse<Stamp>, thread: u32, entry_point: u16 },
    Told(Told),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Correlated {
    correlation: i64,
    half: Half,
}

#[derive(Clone, Copy, Debug, Default)]
struct Day {
    events: u64,
    first_host: Option<Stamp>,
}

/// What was left out, and what was there at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Host calls, operators and device activities taken.
    pub events: u64,
    /// Not as an event should be, or of no possible time.
    pub malformed: u64,
    /// With a negative length.
    pub negative: u64,
    /// Calls whose correlation id others have too, so that nothing more is known of them.
    pub ambiguous: u64,
    pub calls: u64,
    pub python: u64,
    pub operators: u64,
    pub device: u64,
}

pub(super) struct Collector<'a> {
    by_time: Sorter<'a, Timed>,
    by_correlation: Sorter<'a, Correlated>,
    days: BTreeMap<i64, Day>,
    pub names: Names,
    pub tally: Tally,
    /// Unix time of stamp 0, nanoseconds.
    pub base: Option<i64>,
    pub devices: BTreeMap<u32, String>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(scratch: Scratch<'a>) -> Self {
        Self {
            by_time: Sorter::new(scratch),
            by_correlation: Sorter::new(scratch),
            days: BTreeMap::new(),
            names: Names::default(),
            tally: Tally::default(),
            base: None,
            devices: BTreeMap::new(),
        }
    }

    /// # Errors
    /// A scratch file cannot be written.
    pub(super) fn take(&mut self, item: Item) -> io::Result<()> {
        match item {
            Item::Host { pid, tid, kind, name, start, end, correlation } => {
                let (Some(thread), true) = (self.names.thread(pid, tid), self.day(start, end, true)) else {
                    self.tally.malformed += 1;
                    return Ok(());
                };
                self.tally.events += 1;
                match kind {
                    OpKind::Call => self.tally.calls += 1,
                    OpKind::Python => self.tally.python += 1,
                    _ => self.tally.operators += 1,
                }
                let (at, end) = (start, Reverse(end));
                let entry_point = if kind == OpKind::Call { calls::find(&name) } else { None };
                if entry_point.is_none() || end.0 - at > FRAME_NS {
                    let name = self.names.frame(kind, &name);
                    self.by_time.push(Timed { at, end, thread, what: What::Op { name } })?;
                }
                let Some(entry_point) = entry_point else { return Ok(()) };
                match correlation {
                    Some(correlation) => {
                        let half = Half::Call { at, end, thread, entry_point };
                        self.by_correlation.push(Correlated { correlation, half })
                    }
                    None => {
                        let call = Call { entry_point, told: Told::default() };
                        self.by_time.push(Timed { at, end, thread, what: What::Call(call) })
                    }
                }
            }
            Item::Told { correlation, told } => {
                self.by_correlation.push(Correlated { correlation, half: Half::Told(told) })
            }
            Item::Busy { device, start, end } => {
                if !self.day(start, end, false) {
                    self.tally.malformed += 1;
                    return Ok(());
                }
                self.tally.events += 1;
                self.tally.device += 1;
                let what = What::Busy { device };
                self.by_time.push(Timed { at: start, end: Reverse(end), thread: u32::MAX, what })
            }
            Item::Process { pid, name } => {
                self.names.name_process(pid, &name);
                Ok(())
            }
            Item::Thread { pid, tid, name } => {
                self.names.name_thread(pid, tid, &name);
                Ok(())
            }
            Item::Device { index, name } => {
                if self.devices.len() < MAX_DAYS {
                    self.devices.insert(index, name);
                }
                Ok(())
            }
            Item::Base(base) => {
                self.base = Some(base);
                Ok(())
            }
            Item::Bad(bad) => {
                match bad {
                    Bad::Shape => self.tally.malformed += 1,
                    Bad::Negative => self.tally.negative += 1,
                }
                Ok(())
            }
        }
    }

    /// Counts an event for its day. False if it is longer than a day or of one day too many.
    fn day(&mut self, start: Stamp, end: Stamp, host: bool) -> bool {
        let day = start.div_euclid(DAY_NS);
        let known = self.days.len() < MAX_DAYS || self.days.contains_key(&day);
        if !known || end - start > DAY_NS {
            return false;
        }
        let day = self.days.entry(day).or_default();
        day.events += 1;
        if host {
            day.first_host = Some(day.first_host.map_or(start, |first| first.min(start)));
        }
        true
    }

    /// Joins the calls with what was told of them.
    ///
    /// # Errors
    /// A scratch file cannot be written or read back.
    pub(super) fn sorted(mut self) -> io::Result<Sorted> {
        let mut same: Vec<Timed> = Vec::new();
        let mut told: Option<Told> = None;
        let mut correlation = None;
        for item in self.by_correlation.sorted()? {
            let item = item?;
            if correlation != Some(item.correlation) {
                self.tally.ambiguous += join(&mut self.by_time, &mut same, told.take())?;
                correlation = Some(item.correlation);
            }
            match item.half {
                Half::Call { at, end, thread, entry_point } => {
                    let call = Call { entry_point, told: Told::default() };
                    let timed = Timed { at, end, thread, what: What::Call(call) };
                    if same.len() < MAX_SAME { same.push(timed) } else { self.by_time.push(timed)? }
                }
                Half::Told(new) => match &mut told {
                    Some(told) => told.add(&new),
                    None => told = Some(new),
                },
            }
        }
        self.tally.ambiguous += join(&mut self.by_time, &mut same, told)?;
        let fullest =
            self.days.iter().max_by_key(|(day, of)| (of.events, Reverse(**day))).map_or(0, |d| *d.0);
        let near = || self.days.range(fullest - 1..=fullest + 1);
        let events: u64 = near().map(|(_, day)| day.events).sum();
        let far = self.tally.events - events;
        self.tally.events = events;
        self.tally.malformed += far;
        let first_host = near().filter_map(|(_, day)| day.first_host).min();
        Ok(Sorted {
            items: self.by_time.sorted()?,
            days: (fullest - 1, fullest + 1),
            first_host,
            names: self.names,
            tally: self.tally,
            base: self.base,
            devices: self.devices,
        })
    }
}

/// Gives the calls of one correlation id what was told of it, unless several might be meant. How many were.
fn join(by_time: &mut Sorter<Timed>, calls: &mut Vec<Timed>, told: Option<Told>) -> io::Result<u64> {
    // The runtime's call and the driver's inside it have one id.
    let thread = calls.first().map(|call| call.thread);
    let several = calls.iter().any(|call| Some(call.thread) != thread);
    let mut ambiguous = 0;
    for mut timed in calls.drain(..) {
        if let (What::Call(call), Some(told)) = (&mut timed.what, &told) {
            if several {
                ambiguous += 1;
            } else {
                call.told = told.clone();
            }
        }
        by_time.push(timed)?;
    }
    Ok(ambiguous)
}

pub(super) struct Sorted {
    items: Merge<Timed>,
    days: (i64, i64),
    /// Start of the first host event.
    pub first_host: Option<Stamp>,
    pub names: Names,
    pub tally: Tally,
    pub base: Option<i64>,
    pub devices: BTreeMap<u32, String>,
}

impl Iterator for Sorted {
    type Item = io::Result<Timed>;

    fn next(&mut self) -> Option<io::Result<Timed>> {
        loop {
            match self.items.next()? {
                Ok(timed) if (self.days.0..=self.days.1).contains(&timed.at.div_euclid(DAY_NS)) => {
                    return Some(Ok(timed));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
