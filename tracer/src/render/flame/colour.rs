//! One hue a stage; grey where a frame serves several.

use std::collections::BTreeMap;

use inferno::flamegraph::color::{Color, PaletteMap};

use super::Flame;
use super::difference::Rates;
use crate::cause::Stage;

/// The background; also of the frame inferno puts before all others, which has no name to show.
pub(super) const GROUND: Color = rgb(252, 252, 250);
pub(super) const SHARED: Color = rgb(205, 210, 216);
/// Of a difference: more on the first side, more on the second, as much of either.
const MORE: Color = rgb(240, 130, 115);
const LESS: Color = rgb(130, 165, 235);
pub(super) const EVEN: Color = rgb(226, 224, 222);
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

/// Every frame's colour by its name, for the kinds that tell user code from the kernel's.
pub(super) fn by_name(flame: &Flame) -> PaletteMap {
    let mut map = PaletteMap::default();
    map.insert("", GROUND);
    for name in flame.stacks.keys().flatten() {
        let colour = match name {
            _ if name.ends_with("_[k]") => KERNEL,
            _ if name.starts_with('[') => SHARED,
            _ => USER,
        };
        map.insert(name, shade(colour, name));
    }
    map
}

/// What a colour of [`by_name`] is.
pub(super) const KINDS: [(Color, &str); 3] = [(USER, "user"), (KERNEL, "kernel"), (SHARED, "no function")];

/// The colour of a frame of idle time: the stage of the stacks through it, by their weights.
pub(super) fn of_idle(name: &str, stacks: impl Iterator<Item = (Option<Stage>, u64)>) -> Color {
    let mut weights: BTreeMap<Option<Stage>, u128> = BTreeMap::new();
    for (stage, ns) in stacks {
        *weights.entry(stage).or_default() += u128::from(ns);
    }
    let total: u128 = weights.values().sum();
    let colour = match weights.into_iter().max_by_key(|(_, ns)| *ns) {
        _ if super::idle::is_device(name) => SHARED,
        Some((Some(s), ns)) if ns * 100 >= total * MOSTLY => stage(s),
        _ => SHARED,
    };
    shade(colour, name)
}

/// The colour of a frame of a difference: how far the sum of the stacks through it stands from nothing, against their
/// widths; in five steps, since a name has no more colours than that.
pub(super) fn of_difference(stacks: impl Iterator<Item = Rates>) -> Color {
    let (mut sum, mut width) = (0, 0);
    for rates in stacks {
        sum += rates.signed();
        width += i128::from(rates.width());
    }
    // A sum is never more than its widths.
    let quarters = (sum.abs() * 4).checked_div(width).unwrap_or(0);
    let towards = if sum < 0 { LESS } else { MORE };
    match quarters {
        0 => EVEN,
        1 | 2 => rgb(EVEN.r.midpoint(towards.r), EVEN.g.midpoint(towards.g), EVEN.b.midpoint(towards.b)),
        _ => towards,
    }
}

/// inferno knows a frame's colour by its name alone, and does not show these at its end: so one name can have several
/// colours.
const MARKS: [&str; 5] = ["", "_[k]", "_[i]", "_[j]", "_[w]"];

/// A name without its mark, and the mark.
pub(super) fn parted(name: &str) -> (&str, &str) {
    let mark = MARKS[1..].iter().find(|mark| name.ends_with(**mark)).copied().unwrap_or("");
    (name.strip_suffix(mark).unwrap_or(name), mark)
}

/// Frames from the outermost, and what is known of the stack.
pub(super) type Stacked<'a, T> = (&'a [String], T);
/// The colour of a frame, by its name and the stacks through it.
type Colouring<'c, T> = dyn Fn(&str, &[Stacked<'_, T>]) -> Color + 'c;

/// Frames coloured by their place.
pub(super) struct Marked {
    /// In the order given.
    pub(super) stacks: Vec<Vec<String>>,
    pub(super) palette: PaletteMap,
}

