//! Names that a watched process chose, through every way out.

use std::io::Read;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use prost::Message;

use super::escape::unsafe_to_print;
use super::flame::{self, Difference, Flame, Format, Pair};
use super::{Style, WIDTH, json, text};
use crate::finding::Report;
use crate::idle::Sides;
use crate::timeline::testing::{MS, TraceBuilder};
use crate::timeline::{Timeline, build};
use crate::trace::{Span, StackKind};
use crate::{cause, finding, idle};

/// One of each kind of harm; the words in capitals are looked for on the other side.
const HARM: [&str; 14] = [
    "\u{1b}[2J\u{1b}]0;ESCAPE\u{7}",
    "line\nGPU 9 was busy 100 %\r",
    "\ttab\u{b}",
    "\u{202e}gnp.exe\u{2066}",
    "<script>alert(1)</script>",
    "</title><svg onload='x'>",
    "]]><!--",
    "a;b;c 99",
    "\"quoted\" 'and' `back`",
    "&lt;&#x3c;&amp;",
    "\u{9b}31m\u{90}",
    "\u{fffd}\u{fffd}",
    "\0nul",
    "e\u{301}\u{302}\u{303}\u{304}",
];

fn name() -> impl Strategy<Value = String> {
    let piece =
        prop_oneof![3 => prop::sample::select(HARM.to_vec()).prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec(piece, 1..3).prop_map(|pieces| pieces.concat())
}

/// Every place that a name can come from: threads, files, paths, user and kernel functions, modules.
fn trace(names: &[String; 6]) -> Timeline {
    let [trainer, loader, path, function, module, inner] = names;
    let mut trace = TraceBuilder::new(0, 1000 * MS)
        .device(0)
        .on_device(0, 1)
        .thread(1, 1, trainer)
        .thread(2, 2, loader)
        .file(7, &format!("/data/{path}"), |file| file.names = vec![path.clone()]);
    for (window, busy) in [0.0, 100.0].iter().cycle().take(10).enumerate() {
        let start = window as u64 * 100 * MS;
        trace = trace.reading(0, start, start + 100 * MS, *busy);
    }
    for at in (0..1000).step_by(200) {
        let user = [format!("{module}!{function}"), inner.clone()];
        let user: Vec<&str> = user.iter().map(String::as_str).collect();
        trace = trace
            .wait(1, at * MS, (at + 95) * MS, (at + 95) * MS, |w| {
                w.user(&user).futex(4096, 2).kernel(&["futex_wait"]).woken_by(2).woken_from(&[function])
            })
            .wait(2, (at + 2) * MS, (at + 93) * MS, (at + 93) * MS, |w| {
                w.user(&user).read(3, 7).kernel(&["io_schedule", "filemap_read"]).interrupt(&["bio_endio"])
            })
            .launches(1, 1, (at + 96) * MS, (at + 199) * MS, 4000)
            .sample(1, (at + 97) * MS, &user);
    }
    let (trace, _) = trace.stack(1, StackKind::Kernel, &[inner]);
    build(trace.records())
}

fn report(timeline: &Timeline) -> Report {
    let devices = idle::place(timeline, None).into_iter();
    let devices: Vec<_> = devices.map(|d| (d.clone(), cause::attribute(timeline, &d))).collect();
    finding::report(timeline, &devices)
}

fn flames(timeline: &Timeline, report: &Report) -> Vec<Flame> {
    vec![flame::idle(report), flame::offcpu(timeline), flame::oncpu(timeline), flame::wakers(timeline)]
}

fn differences(timeline: &Timeline, other: &str) -> Vec<Difference> {
    let sides = Sides { idle: vec![Span::new(0, 100 * MS)], busy: vec![Span::new(100 * MS, 200 * MS)] };
    let short = build(TraceBuilder::new(0, MS).records());
    let pair = Pair::Traces(other.to_owned());
    vec![
        flame::idle_and_busy(timeline, &sides).expect("both sides have time"),
        Difference::new(pair, flame::wakers(timeline), flame::wakers(&short)).expect("both have a length"),
    ]
}

fn written(timeline: &Timeline, report: &Report, other: &str, format: Format) -> Vec<Vec<u8>> {
    let flames = flames(timeline, report);
    let flames = flames.iter().map(|f| f.write(format).expect("it is written"));
    let differences = differences(timeline, other);
    flames.chain(differences.iter().map(|d| d.write(format).expect("it is written"))).collect()
}

/// All text that a pprof profile has. Lengths and numbers around it are bytes of any value, so the strings are read, not
/// the bytes searched.
#[derive(Clone, PartialEq, Message)]
struct ProfileStrings {
    #[prost(string, repeated, tag = "6")]
    table: Vec<String>,
}

fn plain(text: &str) -> Result<(), TestCaseError> {
    let harm = text.chars().find(|c| *c != '\n' && unsafe_to_print(*c));
    prop_assert_eq!(harm, None, "{}", text);
    Ok(())
}

/// Elements and attributes that the drawing itself has; a name in it can be none.
fn sound_svg(text: &str) -> Result<(), TestCaseError> {
    plain(text)?;
    // inferno's own script and style are not made of names.
    let mut rest = text.to_owned();
    for (open, close) in [("<style", "</style>"), ("<script", "</script>"), ("<!--", "-->")] {
        while let Some(start) = rest.find(open) {
            let end = rest[start..].find(close).map(|end| start + end + close.len());
            prop_assert!(end.is_some(), "{} has no end", open);
            rest.replace_range(start..end.unwrap_or(start), "");
        }
    }
    for tag in rest.split('<').skip(1) {
        let name: String = tag.chars().take_while(|c| !c.is_whitespace() && *c != '>').collect();
        let known = [
            "?xml",
            "!DOCTYPE",
            "svg",
            "/svg",
            "defs",
            "/defs",
            "linearGradient",
            "/linearGradient",
            "stop",
            "rect",
            "text",
            "/text",
            "g",
            "/g",
            "title",
            "/title",
        ];
        let own = known.contains(&name.trim_end_matches('/'));
        prop_assert!(own, "<{}> in {}", name, rest);
        let head = tag.split('>').next().unwrap_or("");
        let handler = head.contains("onload") && name != "svg";
        prop_assert!(!handler, "{}", head);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_name_breaks_out(names in prop::array::uniform6(name()), other in name(), unicode: bool) {
        let timeline = trace(&names);
        let report = report(&timeline);
        prop_assert!(report.gpus.iter().any(|gpu| gpu.idle_ns > 0));
        let page = text(&report, Style { colour: false, unicode }, WIDTH);
        plain(&page)?;
        prop_assert!(!page.lines().any(|line| line.starts_with("GPU 9")), "{}", page);
        let document = json(&report).expect("it serialises");
        plain(&document)?;
        prop_assert_eq!(serde_json::from_str::<Report>(&document).expect("it reads back"), report.clone());
        for svg in written(&timeline, &report, &other, Format::Svg) {
            sound_svg(&String::from_utf8(svg).expect("text"))?;
        }
        for folded in written(&timeline, &report, &other, Format::Folded) {
            let folded = String::from_utf8(folded).expect("text");
            plain(&folded)?;
            for line in folded.lines() {
                let weight = line.rsplit(' ').next().map(str::parse::<u64>);
                prop_assert!(matches!(weight, Some(Ok(_))), "{}", line);
            }
        }
        for speedscope in written(&timeline, &report, &other, Format::Speedscope) {
            let speedscope = String::from_utf8(speedscope).expect("text");
            plain(&speedscope)?;
            let read: serde_json::Value = serde_json::from_str(&speedscope).expect("it is JSON");
            plain(&read["name"].to_string())?;
        }
        for packed in written(&timeline, &report, &other, Format::Pprof) {
            let mut profile = Vec::new();
            GzDecoder::new(packed.as_slice()).read_to_end(&mut profile).expect("it is gzip");
            let profile = ProfileStrings::decode(profile.as_slice()).expect("it is a profile");
            prop_assert!(!profile.table.is_empty());
            for string in &profile.table {
                plain(string)?;
            }
        }
    }
}
