//! When devices are known to stand idle, and when to work.

use super::model::DeviceIdle;
use crate::timeline::union;
use crate::trace::Span;

/// Stretches in order and apart. What is known to be neither is in neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// At least one device stood idle.
    pub idle: Vec<Span>,
    /// All devices worked.
    pub busy: Vec<Span>,
}

/// Idle that has no place leaves the whole stretch it lies in to neither side, as unknown time does.
#[must_use]
pub fn sides(devices: &[DeviceIdle]) -> Sides {
    let placed = devices.iter().flat_map(|d| &d.placed).map(|p| p.span);
    let idle = union(placed.collect());
    let busy = devices.iter().map(busy).reduce(|all, one| common(&all, &one)).unwrap_or_default();
    Sides { idle, busy }
}

fn busy(device: &DeviceIdle) -> Vec<Span> {
    let placed = device.placed.iter().map(|p| p.span);
    let unplaced = device.unplaced.iter().filter(|u| u.ns > 0).map(|u| u.span);
    let unknown = device.unknown.iter().map(|(span, _)| *span);
    rest(&union(vec![device.window]), &union(placed.chain(unplaced).chain(unknown).collect()))
}

/// What of `spans` lies in none of `others`; both in order and apart, as is the result.
fn rest(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    for span in spans {
        let mut from = span.start;
        let first = others.partition_point(|o| o.end <= span.start);
        for other in others[first..].iter().take_while(|o| o.start < span.end) {
            left.push(Span::new(from, other.start));
            from = other.end;
        }
        left.push(Span::new(from, span.end));
    }
    left.retain(|s| !s.is_empty());
    left
}

fn common(these: &[Span], those: &[Span]) -> Vec<Span> {
    rest(these, &rest(these, those))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::idle::{Known, PlacedIdle, UnknownReason, UnplacedIdle};

    fn device(window: Span, placed: &[Span], unplaced: &[Span], unknown: &[Span]) -> DeviceIdle {
        let place = |span: &Span| PlacedIdle {
            span: *span,
            known: Known::Drained,
            feeder: None,
            submit: None,
            device_inferred: false,
        };
        let unplace = |span: &Span| UnplacedIdle {
            span: *span,
            ns: 1,
            reason: String::new(),
            launch_bound: false,
            in_waits: false,
            feeder: None,
        };
        DeviceIdle {
            window,
            placed: placed.iter().map(place).collect(),
            unplaced: unplaced.iter().map(unplace).collect(),
            unknown: unknown.iter().map(|span| (*span, UnknownReason::NoReading)).collect(),
            ..DeviceIdle::default()
        }
    }

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        vec((0u64..60, 0u64..60), 0..5)
            .prop_map(|pairs| union(pairs.iter().map(|(a, b)| Span::new(*a, *b)).collect()))
    }

    #[test]
    fn one_idle_device_is_idle_and_only_all_busy_ones_are_busy() {
        let first = device(Span::new(0, 100), &[Span::new(10, 20)], &[], &[]);
        let second =
            device(Span::new(0, 90), &[Span::new(15, 30)], &[Span::new(40, 50)], &[Span::new(60, 70)]);
        let both = sides(&[first, second]);
        assert_eq!(both.idle, [Span::new(10, 30)]);
        let busy = [(0, 10), (30, 40), (50, 60), (70, 90)].map(|(from, to)| Span::new(from, to));
        assert_eq!(both.busy, busy);
        assert_eq!(sides(&[]), Sides::default());
    }

    proptest! {
        #[test]
        fn every_instant_is_on_the_side_it_is_known_to_be(
            parts in vec((spans(), spans(), spans(), (0u64..60, 0u64..60)), 1..4),
        ) {
            let within = |spans: &[Span], at| spans.iter().any(|s| s.contains(at));
            let window = |(from, to): (u64, u64)| Span::new(from, to);
            let devices: Vec<_> = parts.iter().map(|(p, u, n, w)| device(window(*w), p, u, n)).collect();
            let sides = sides(&devices);
            for at in 0..61 {
                let idle = parts.iter().any(|(placed, ..)| within(placed, at));
                let busy = parts.iter().all(|(placed, unplaced, unknown, w)| {
                    window(*w).contains(at) && ![placed, unplaced, unknown].iter().any(|s| within(s, at))
                });
                prop_assert_eq!((within(&sides.idle, at), within(&sides.busy, at)), (idle, busy), "at {}", at);
            }
            for side in [&sides.idle, &sides.busy] {
                prop_assert_eq!(&union(side.clone()), side);
            }
        }
    }
}
