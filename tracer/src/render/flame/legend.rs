//! Under the picture: which colour is what.

use std::collections::BTreeMap;

use inferno::flamegraph::color::Color;

use super::{Flame, colour};
use crate::cause::Stage;

/// A colour and what it stands for.
pub(super) type Entry = (Color, &'static str);

/// Pixels; as wide as a letter of the picture's font is.
const ROW: usize = 26;
const LETTER: usize = 8;
const MARGIN: usize = 10;
const BOX: usize = 12;

/// Adds a row at the foot of an SVG as inferno draws it.
pub(super) fn add(svg: String, entries: &[Entry]) -> String {
    let Some(height) = height(&svg).filter(|_| !entries.is_empty()) else { return svg };
    let mut row = String::from("<g id=\"legend\">");
    let mut x = MARGIN;
    for (Color { r, g, b }, name) in entries {
        let (top, text) = (height + 4, x + BOX + 5);
        row.push_str(&format!(
            "<rect x=\"{x}\" y=\"{top}\" width=\"{BOX}\" height=\"{BOX}\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{text}\" y=\"{}\">{name}</text>",
            top + 11
        ));
        x = text + (name.len() + 2) * LETTER;
    }
    row.push_str("</g></svg>");
    let taller = svg
        .replacen(&format!(" height=\"{height}\""), &format!(" height=\"{}\"", height + ROW), 1)
        .replacen(&format!(" {height}\""), &format!(" {}\"", height + ROW), 1);
    match taller.strip_suffix("</svg>") {
        Some(body) => format!("{body}{row}"),
        None => svg,
    }
}

/// Those that some stack is of, the widest first, and the colour of what serves several.
pub(super) fn stages(flame: &Flame) -> Vec<Entry> {
    let mut widths: BTreeMap<Stage, u128> = BTreeMap::new();
    for (stack, stage) in &flame.stages {
        *widths.entry(*stage).or_default() += flame.stacks.get(stack).copied().map_or(0, u128::from);
    }
    let mut stages: Vec<_> = widths.into_iter().collect();
    stages.sort_by_key(|(stage, ns)| (std::cmp::Reverse(*ns), *stage));
    let stages = stages.into_iter().map(|(stage, _)| (colour::stage(stage), stage.name()));
    stages.chain([(colour::SHARED, "several")]).collect()
}

/// Of the whole picture, in pixels, as its first element says it.
fn height(svg: &str) -> Option<usize> {
    let element = svg.get(svg.find("<svg ")?..)?;
    let digits = element.split_once(" height=\"")?.1;
    digits.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::flame::Kind;

    #[test]
    fn a_row_is_added_for_the_stages_there_are() {
        let mut flame = Flame::new(Kind::Idle, 1, 0);
        flame.add(vec!["GPU 0".to_owned(), "reads".to_owned()], Some(Stage::Storage), 900);
        flame.add(vec!["GPU 0".to_owned(), "decodes".to_owned()], Some(Stage::Prepare), 100);
        let drawn = crate::render::flame::svg(&flame).expect("it draws");
        let (plain, with) = (height(&drawn).expect("a height"), drawn.split("<g id=\"legend\">").nth(1));
        let with = with.expect("a legend");
        let at = |word: &str| with.find(&format!(">{word}<")).expect("the stage");
        assert!(at("storage") < at("prepare") && at("prepare") < at("several"));
        assert!(!with.contains(">lock<"));
        // The row lies within the picture, which is shown whole.
        assert!(drawn.contains(&format!("viewBox=\"0 0 1200 {plain}\"")), "{drawn}");
        assert!(with.contains(&format!("y=\"{}\"", plain - ROW + 4)));
        assert!(drawn.ends_with("</g></svg>"));
    }
}
