//! Ties the parts together, one device after another.

use super::cost::{self, Told};
use super::devices::DeviceMap;
use super::edges::Edges;
use super::label::{Agreement, Placing};
use super::mass::{Window, windows};
use super::model::{DeviceIdle, Known, PlacedIdle, UnplacedIdle};
use super::queue::{Carry, What, fit, gaps};
use super::trim::trim;
use super::watch::Watches;
use crate::timeline::{DeviceTrack, Timeline};
use crate::trace::Span;

/// One device's idle time, and where the queue has what is not placed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Located {
    pub idle: DeviceIdle,
    /// Where idle between submits less than 200 us apart lies, were all submits of a run evenly spread and
    /// equally long. Sums to the `launch_bound` part of `unplaced`, that of windows without watched launches left
    /// out. Too fine to be taken one by one.
    pub between_submits: Vec<Span>,
}

/// The idle time of every device, in index order. With `range`, of the device windows that lie in it.
#[must_use]
pub fn place(timeline: &Timeline, range: Option<Span>) -> Vec<DeviceIdle> {
    let map = DeviceMap::new(timeline);
    let devices = timeline.devices.iter();
    devices.map(|(&index, track)| of_device(timeline, &map, index, track, range, false).idle).collect()
}

/// As [`place`], with the finest placement there is.
#[must_use]
pub fn locate(timeline: &Timeline, range: Option<Span>) -> Vec<Located> {
    let map = DeviceMap::new(timeline);
    let devices = timeline.devices.iter();
    devices.map(|(&index, track)| of_device(timeline, &map, index, track, range, true)).collect()
}

fn of_device(
    timeline: &Timeline,
    map: &DeviceMap,
    device: u32,
    track: &DeviceTrack,
    range: Option<Span>,
    fine: bool,
) -> Located {
    let mut edges = Edges::of_device(timeline, map, device);
    let windows = windows(track, timeline.span, |span| edges.copied(span));
    let chosen = choose(&windows, range);
    let mut idle = DeviceIdle { device, ..DeviceIdle::default() };
    idle.window = hull(&chosen, range.unwrap_or(timeline.span));
    let mut watches = Watches::new(timeline, &edges.runs);
    let seen = |told: &Told| watches.blind(told.span).is_none();
    let readings: Vec<Told> = windows.iter().filter_map(Told::of_window).filter(seen).collect();
    let drains: Vec<Told> = edges.drains().into_iter().filter(seen).collect();
    edges.costs = cost::fit(&edges.runs, &readings, &drains);
    let mut placing = Placing { between_submits: fine.then(Vec::new), ..Placing::default() };
    let mut carry = Carry::default();
    let mut unwatched = Vec::new();
    for window in &windows {
        // Windows ahead of the range are placed too: what they leave queued lasts into it.
        let mut aside = Placing::default();
        let inside = chosen.binary_search_by_key(&window.span, |chosen| chosen.span).is_ok();
        let into = if inside { &mut placing } else { &mut aside };
        // A window without any busy time is idle whoever launched what.
        let blind = watches.blind(window.span).filter(|_| !edges.runs.is_empty());
        let blind = blind.filter(|_| window.idle != Ok(window.span.len()));
        match (window.idle, blind) {
            (Ok(mass), Some(why)) => {
                if inside {
                    unwatched.push((window.span, mass, why.to_owned()));
                }
                carry = Carry::default();
            }
            (Ok(mass), None) => {
                carry = place_window(timeline, &edges, window.span, mass, carry, into);
                watches.note(window.span, mass, &into.unplaced);
            }
            (Err(_), _) => carry = Carry::default(),
        }
        if inside {
            match window.idle {
                Ok(mass) => {
                    idle.idle_ns += mass;
                    idle.busy_ns += window.span.len() - mass;
                }
                Err(reason) => {
                    idle.unknown_ns += window.span.len();
                    idle.unknown.push((window.span, reason));
                }
            }
        }
    }
    for (span, mass, why) in unwatched {
        placing.unplace(watches.unplaced(span, mass, &why));
    }
    placing.unplaced.sort_by_key(|u| u.span.start);
    count(&edges, &mut idle);
    idle.placed = placing.placed;
    idle.unplaced = placing.unplaced;
    Located { idle, between_submits: placing.between_submits.unwrap_or_default() }
}

