//! Every kind in every format.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use prost::Message;
use serde_json::Value;

use super::pprof::Encoded;
use super::*;
use crate::render::sample;
use crate::timeline::testing::{MS, TraceBuilder};
use crate::timeline::{Timeline, build};

const FORMATS: [Format; 4] = [Format::Svg, Format::Folded, Format::Speedscope, Format::Pprof];

fn timeline(read: u64) -> Timeline {
    let mut trace = TraceBuilder::new(0, 1000 * MS).thread(1, 1, "trainer").thread(2, 2, "loader");
    for at in [100, 400, 700] {
        trace = trace
            .wait(1, at * MS, (at + 90) * MS, (at + 90) * MS, |w| {
                w.user(&["collect", "main"]).kernel(&["futex_wait"]).woken_by(2).woken_from(&["futex_wake"])
            })
            .wait(2, at * MS, (at + read) * MS, (at + read) * MS, |w| {
                w.kernel(&["io_schedule", "filemap_read"]).interrupt(&["bio_endio"])
            });
    }
    build(trace.samples(1, 200 * MS, 300 * MS, &["forward", "main"]).records())
}

fn flames() -> Vec<Flame> {
    let timeline = timeline(80);
    vec![idle(&sample::slow_disk()), offcpu(&timeline), oncpu(&timeline), wakers(&timeline)]
}

fn differences() -> Vec<Difference> {
    let (new, old) = (timeline(80), timeline(20));
    let traces = |first, second| {
        Difference::new(Pair::Traces("old.trace".into()), first, second).expect("both have a length")
    };
    let span = |from, to| crate::trace::Span::new(from * MS, to * MS);
    let sides = crate::idle::Sides { idle: vec![span(100, 200)], busy: vec![span(300, 450)] };
    vec![
        idle_and_busy(&new, &sides).expect("both sides have time"),
        traces(offcpu(&new), offcpu(&old)),
        traces(wakers(&new), wakers(&old)),
        traces(idle(&sample::slow_disk()), idle(&sample::slow_decode())),
    ]
}

fn unpacked(packed: &[u8]) -> Encoded {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).expect("it is gzip");
    Encoded::decode(bytes.as_slice()).expect("it is a profile")
}

/// Stacks, outermost frame first, with the last of their values.
fn stacks_of(profile: &Encoded) -> BTreeMap<Vec<String>, i64> {
    let text = |number: i64| profile.string_table[usize::try_from(number).expect("a number")].clone();
    let function = |id: u64| {
        let function = profile.function.iter().find(|f| f.id == id).expect("a function");
        assert_eq!(function.name, function.system_name);
        text(function.name)
    };
    let location = |id: u64| {
        let location = profile.location.iter().find(|l| l.id == id).expect("a location");
        function(location.line[0].function_id)
    };
    let stack = |sample: &pprof::Sample| {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        let frames = sample.location_id.iter().rev().map(|id| location(*id)).collect();
        (frames, *sample.value.last().expect("a value"))
    };
    profile.sample.iter().map(stack).collect()
}

#[test]
fn the_same_flame_gives_the_same_bytes() {
    for format in FORMATS {
        let written = || -> Vec<Vec<u8>> {
            let flames = flames().iter().map(|f| f.write(format).expect("it is written")).collect::<Vec<_>>();
            let differences = differences();
            let differences = differences.iter().map(|d| d.write(format).expect("it is written"));
            flames.into_iter().chain(differences).collect()
        };
        let first = written();
        assert_eq!(first, written(), "{format:?}");
        assert!(first.iter().all(|bytes| !bytes.is_empty()), "{format:?}");
    }
}

#[test]
fn pprof_holds_every_stack_with_its_weight() {
    for flame in flames() {
        let profile = unpacked(&flame.write(Format::Pprof).expect("it is written"));
        assert_eq!(profile.string_table[0], "");
        let expected: BTreeMap<_, _> = flame
            .stacks
            .iter()
            .map(|(stack, ns)| (stack.clone(), i64::try_from(*ns).expect("small")))
            .collect();
        assert_eq!(stacks_of(&profile), expected, "{:?}", flame.kind);
        let comments: Vec<_> =
            profile.comment.iter().map(|c| profile.string_table[*c as usize].clone()).collect();
        assert_eq!(comments, [flame.title(), flame.subtitle()]);
    }
    for difference in differences() {
        let profile = unpacked(&difference.write(Format::Pprof).expect("it is written"));
        let stacks = stacks_of(&profile);
        assert_eq!(stacks.len(), difference.stacks.len());
        for (stack, rates) in &difference.stacks {
            assert_eq!(i128::from(stacks[stack]), rates.signed(), "{stack:?}");
        }
    }
}