/// Marks the frames of stacks, which are sorted by name. `colour` tells a frame's from its name and the stacks through
/// it; `weight` which colours of a name count most, of which it can have as many as there are marks, and `other` instead
/// of the rest.
pub(super) fn by_place<T>(
    stacks: &[Stacked<'_, T>],
    other: Color,
    weight: fn(&T) -> u64,
    colour: &Colouring<'_, T>,
) -> Marked {
    let mut colours = vec![Vec::new(); stacks.len()];
    colour_each(stacks, 0, &mut colours, colour);
    let mut weights: BTreeMap<&str, Vec<(Color, u128)>> = BTreeMap::new();
    for ((frames, of), colours) in stacks.iter().zip(&colours) {
        for (name, colour) in frames.iter().zip(colours) {
            let of_name = weights.entry(parted(name).0).or_default();
            match of_name.iter_mut().find(|(c, _)| c == colour) {
                Some((_, sum)) => *sum += u128::from(weight(of)),
                None => of_name.push((*colour, weight(of).into())),
            }
        }
    }
    for of_name in weights.values_mut() {
        // Stable: equal ones stay in the order in which they were met.
        of_name.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        if of_name.len() > MARKS.len() {
            of_name.truncate(MARKS.len() - 1);
            of_name.push((other, 0));
        }
    }
    let mut palette = PaletteMap::default();
    palette.insert("", GROUND);
    let mut name = |(name, colour): (&String, &Color)| {
        let (bare, _) = parted(name);
        let of_name = &weights[bare];
        let index = of_name.iter().position(|(c, _)| c == colour).unwrap_or(of_name.len() - 1);
        let name = format!("{bare}{}", MARKS[index]);
        palette.insert(&name, of_name[index].0);
        name
    };
    let stacks =
        stacks.iter().zip(&colours).map(|(s, colours)| s.0.iter().zip(colours).map(&mut name).collect());
    Marked { stacks: stacks.collect(), palette }
}

/// Appends to each stack's the colours of its frames from `depth` on.
fn colour_each<T>(
    stacks: &[Stacked<'_, T>],
    depth: usize,
    colours: &mut [Vec<Color>],
    colour: &Colouring<'_, T>,
) {
    let mut from = 0;
    for group in stacks.chunk_by(|a, b| a.0.get(depth) == b.0.get(depth)) {
        let to = from + group.len();
        if let Some(name) = group[0].0.get(depth) {
            let one = colour(name, group);
            colours[from..to].iter_mut().for_each(|stack| stack.push(one));
            colour_each(group, depth + 1, &mut colours[from..to], colour);
        }
        from = to;
    }
}

/// Neighbours of one hue stay apart: four shades, chosen by the name.
fn shade(colour: Color, name: &str) -> Color {
    let step = name.bytes().fold(0u8, u8::wrapping_add) % 4 * 7;
    rgb(colour.r.saturating_add(step), colour.g.saturating_add(step), colour.b.saturating_add(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &str) -> Vec<String> {
        frames.split(';').map(str::to_owned).collect()
    }

    #[test]
    fn a_frame_has_the_colour_of_its_place_not_of_its_name() {
        let rates = |first, second| Rates { first, second };
        let stacks: Vec<_> = [
            ("a;_start;x", rates(0, 90)),
            ("a;_start;y_[k]", rates(10, 0)),
            ("b;_start;x", rates(500, 0)),
            ("c;_start;x", rates(50, 0)),
            ("c;_start;y_[k]", rates(0, 50)),
        ]
        .map(|(frames, rates)| (stack(frames), rates))
        .to_vec();
        let borrowed: Vec<(&[String], Rates)> = stacks.iter().map(|(s, r)| (s.as_slice(), *r)).collect();
        let marked = by_place(&borrowed, EVEN, |r| r.width(), &|_, through| {
            of_difference(through.iter().map(|(_, r)| *r))
        });
        let colours = |at: usize| -> Vec<Color> {
            marked.stacks[at].iter().map(|name| marked.palette.get(name).expect("each has one")).collect()
        };
        assert_eq!(colours(0), [LESS, LESS, LESS]);
        assert_eq!(colours(1), [LESS, LESS, MORE]);
        assert_eq!(colours(2), [MORE, MORE, MORE]);
        assert_eq!(colours(4), [EVEN, EVEN, LESS]);
        for (marked, given) in marked.stacks.iter().zip(&stacks) {
            let bare = |names: &[String]| names.iter().map(|n| parted(n).0.to_owned()).collect::<Vec<_>>();
            assert_eq!(bare(marked), bare(&given.0));
        }
    }

    #[test]
    fn a_name_with_more_colours_than_it_can_have_is_in_the_other_one() {
        let stages =
            [Stage::Storage, Stage::Network, Stage::Prepare, Stage::Memory, Stage::Copy, Stage::Lock];
        let weighed = (1..).zip(stages);
        let stacks: Vec<_> = weighed.map(|(ns, stage)| (stack(&format!("{ns};f")), (stage, ns))).collect();
        let borrowed: Vec<(&[String], (Stage, u64))> =
            stacks.iter().map(|(s, of)| (s.as_slice(), *of)).collect();
        let of = |name: &str, through: &[(&[String], (Stage, u64))]| {
            of_idle(name, through.iter().map(|(_, (stage, ns))| (Some(*stage), *ns)))
        };
        let marked = by_place(&borrowed, SHARED, |(_, ns)| *ns, &of);
        let colours: Vec<_> = marked.stacks.iter().map(|s| marked.palette.get(&s[1]).expect("one")).collect();
        let wanted: Vec<_> = stages.map(|s| shade(stage(s), "f")).to_vec();
        // The lightest two are.
        assert_eq!(colours[..2], [SHARED, SHARED]);
        assert_eq!(colours[2..], wanted[2..]);
    }
}
