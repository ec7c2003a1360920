//! `docs/scoreboard.md`, made of the board's lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};

use super::case::{Case, Cases, Judged};
use super::score::Line;
use crate::bench::table;
use crate::place;

/// What came of one run, in a line.
pub fn told(case: &Case, line: &Line) -> String {
    let mut text = format!(
        "{}: {}; first {}; idle {:.2} of {:.2} s, without the fault {:.2} of {:.2}",
        line.case,
        if line.right { "right" } else { "WRONG" },
        line.first.join(" then "),
        line.fault_idle_s,
        line.fault_s,
        line.base_idle_s,
        line.base_s
    );
    if case.judged.has_gain() {
        text.push_str(&format!(
            "; gain {:.2} s, in truth {:.2}{}",
            line.gain_s,
            line.truth_s,
            if line.gain_is_right(&[]) { "" } else { " (OFF)" }
        ));
    }
    if let Some(share) = line.share {
        text.push_str(&format!("; share {:.0} %", share * 100.0));
    }
    if line.culprit == Some(false) {
        text.push_str("; the culprit is NOT named");
    }
    if line.unexplained > 0.05 {
        text.push_str(&format!("; {:.1} % unexplained", line.unexplained * 100.0));
    }
    text
}

/// Writes the page from the last line of every (case, seed).
pub fn write(cases: &Cases, board: &[Line]) -> Result<()> {
    let path = place::root().join("docs/scoreboard.md");
    fs::write(&path, page(cases, board)).with_context(|| path.display().to_string())
}

fn page(cases: &Cases, board: &[Line]) -> String {
    let mut last: BTreeMap<(&str, u64), &Line> = BTreeMap::new();
    for line in board.iter().filter(|l| cases.contains_key(&l.case)) {
        last.insert((&line.case, line.seed), line);
    }
    let lines: Vec<&Line> = last.into_values().collect();
    let mut text = HEAD.to_owned();
    let replaced = board.iter().filter(|l| cases.contains_key(&l.case)).count() - lines.len();
    text.push_str(&totals(cases, &lines, replaced));
    text.push_str("\n## Cases\n\n");
    text.push_str(&each(cases, &lines));
    text.push_str("\n## Which mechanism came first\n\nRows: what was injected (the first accepted mechanism). Columns: what the report put first.\n\n");
    text.push_str(&confusion(cases, &lines));
    text.push_str(&misses(cases, &lines));
    text
}

const HEAD: &str = "\
# The scoreboard

Faults injected into real processes on the simulated device, and what `whyidle` says of them. `cargo xtask scoreboard` \
runs them (as root; `--case NAME`, `--seeds N`) and writes this page from `scoreboard.jsonl`, one line a run.

Each case runs twice, with its fault and without: the same counted steps on the same data after the warm-up, both \
traced (cases made of launches are timed untraced, as watching a launch takes longer than launching). Recordings are \
kept, and read anew where only what reads them has changed. What the fault cost is the difference in the device's idle seconds between the two, by the simulated device's \
own account. The first cause is the mechanism with the largest summed `gain_ns` of the report on the counted part; \
`unexplained` competes. The culprit is named where at least half of what goes to the right mechanisms names it. The \
gain is right within 15 % of what the fault cost, or twice the standard deviation of the runs without it. The cases \
are described in `tests/job/cases.toml`, their jobs are functions in `tests/job/cases`. Those of the driver run in a \
virtual machine, where a stand-in has its entry points; so does the one whose peer is on another machine, the virtual \
one's host.

";

fn totals(cases: &Cases, lines: &[&Line], replaced: usize) -> String {
    let judged = |line: &Line| cases[&line.case].judged;
    let share = |lines: Vec<bool>| {
        let good = lines.iter().filter(|g| **g).count();
        format!("{good} of {}", lines.len())
    };
    let faults: Vec<&&Line> = lines.iter().filter(|l| judged(l).has_gain()).collect();
    let explained: Vec<f64> =
        lines.iter().filter(|l| !judged(l).is_control()).map(|l| l.unexplained).collect();
    let mean = explained.iter().sum::<f64>() / explained.len().max(1) as f64;
    let commits = |of: fn(&Line) -> &str| {
        lines.iter().map(|l| of(l)).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
    };
    let rows = [
        ("first cause right", share(faults.iter().map(|l| l.right).collect())),
        ("culprit named", share(lines.iter().filter_map(|l| l.culprit).collect())),
        (
            "gain within tolerance",
            share(faults.iter().map(|l| l.gain_is_right(&bases(lines, &l.case))).collect()),
        ),
        ("unexplained, mean share of idle", format!("{:.1} %", mean * 100.0)),
        (
            "two faults and moving faults right",
            share(lines.iter().filter(|l| judged(l).is_double()).map(|l| l.right).collect()),
        ),
        (
            "controls without a finding",
            share(lines.iter().filter(|l| judged(l).is_control()).map(|l| l.right).collect()),
        ),
        ("cases run", format!("{} of {}", cases_of(lines).len(), cases.len())),
        ("recorded with commit", commits(|l| l.recorded.as_deref().unwrap_or(&l.commit))),
        ("read by commit", commits(|l| &l.commit)),
        ("earlier lines that these replace", replaced.to_string()),
    ];
    table(&["", "runs"], &rows.map(|(what, figure)| vec![what.to_owned(), figure]))
}