/// What the published schema demands of a file, and what its prose does of the figures.
fn check_speedscope(text: &[u8]) -> Value {
    let file: Value = serde_json::from_slice(text).expect("it is JSON");
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = file["shared"]["frames"].as_array().expect("frames");
    assert!(frames.iter().all(|frame| frame["name"].is_string()));
    let profiles = file["profiles"].as_array().expect("profiles");
    assert!(file["activeProfileIndex"].as_u64().expect("a number") < profiles.len() as u64);
    for profile in profiles {
        assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"nanoseconds".into()));
        assert!(profile["name"].is_string());
        let samples = profile["samples"].as_array().expect("samples");
        let weights = profile["weights"].as_array().expect("weights");
        assert_eq!(samples.len(), weights.len());
        for frame in samples.iter().flat_map(|sample| sample.as_array().expect("a list")) {
            assert!(frame.as_u64().expect("a number") < frames.len() as u64);
        }
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().expect("a number")).sum();
        assert_eq!((&profile["startValue"], &profile["endValue"]), (&0.into(), &sum.into()));
    }
    file
}

#[test]
fn speedscope_holds_every_stack_with_its_weight() {
    for flame in flames() {
        let file = check_speedscope(&flame.write(Format::Speedscope).expect("it is written"));
        assert_eq!(file["name"], flame.title().as_str());
        let name = |frame: &Value| {
            let number = usize::try_from(frame.as_u64().expect("a number")).expect("small");
            file["shared"]["frames"][number]["name"].as_str().expect("a name").to_owned()
        };
        let profile = &file["profiles"][0];
        let stacks = profile["samples"].as_array().expect("samples").iter();
        let stacks = stacks.map(|s| s.as_array().expect("a list").iter().map(name).collect::<Vec<_>>());
        let weights = profile["weights"].as_array().expect("weights").iter();
        let weights = weights.map(|w| w.as_u64().expect("a number"));
        assert_eq!(stacks.zip(weights).collect::<BTreeMap<_, _>>(), flame.stacks, "{:?}", flame.kind);
    }
    for difference in differences() {
        let file = check_speedscope(&difference.write(Format::Speedscope).expect("it is written"));
        let more = |side: usize| file["profiles"][side]["endValue"].as_u64().expect("a number");
        let net: i128 = difference.stacks.values().map(|rates| rates.signed()).sum();
        assert_eq!(i128::from(more(0)) - i128::from(more(1)), net);
    }
}

#[test]
fn nothing_to_draw_is_said_in_every_format_but_text() {
    let empty = Flame::new(Kind::OffCpu, 1, 0);
    for format in [Format::Svg, Format::Speedscope, Format::Pprof] {
        assert!(matches!(empty.write(format), Err(FlameError::NoWait)), "{format:?}");
    }
    assert_eq!(empty.write(Format::Folded).expect("text"), b"");
}

#[test]
fn weights_beyond_a_viewer_s_figures_are_cut_to_them() {
    let mut flame = Flame::new(Kind::OffCpu, 1, 0);
    for name in ["a", "b"] {
        flame.add(vec![name.to_owned()], None, u64::MAX);
    }
    let profile = unpacked(&flame.write(Format::Pprof).expect("it is written"));
    assert!(stacks_of(&profile).values().all(|ns| *ns == i64::MAX));
    for format in FORMATS {
        assert!(!flame.write(format).expect("it is written").is_empty());
    }
    let none = Flame::new(Kind::OffCpu, 1, 0);
    let less = Difference::new(Pair::Traces("x".into()), none, flame).expect("both have a length");
    let profile = unpacked(&less.write(Format::Pprof).expect("it is written"));
    assert!(stacks_of(&profile).values().all(|ns| *ns == -i64::MAX));
}