/// The windows that lie in `range`; those next to its ends are there only if they have a reading.
fn choose(windows: &[Window], range: Option<Span>) -> Vec<Window> {
    let Some(range) = range else { return windows.to_vec() };
    let inside = |w: &&Window| range.start <= w.span.start && w.span.end <= range.end;
    windows.iter().filter(inside).copied().collect()
}

fn hull(chosen: &[Window], range: Span) -> Span {
    match (chosen.first(), chosen.last()) {
        (Some(first), Some(last)) => Span::new(first.span.start, last.span.end),
        _ => Span::new(range.start, range.start),
    }
}

fn place_window(
    timeline: &Timeline,
    edges: &Edges,
    window: Span,
    mass: u64,
    carry: Carry,
    into: &mut Placing,
) -> Carry {
    if edges.runs.is_empty() {
        let span = Span::new(window.end - mass, window.end);
        into.place(PlacedIdle {
            span,
            known: Known::Inferred,
            feeder: None,
            submit: None,
            device_inferred: edges.inferred,
        });
        return Carry::default();
    }
    let mut events = edges.events(window);
    let busy = window.len() - mass;
    let all_idle = busy == 0;
    if all_idle {
        // Whatever the calls waited for, it was no kernel.
        events.retain(|e| !matches!(e.what, What::Wait(_)));
    }
    let Some((mut gaps, next)) = fit(window, &events, carry, busy) else {
        return in_waits(timeline, edges, window, mass, carry, into);
    };
    let found: u64 = gaps.iter().map(|g| g.span.len()).sum();
    let vouched = trim(&mut gaps, found - mass);
    // Readings are whole percents and their windows' stamps some milliseconds off, which contradicts nothing.
    let contradicted = vouched > window.len() / 50;
    into.take(timeline, edges, &gaps, Agreement { window, all_idle, contradicted });
    next
}

/// Calls wait for longer than the device was busy: for copies, or between kernels. Idle time outside them is
/// placed; where inside them the rest lies is not known.
fn in_waits(
    timeline: &Timeline,
    edges: &Edges,
    window: Span,
    mass: u64,
    carry: Carry,
    into: &mut Placing,
) -> Carry {
    let (gaps, next) = gaps(window, &edges.events(window), carry, 0);
    let outside: u64 = gaps.iter().map(|g| g.span.len()).sum();
    let agreement = Agreement { window, all_idle: false, contradicted: false };
    into.take(timeline, edges, &gaps, agreement);
    let burst = edges.bursts.partition_point(|b| b.span.start < window.end).checked_sub(1);
    let inside = mass.saturating_sub(outside);
    let rounding = inside <= window.len() / 200;
    let reason = if rounding {
        "less than the rounding of the device's reading"
    } else {
        "inside synchronise calls that waited for longer than kernels ran"
    };
    into.unplace(UnplacedIdle {
        span: window,
        ns: inside,
        reason: reason.into(),
        launch_bound: false,
        in_waits: !rounding,
        feeder: burst.map(|b| edges.bursts[b].feeder),
    });
    next
}

/// Submits in the device's window, and launches a second where any were seen.
fn count(edges: &Edges, idle: &mut DeviceIdle) {
    let mut launches = 0_u64;
    for run in edges.runs_in(idle.window) {
        let (submits, of_them) = run.counts(idle.window);
        idle.submits = idle.submits.saturating_add(submits);
        launches = launches.saturating_add(of_them);
    }
    if !edges.runs.is_empty() && !idle.window.is_empty() {
        #[expect(clippy::cast_precision_loss, reason = "a rate to be shown")]
        let rate = launches as f64 * 1e9 / idle.window.len() as f64;
        idle.launches_per_second = Some(rate);
    }
}
