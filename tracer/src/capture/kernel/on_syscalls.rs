//! Pairs of programs on the system calls of the whole host: in place all the time where that was asked for, else
//! in bursts, since every call of every process pays for them.

use aya::maps::{HashMap, MapData};
use aya::{Ebpf, Pod};

use super::CaptureError;
use super::now::now;
use super::probes::OnDemand;
use super::tables::{drained, failed, take};
use crate::trace::{Ns, ProbeStatus, Span};

/// A burst lasts at least this long, to the end of its tick.
const BURST: Ns = 300_000_000;
/// From one burst's beginning to the next one's.
const EVERY: Ns = 20_000_000_000;

/// When the programs are in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// From this time on, whenever what they see is wanted.
    Bursts(Ns),
    Never,
}

/// `O` is a row of the map that holds each thread's call under way.
pub(super) struct OnSyscalls<O: Pod> {
    /// The exit first: a call must not be entered without an exit to come.
    programs: [&'static str; 2],
    attached: OnDemand,
    map: &'static str,
    open: HashMap<MapData, u32, O>,
    when: When,
    wanted: bool,
    in_place: bool,
    /// When they were last put in place.
    began: Ns,
    /// Before that.
    watched_ns: u64,
}

impl<O: Pod> OnSyscalls<O> {
    /// # Errors
    /// The object has no such map.
    pub(super) fn new(
        ebpf: &mut Ebpf,
        programs: [&'static str; 2],
        map: &'static str,
        when: When,
    ) -> Result<Self, CaptureError> {
        Ok(Self {
            programs,
            attached: OnDemand::default(),
            map,
            open: take(ebpf, map)?,
            when,
            wanted: false,
            in_place: false,
            began: 0,
            watched_ns: 0,
        })
    }

    /// The next burst is worth its cost.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Time in which calls were watched until now.
    pub(super) fn watched_ns(&self, at: Ns) -> u64 {
        self.watched_ns + if self.in_place { at.saturating_sub(self.began) } else { 0 }
    }

    /// The part of a tick in which calls were watched.
    pub(super) fn watched(&self, tick: Span) -> Span {
        Span::new(tick.start.max(self.began.min(tick.end)), tick.end)
    }

    /// Before the tables are turned over: ends a burst that lasted long enough, so that what it counted lies in
    /// the tick that ends now.
    pub(super) fn before_turn(&mut self, ebpf: &mut Ebpf, at: Ns) {
        if self.in_place && self.when != When::Always && at >= self.began + BURST {
            self.end(ebpf);
        }
    }

    /// After it: begins what is due, which then covers whole ticks.
    ///
    /// # Errors
    /// The map could not be read.
    pub(super) fn after_turn(&mut self, ebpf: &mut Ebpf, at: Ns) -> Result<(), CaptureError> {
        let due = match self.when {
            When::Always => true,
            When::Bursts(next) => self.wanted && at >= next,
            When::Never => false,
        };
        if !due || self.in_place {
            return Ok(());
        }
        // Calls that outlasted the burst before: nobody saw their ends.
        drained(&mut self.open, |_| true).map_err(|e| failed(self.map, e))?;
        if let Err(error) = self.attached.attach(ebpf, &self.programs) {
            tracing::warn!(%error, programs = ?self.programs, "watching system calls");
            self.attached.detach(ebpf);
            self.when = When::Never;
            return Ok(());
        }
        if let When::Bursts(next) = &mut self.when {
            *next = at + EVERY;
        }
        (self.wanted, self.in_place, self.began) = (false, true, now());
        Ok(())
    }

    /// No burst comes any more, and one under way ends. What is there all the time stays.
    pub(super) fn stop_bursts(&mut self, ebpf: &mut Ebpf) {
        if matches!(self.when, When::Bursts(_)) {
            self.when = When::Never;
            self.end(ebpf);
        }
    }

    fn end(&mut self, ebpf: &mut Ebpf) {
        self.attached.detach(ebpf);
        self.watched_ns = self.watched_ns(now());
        self.in_place = false;
    }
}

/// Whether all of these are loaded, and attached where they stay.
pub(super) fn ready(probes: &[ProbeStatus], programs: &[&str]) -> bool {
    programs.iter().all(|name| probes.iter().any(|p| p.name == *name && p.attached))
}