fn cases_of<'l>(lines: &[&'l Line]) -> BTreeSet<&'l str> {
    lines.iter().map(|l| l.case.as_str()).collect()
}

/// Idle seconds of all runs of a case without its fault.
fn bases(lines: &[&Line], case: &str) -> Vec<f64> {
    lines.iter().filter(|l| l.case == case).map(|l| l.base_idle_s).collect()
}

fn each(cases: &Cases, lines: &[&Line]) -> String {
    let mut rows = Vec::new();
    for (name, case) in cases {
        let of_it: Vec<&&Line> = lines.iter().filter(|l| l.case == *name).collect();
        if of_it.is_empty() {
            rows.push(vec![name.clone(), case.what.clone(), "not run".into()]);
            rows.last_mut().expect("just pushed").extend(std::iter::repeat_n(String::new(), 5));
            continue;
        }
        let count = |good: &dyn Fn(&Line) -> bool| {
            format!("{} of {}", of_it.iter().filter(|l| good(l)).count(), of_it.len())
        };
        let mean = |of: &dyn Fn(&Line) -> f64| of_it.iter().map(|l| of(l)).sum::<f64>() / of_it.len() as f64;
        let base = bases(lines, name);
        let firsts: BTreeSet<String> = of_it.iter().map(|l| l.first.join(" then ")).collect();
        let gain = if case.judged.has_gain() {
            format!(
                "{:.2} / {:.2} s, {}",
                mean(&|l| l.gain_s),
                mean(&|l| l.truth_s),
                count(&|l| l.gain_is_right(&base))
            )
        } else if case.judged == Judged::TwoFaults {
            format!("share {:.0} %", mean(&|l| l.share.unwrap_or(0.0)) * 100.0)
        } else {
            String::new()
        };
        rows.push(vec![
            name.clone(),
            case.what.clone(),
            count(&|l| l.right),
            firsts.into_iter().collect::<Vec<_>>().join(", "),
            if of_it[0].culprit.is_some() { count(&|l| l.culprit == Some(true)) } else { String::new() },
            gain,
            format!("{:.1} %", mean(&|l| l.unexplained) * 100.0),
            format!(
                "{:.1} / {:.1} %",
                mean(&|l| l.base_idle_s / l.base_s) * 100.0,
                mean(&|l| l.fault_idle_s / l.fault_s) * 100.0
            ),
        ]);
    }
    table(
        &[
            "case",
            "what happens",
            "right",
            "first cause",
            "culprit",
            "gain / truth, within tolerance",
            "unexplained",
            "idle without / with",
        ],
        &rows,
    )
}

fn confusion(cases: &Cases, lines: &[&Line]) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in lines.iter().filter(|l| cases[&l.case].judged.has_gain()) {
        let accepts = &cases[&line.case].accepts;
        let put = line.first[0].as_str();
        let injected = accepts.iter().find(|a| *a == put).unwrap_or(&accepts[0]);
        *counts.entry((injected, put)).or_default() += 1;
    }
    let columns: BTreeSet<&str> = counts.keys().map(|(_, put)| *put).collect();
    let injected: BTreeSet<&str> = counts.keys().map(|(injected, _)| *injected).collect();
    let mut head = vec!["injected"];
    head.extend(&columns);
    let rows: Vec<Vec<String>> = injected
        .iter()
        .map(|row| {
            let cell = |column: &&str| counts.get(&(*row, *column)).map_or(String::new(), usize::to_string);
            std::iter::once((*row).to_owned()).chain(columns.iter().map(cell)).collect()
        })
        .collect();
    table(&head, &rows)
}

fn misses(cases: &Cases, lines: &[&Line]) -> String {
    let mut text = String::new();
    for (name, case) in cases {
        let Some(why) = &case.miss else { continue };
        if cases_of(lines).contains(name.as_str()) {
            text.push_str(&format!("- `{name}`: {why}\n"));
        }
    }
    if text.is_empty() { text } else { format!("\n## Known misses\n\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_counts_the_last_line_of_each_seed() {
        let cases = super::super::case::read(&["slow-read".into()]).unwrap();
        let line = |seed, right| Line {
            case: "slow-read".into(),
            seed,
            commit: "c".into(),
            recorded: None,
            base_idle_s: 0.1,
            base_s: 5.0,
            fault_idle_s: 4.0,
            fault_s: 9.0,
            truth_s: 3.9,
            first: vec![if right { "storage.read" } else { "lock.gil" }.into()],
            right,
            culprit: Some(right),
            gain_s: 3.8,
            share: None,
            unexplained: 0.01,
            findings: Vec::new(),
        };
        let text = page(&cases, &[line(1, false), line(1, true), line(2, false)]);
        assert!(text.contains("| first cause right | 1 of 2 |"), "{text}");
        assert!(text.contains("| injected | lock.gil | storage.read |"), "{text}");
        assert!(text.contains("| storage.read | 1 | 1 |"), "{text}");
    }
}
