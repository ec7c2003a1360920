//! One hue a stage; grey where a frame serves several.

use std::collections::BTreeMap;

use inferno::flamegraph::color::{Color, PaletteMap};

use super::{Difference, Flame, Kind};
use crate::cause::Stage;

/// The background; also of the frame inferno puts before all others, which has no name to show.
pub(super) const GROUND: Color = rgb(252, 252, 250);
pub(super) const SHARED: Color = rgb(205, 210, 216);
/// Of a difference: more on the first side, more on the second, as much of either.
const MORE: Color = rgb(240, 130, 115);
const LESS: Color = rgb(130, 165, 235);
const EVEN: Color = rgb(226, 224, 222);
const KERNEL: Color = rgb(150, 185, 225);
const USER: Color = rgb(240, 190, 120);
/// A frame takes a stage's colour when the stage has at least this share of it, in percent.
const MOSTLY: u128 = 90;

const fn rgb(r: u8, g: u8, b: u8) -> Color {
    Color { r, g, b }
}

/// The hue of a stage; its frames have it in four shades.
pub(super) fn stage(stage: Stage) -> Color {
    match stage {
        Stage::Storage => rgb(110, 160, 220),
        Stage::Network => rgb(125, 195, 215),
        Stage::Prepare => rgb(240, 175, 85),
        Stage::Memory => rgb(195, 150, 220),
        Stage::Copy => rgb(225, 145, 190),
        Stage::Launch => rgb(115, 195, 165),
        Stage::Driver => rgb(155, 200, 110),
        Stage::Schedule => rgb(230, 125, 110),
        Stage::Lock => rgb(215, 100, 130),
        Stage::Peer => rgb(160, 165, 230),
        Stage::Process => rgb(190, 160, 125),
        Stage::NoDemand => rgb(220, 220, 190),
        Stage::Unexplained => rgb(175, 175, 175),
    }
}

/// Every frame's colour by its name, so that nothing is left to inferno's random choice.
pub(super) fn map(flame: &Flame) -> PaletteMap {
    let mut map = PaletteMap::default();
    map.insert("", GROUND);
    for (name, weights) in &flame.stages {
        let colour = match flame.kind {
            Kind::Idle => {
                let total: u128 = weights.values().copied().map(u128::from).sum();
                let largest = weights.iter().max_by_key(|(_, ns)| **ns);
                match largest {
                    _ if super::idle::is_device(name) => SHARED,
                    Some((Some(s), ns)) if u128::from(*ns) * 100 >= total * MOSTLY => stage(*s),
                    _ => SHARED,
                }
            }
            _ if name.ends_with("_[k]") => KERNEL,
            _ if name.starts_with('[') => SHARED,
            _ => USER,
        };
        map.insert(name, shade(colour, name));
    }
    map
}

/// By its name too: how far the sum of a frame's differences stands from nothing, against their widths.
pub(super) fn of_difference(difference: &Difference) -> PaletteMap {
    let mut map = PaletteMap::default();
    map.insert("", GROUND);
    let mut frames: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    for (stack, rates) in &difference.stacks {
        for name in stack {
            let (sum, width) = frames.entry(name).or_default();
            *sum += rates.signed();
            *width += i128::from(rates.width());
        }
    }
    for (name, (sum, width)) in frames {
        let towards = if sum < 0 { LESS } else { MORE };
        // In hundredths; a sum is never more than its widths.
        let far = (sum.abs() * 100).checked_div(width).unwrap_or(0);
        let mix = |even: u8, full: u8| {
            let mixed = (i128::from(even) * (100 - far) + i128::from(full) * far) / 100;
            u8::try_from(mixed).unwrap_or(full)
        };
        let colour = rgb(mix(EVEN.r, towards.r), mix(EVEN.g, towards.g), mix(EVEN.b, towards.b));
        map.insert(name, colour);
    }
    map
}

/// Neighbours of one hue stay apart: four shades, chosen by the name.
fn shade(colour: Color, name: &str) -> Color {
    let step = name.bytes().fold(0u8, u8::wrapping_add) % 4 * 7;
    rgb(colour.r.saturating_add(step), colour.g.saturating_add(step), colour.b.saturating_add(step))
}
