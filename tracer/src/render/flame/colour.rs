//! One hue a stage; grey where a frame serves several.

use inferno::flamegraph::color::{Color, PaletteMap};

use super::{Flame, Kind};
use crate::cause::Stage;

/// The background; also of the frame inferno puts before all others, which has no name to show.
pub(super) const GROUND: Color = rgb(252, 252, 250);
const SHARED: Color = rgb(205, 210, 216);
const KERNEL: Color = rgb(150, 185, 225);
const USER: Color = rgb(240, 190, 120);
/// A frame takes a stage's colour when the stage has at least this share of it, in percent.
const MOSTLY: u128 = 90;

const fn rgb(r: u8, g: u8, b: u8) -> Color {
    Color { r, g, b }
}

fn stage(stage: Stage) -> Color {
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

/// Neighbours of one hue stay apart: four shades, chosen by the name.
fn shade(colour: Color, name: &str) -> Color {
    let step = name.bytes().fold(0u8, u8::wrapping_add) % 4 * 7;
    rgb(colour.r.saturating_add(step), colour.g.saturating_add(step), colour.b.saturating_add(step))
}
