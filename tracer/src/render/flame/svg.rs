//! The drawing, by inferno.

use std::collections::HashMap;

use inferno::flamegraph::color::{BackgroundColor, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};

use super::colour::{Marked, Stacked};
use super::difference::Rates;
use super::{Difference, Flame, FlameError, Kind, colour, legend};
use crate::cause::Stage;
use crate::render::figure::{TIE, share, time};

/// Counts are nanoseconds; below this total they are shown as such, above as milliseconds.
const SHOW_MILLIS: u128 = 100_000_000;
/// A frame narrower than the whole divided by this is not drawn.
const NARROWEST: u128 = 10_000;
/// Frames into a stack up to which siblings are put in order.
const DEEPEST: usize = 512;

/// The flame graph as an SVG that can be zoomed and searched in a browser, the widest frame of each row on
/// the left. The same flame always gives the same bytes.
///
/// # Errors
/// When there is nothing to draw.
pub fn svg(flame: &Flame) -> Result<String, FlameError> {
    flame.drawable()?;
    let whole = |(frames, ns)| Drawn { frames, ns, whole: true };
    let draw = |lines: (Vec<String>, u128), mut palette| {
        let unit = Unit::of(lines.1);
        draw(&lines.0, options(flame.title(), flame.subtitle(), flame.kind, unit, &mut palette))
    };
    if flame.kind != Kind::Idle {
        let mut palette = colour::by_name(flame);
        let stacks: Vec<_> =
            flame.stacks.iter().map(|(frames, ns)| whole((frames.as_slice(), *ns))).collect();
        let drawing = draw(lines(&stacks, None, &mut palette), palette)?;
        return Ok(legend::add(drawing, &colour::KINDS));
    }
    let stages: Vec<Stacked<(Option<Stage>, u64)>> =
        flame.stacks.iter().map(|(s, ns)| (s.as_slice(), (flame.stages.get(s).copied(), *ns))).collect();
    let Marked { stacks, mut palette } =
        colour::by_place(&stages, colour::SHARED, |(_, ns)| *ns, &|name, through| {
            colour::of_idle(name, through.iter().map(|(_, of)| *of))
        });
    let stacks: Vec<_> =
        stacks.iter().zip(flame.stacks.values()).map(|(frames, ns)| whole((frames, *ns))).collect();
    // Most viewers show no tooltips, so the end of a chain tells its time itself.
    let told = |stack: &Drawn| format!("{}, {}", time(stack.ns), share(stack.ns, flame.total_ns()));
    let drawing = draw(lines(&stacks, Some(&told), &mut palette), palette)?;
    Ok(legend::add(drawing, &legend::stages(flame)))
}

/// The difference as an SVG: the width of a stack is how much its rates differ, red where the first is more.
///
/// # Errors
/// The two do not differ.
pub(super) fn difference(difference: &Difference) -> Result<String, FlameError> {
    difference.drawable()?;
    let differ: Vec<Stacked<Rates>> =
        difference.stacks.iter().filter(|(_, r)| r.width() > 0).map(|(s, r)| (s.as_slice(), *r)).collect();
    let Marked { stacks, mut palette } =
        colour::by_place(&differ, colour::EVEN, |rates| rates.width(), &|_, through| {
            colour::of_difference(through.iter().map(|(_, rates)| *rates))
        });
    let rates: HashMap<&[String], Rates> =
        stacks.iter().map(Vec::as_slice).zip(differ.iter().map(|(_, rates)| *rates)).collect();
    let stacks: Vec<_> = stacks
        .iter()
        .zip(&differ)
        .map(|(frames, (_, rates))| Drawn { frames, ns: rates.width(), whole: true })
        .collect();
    let told = |stack: &Drawn| rates[stack.frames].told();
    let (lines, _) = lines(&stacks, Some(&told), &mut palette);
    let kind = difference.first.kind;
    draw(&lines, options(difference.title(), difference.subtitle(), kind, Unit::Rate, &mut palette))
}

/// What the end of a stack says after its name.
type Told<'a> = &'a dyn Fn(&Drawn) -> String;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nanos,
    Millis,
    /// Nanoseconds per second.
    Rate,
}

impl Unit {
    fn of(total: u128) -> Self {
        if total >= SHOW_MILLIS { Self::Millis } else { Self::Nanos }
    }
}

fn options(title: String, subtitle: String, kind: Kind, unit: Unit, palette: &mut PaletteMap) -> Options<'_> {
    let mut options = Options::default();
    options.title = title;
    options.subtitle = Some(subtitle);
    options.palette_map = Some(palette);
    options.bgcolors = Some(BackgroundColor::Flat(colour::GROUND));
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.name_type = "Frame:".to_owned();
    options.frame_height = 20;
    options.font_size = 13;
    let (name, factor) = match unit {
        Unit::Nanos => ("ns", 1.0),
        Unit::Millis => ("ms", 1e-6),
        Unit::Rate => ("ms/s", 1e-6),
    };
    (options.count_name, options.factor) = (name.to_owned(), factor);
    // From the device down, as the chain is read.
    options.direction = if kind == Kind::Idle { Direction::Inverted } else { Direction::Straight };
    // inferno would sort by name, and whole lines at that, which parts a frame that ends a stack from the
    // same frame inside another. As a chart it keeps the order given, reversed.
    options.flame_chart = true;
    options
}

