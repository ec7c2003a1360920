//! The drawing, by inferno.

use inferno::flamegraph::color::BackgroundColor;
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};

use super::{Flame, FlameError, Kind, colour};

const WIDTH: usize = 1200;
/// Counts are nanoseconds; below this total they are shown as such, above as milliseconds.
const SHOW_MILLIS: u64 = 100_000_000;

/// The flame graph as an SVG that can be zoomed and searched in a browser. The same flame always gives the
/// same bytes.
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
    let mut options = Options::default();
    options.title = flame.title();
    options.subtitle = Some(flame.subtitle());
    options.palette_map = Some(&mut palette);
    options.bgcolors =
        Some(BackgroundColor::Flat(inferno::flamegraph::color::Color { r: 252, g: 252, b: 250 }));
    options.image_width = Some(WIDTH);
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.name_type = "Frame:".to_owned();
    if flame.total_ns() >= SHOW_MILLIS {
        options.count_name = "ms".to_owned();
        options.factor = 1e-6;
    } else {
        options.count_name = "ns".to_owned();
    }
    // From the device down, as the chain is read.
    options.direction = if flame.kind == Kind::Idle { Direction::Inverted } else { Direction::Straight };
    // Our order merges equal prefixes even where one stack ends inside another; inferno's sort of whole
    // lines would part them. As a chart it keeps the order given, reversed.
    options.flame_chart = true;
    let lines: Vec<String> =
        weights(flame).map(|(stack, ns)| format!("{} {ns}", stack.join(";"))).rev().collect();
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut out)?;
    String::from_utf8(out).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e).into())
}

/// The stacks, scaled down where their sum would not fit inferno's 64 bits.
fn weights(flame: &Flame) -> impl DoubleEndedIterator<Item = (&Vec<String>, u64)> {
    let total: u128 = flame.stacks.values().copied().map(u128::from).sum();
    let divisor = u64::try_from(total / u128::from(u64::MAX) + 1).unwrap_or(u64::MAX);
    flame.stacks.iter().map(move |(stack, ns)| (stack, ns / divisor))
}
