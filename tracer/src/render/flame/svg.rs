//! The drawing, by inferno.

use std::collections::BTreeMap;

use inferno::flamegraph::color::{BackgroundColor, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};

use super::{Flame, FlameError, Kind, colour};
use crate::render::figure::{TIE, share, time};

/// Counts are nanoseconds; below this total they are shown as such, above as milliseconds.
const SHOW_MILLIS: u64 = 100_000_000;

/// The flame graph as an SVG that can be zoomed and searched in a browser, the widest frame of each row on
/// the left. The same flame always gives the same bytes.
///
/// # Errors
/// When there is nothing to draw.
pub fn svg(flame: &Flame) -> Result<String, FlameError> {
    if flame.stacks.is_empty() {
        return Err(match flame.kind {
            Kind::Idle => FlameError::NoIdle,
            Kind::OffCpu => FlameError::NoWait,
            Kind::OnCpu => FlameError::NoSample,
        });
    }
    let mut palette = colour::map(flame);
    let lines = lines(flame, &mut palette);
    let mut options = Options::default();
    options.title = flame.title();
    options.subtitle = Some(flame.subtitle());
    options.palette_map = Some(&mut palette);
    options.bgcolors = Some(BackgroundColor::Flat(colour::GROUND));
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.name_type = "Frame:".to_owned();
    options.frame_height = 20;
    options.font_size = 13;
    if flame.total_ns() >= SHOW_MILLIS {
        options.count_name = "ms".to_owned();
        options.factor = 1e-6;
    } else {
        options.count_name = "ns".to_owned();
    }
    // From the device down, as the chain is read.
    options.direction = if flame.kind == Kind::Idle { Direction::Inverted } else { Direction::Straight };
    // inferno would sort by name, and whole lines at that, which parts a frame that ends a stack from the
    // same frame inside another. As a chart it keeps the order given, reversed.
    options.flame_chart = true;
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut out)?;
    String::from_utf8(out).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e).into())
}

/// The stacks as folded lines, equal prefixes side by side and the heaviest first; weights scaled down where
/// their sum would not fit inferno's 64 bits.
fn lines(flame: &Flame, palette: &mut PaletteMap) -> Vec<String> {
    let mut prefixes: BTreeMap<&[String], u128> = BTreeMap::new();
    for (stack, ns) in &flame.stacks {
        for depth in 1..=stack.len() {
            *prefixes.entry(&stack[..depth]).or_default() += u128::from(*ns);
        }
    }
    let mut stacks: Vec<(&Vec<String>, u64)> = flame.stacks.iter().map(|(s, ns)| (s, *ns)).collect();
    stacks.sort_by(|(a, _), (b, _)| {
        let same = a.iter().zip(b.iter()).take_while(|(x, y)| x == y).count();
        let weight = |s: &[String]| s.get(..=same).and_then(|p| prefixes.get(p)).copied().unwrap_or(0);
        weight(b).cmp(&weight(a)).then_with(|| a.cmp(b))
    });
    let total: u128 = stacks.iter().map(|(_, ns)| u128::from(*ns)).sum();
    let divisor = u64::try_from(total / u128::from(u64::MAX) + 1).unwrap_or(u64::MAX);
    let mut line = |(stack, ns): (&Vec<String>, u64)| {
        let weight = ns / divisor;
        match (flame.kind, stack.split_last()) {
            // Most viewers show no tooltips, so the end of a chain tells its time itself.
            (Kind::Idle, Some((tip, rest))) => {
                let told = format!("{tip} {}, {}", time(ns), share(ns, flame.total_ns())).replace(TIE, " ");
                if let Some(colour) = palette.get(tip) {
                    palette.insert(&told, colour);
                }
                let mut frames = rest.to_vec();
                frames.push(told);
                format!("{} {weight}", frames.join(";"))
            }
            _ => format!("{} {weight}", stack.join(";")),
        }
    };
    stacks.into_iter().map(&mut line).collect()
}