fn draw(lines: &[String], mut options: Options) -> Result<String, FlameError> {
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut out)?;
    String::from_utf8(out).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e).into())
}

/// A stack as it is drawn.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    frames: &'a [String],
    ns: u64,
    /// Not cut short because the rest would be too narrow to see.
    whole: bool,
}

/// The stacks, sorted by name, as folded lines: equal prefixes side by side and the heaviest first; weights scaled
/// down where their sum would not fit inferno's 64 bits. Also their sum.
fn lines(stacks: &[Drawn<'_>], told: Option<Told>, palette: &mut PaletteMap) -> (Vec<String>, u128) {
    let total = weight(stacks);
    let mut drawn = Vec::new();
    lay_out(stacks, 0, total / NARROWEST, &mut drawn);
    let divisor = u64::try_from(total / u128::from(u64::MAX) + 1).unwrap_or(u64::MAX);
    let mut line = |stack: &Drawn<'_>| {
        let weight = stack.ns / divisor;
        let (Some(told), Some((tip, rest)), true) = (told, stack.frames.split_last(), stack.whole) else {
            return format!("{} {weight}", stack.frames.join(";"));
        };
        // inferno takes a mark off only at the end of a name.
        let (bare, mark) = colour::parted(tip);
        let told = format!("{bare} {}{mark}", told(stack)).replace(TIE, " ");
        if let Some(colour) = palette.get(tip) {
            palette.insert(&told, colour);
        }
        let mut frames = rest.to_vec();
        frames.push(told);
        format!("{} {weight}", frames.join(";"))
    };
    (drawn.iter().map(&mut line).collect(), total)
}

fn weight(stacks: &[Drawn<'_>]) -> u128 {
    stacks.iter().map(|s| u128::from(s.ns)).sum()
}

/// Appends stacks that agree in their first `depth` frames and are sorted by name, the heaviest siblings
/// first; siblings lighter than `least` are cut off, and their weight stays with the frame before them.
fn lay_out<'a>(stacks: &[Drawn<'a>], mut depth: usize, least: u128, out: &mut Vec<Drawn<'a>>) {
    let mut groups: Vec<&[Drawn<'a>]>;
    loop {
        if stacks.len() < 2 || depth > DEEPEST {
            out.extend_from_slice(stacks);
            return;
        }
        groups = stacks.chunk_by(|a, b| a.frames.get(depth) == b.frames.get(depth)).collect();
        if groups.len() > 1 {
            break;
        }
        depth += 1;
    }
    // Stable: equal weights stay in the order of their names.
    groups.sort_by_cached_key(|g| std::cmp::Reverse(weight(g)));
    for group in groups {
        let (sum, first) = (weight(group), group[0].frames);
        if sum < least && first.len() > depth {
            let ns = u64::try_from(sum).unwrap_or(u64::MAX);
            out.push(Drawn { frames: &first[..depth.max(1)], ns, whole: false });
        } else {
            lay_out(group, depth + 1, least, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flame(stacks: &[(&[&str], u64)]) -> Flame {
        let mut flame = Flame::new(Kind::OnCpu, 1, 0);
        for (stack, ns) in stacks {
            flame.add(stack.iter().map(|s| (*s).to_owned()).collect(), None, *ns);
        }
        flame
    }

    fn lines(flame: &Flame) -> Vec<String> {
        let stacks: Vec<_> =
            flame.stacks.iter().map(|(frames, ns)| Drawn { frames, ns: *ns, whole: true }).collect();
        super::lines(&stacks, None, &mut PaletteMap::default()).0
    }

    #[test]
    fn siblings_stand_heaviest_first_and_prefixes_together() {
        let flame = flame(&[
            (&["a", "x"], 1),
            (&["a"], 2),
            (&["a b"], 3),
            (&["a", "y", "z"], 4),
            (&["c"], 9),
            (&["a", "y"], 1),
            (&["d"], 9),
        ]);
        let lines = lines(&flame);
        assert_eq!(lines, ["c 9", "d 9", "a;y;z 4", "a;y 1", "a 2", "a;x 1", "a b 3"]);
    }

    #[test]
    fn a_frame_that_ends_one_stack_and_carries_another_is_one_box() {
        let drawing = svg(&flame(&[(&["a"], 5), (&["a", "x"], 7), (&["a b"], 3)])).expect("it draws");
        assert_eq!(drawing.matches("<title>a (12 ns").count(), 1, "{drawing}");
    }

    #[test]
    fn what_is_too_narrow_to_see_stays_with_the_frame_before_it() {
        let flame =
            flame(&[(&["a", "b", "c"], 1), (&["a", "b", "d"], 2), (&["a", "x"], 99_990), (&["z", "y"], 3)]);
        assert_eq!(lines(&flame), ["a;x 99990", "a 3", "z 3"]);
    }

    #[test]
    fn a_stack_as_deep_as_you_like_is_no_trouble() {
        let deep: Vec<String> = (0..20_000).map(|i| format!("f{i}")).collect();
        let mut flame = flame(&[(&["f0", "g"], 5)]);
        flame.add(deep, None, 7);
        assert!(svg(&flame).is_ok());
    }
}
