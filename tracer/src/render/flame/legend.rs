//! Under the picture of idle time: which colour is which stage.

use std::collections::BTreeMap;

use inferno::flamegraph::color::Color;

use super::{Flame, colour};
use crate::cause::Stage;

/// Pixels; as wide as a letter of the picture's font is.
const ROW: usize = 26;
const LETTER: usize = 8;
const MARGIN: usize = 10;
const BOX: usize = 12;

/// Adds a row at the foot of an SVG as inferno draws it.
pub(super) fn add(svg: String, flame: &Flame) -> String {
    let stages = stages(flame);
    let Some(height) = height(&svg).filter(|_| !stages.is_empty()) else { return svg };
    let mut row = String::from("<g id=\"legend\">");
    let mut x = MARGIN;
    let mut entry = |colour: Color, name: &str| {
        let (r, g, b) = (colour.r, colour.g, colour.b);
        let (top, text) = (height + 4, x + BOX + 5);
        row.push_str(&format!(
            "<rect x=\"{x}\" y=\"{top}\" width=\"{BOX}\" height=\"{BOX}\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{text}\" y=\"{}\">{name}</text>",
            top + 11
        ));
        x = text + (name.len() + 2) * LETTER;
    };
    for stage in stages {
        entry(colour::stage(stage), stage.name());
    }
    entry(colour::SHARED, "several");
    row.push_str("</g></svg>");
    let taller = svg
        .replacen(&format!(" height=\"{height}\""), &format!(" height=\"{}\"", height + ROW), 1)
        .replacen(&format!(" {height}\""), &format!(" {}\"", height + ROW), 1);
    match taller.strip_suffix("</svg>") {
        Some(body) => format!("{body}{row}"),
        None => svg,
    }
}

/// Those that some frame is of, the ones with a wider frame first.
fn stages(flame: &Flame) -> Vec<Stage> {
    let mut largest: BTreeMap<Stage, u64> = BTreeMap::new();
    for weights in flame.stages.values() {
        for (stage, ns) in weights {
            if let Some(stage) = stage {
                let most = largest.entry(*stage).or_default();
                *most = (*most).max(*ns);
            }
        }
    }
    let mut stages: Vec<_> = largest.into_iter().filter(|(_, ns)| *ns > 0).collect();
    stages.sort_by_key(|(stage, ns)| (std::cmp::Reverse(*ns), *stage));
    stages.into_iter().map(|(stage, _)| stage).collect()
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
