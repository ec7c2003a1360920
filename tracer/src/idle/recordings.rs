//! Placement against recordings that hold the truth: host calls and device activity of real CUDA jobs, as
//! written by PyTorch's profiler. They are not part of this repository; `docs/placement.md` says what is
//! measured and how.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use super::{Located, locate};
use crate::timeline::testing::{TraceBuilder, US, key};
use crate::timeline::{Timeline, build};
use crate::trace::{CudaFamily, Record, Span, SubmitGroup, Submits};

/// Where the recordings lie: `WHYIDLE_TRACES`, or `shared/traces` beside the repository.
fn folder() -> PathBuf {
    std::env::var_os("WHYIDLE_TRACES").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces")),
        PathBuf::from,
    )
}

struct HostCall {
    tid: u32,
    span: Span,
    name: String,
    /// What its arguments say.
    stream: u64,
    function: u64,
    grid: [u32; 3],
}

struct Recording {
    calls: Vec<HostCall>,
    /// Union of kernels and memsets.
    busy: Vec<Span>,
}

fn load(name: &str) -> Recording {
    let file = std::fs::File::open(folder().join(format!("{name}.json.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let (mut calls, mut device) = (Vec::new(), Vec::new());
    let wanted = |e: &&serde_json::Value| {
        let category = e["cat"].as_str().unwrap_or("");
        let categories = ["kernel", "gpu_memset", "gpu_memcpy", "cuda_runtime", "cuda_driver"];
        e["ph"] == "X" && categories.contains(&category)
    };
    let mut to_host = std::collections::BTreeSet::new();
    let mut arguments: BTreeMap<u64, (u64, u64, [u32; 3])> = BTreeMap::new();
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    let events: Vec<&serde_json::Value> =
        json["traceEvents"].as_array().unwrap().iter().filter(wanted).collect();
    let us = |value: &serde_json::Value| value.as_f64().unwrap();
    // Microseconds fit a double's 53 bits, nanoseconds do not, so start them at the first.
    let origin = events.iter().map(|e| us(&e["ts"])).fold(f64::INFINITY, f64::min);
    for event in &events {
        if event["cat"] == "gpu_memcpy" && event["name"].as_str().unwrap().contains("DtoH") {
            to_host.insert(event["args"]["correlation"].as_u64());
        }
        let Some(correlation) = event["args"]["correlation"].as_u64() else { continue };
        if ["kernel", "gpu_memset"].contains(&event["cat"].as_str().unwrap()) {
            let handles = functions.len() as u64 + 1;
            let name = event["name"].as_str().unwrap().to_owned();
            let function = *functions.entry(name).or_insert(handles);
            let side = |i: usize| event["args"]["grid"][i].as_u64().map_or(0, |side| side as u32);
            let stream = event["args"]["stream"].as_u64().unwrap_or(0);
            let function = if event["cat"] == "kernel" { function } else { 0 };
            arguments.insert(correlation, (stream, function, [side(0), side(1), side(2)]));
        }
    }
    for event in events.into_iter().filter(|e| e["cat"] != "gpu_memcpy") {
        let start = ((us(&event["ts"]) - origin) * 1000.0) as u64 + 1_000_000_000;
        let span = Span::new(start, start + (us(&event["dur"]) * 1000.0) as u64);
        if ["kernel", "gpu_memset"].contains(&event["cat"].as_str().unwrap()) {
            device.push(span);
            continue;
        }
        // Written as a signed number by some versions.
        let tid = event["tid"].as_i64().unwrap() as u32;
        let mut name = event["name"].as_str().unwrap().to_owned();
        if name == "cudaMemcpyAsync" && to_host.contains(&event["args"]["correlation"].as_u64()) {
            // The driver's entry point tells the kind of copy.
            name = "cudaMemcpyDtoHAsync".into();
        }
        let known = event["args"]["correlation"].as_u64().and_then(|c| arguments.get(&c).copied());
        let (stream, function, grid) = known.unwrap_or_default();
        calls.push(HostCall { tid, span, name, stream, function, grid });
    }
    calls.sort_by_key(|c| (c.span, c.tid));
    Recording { calls, busy: union(device) }
}

fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut union: Vec<Span> = Vec::new();
    for span in spans.into_iter().filter(|s| !s.is_empty()) {
        match union.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => union.push(span),
        }
    }
    union
}

fn overlap(a: &[Span], b: &[Span]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        sum += x.intersect(*y).map_or(0, Span::len);
        if x.end < y.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    sum
}

fn family(name: &str) -> Option<CudaFamily> {
    let starts = |prefix: &str| name.strip_prefix("cuda").is_some_and(|n| n.starts_with(prefix));
    Some(match name {
        _ if starts("Launch") => CudaFamily::Launch,
        _ if starts("GraphLaunch") => CudaFamily::GraphLaunch,
        _ if starts("Memset") => CudaFamily::Memset,
        _ if starts("Memcpy") => CudaFamily::Copy,
        _ if name.ends_with("Synchronize") => CudaFamily::Synchronize,
        _ if starts("Malloc") => CudaFamily::Allocate,
        _ if starts("Free") => CudaFamily::Free,
        _ => return None,
    })
}

/// What the tracer would have recorded of the host, and the device's readings in windows of `window` ns.
fn timeline(recording: &Recording, window: u64) -> Timeline {
    let span = Span::new(recording.busy[0].start, recording.busy.last().unwrap().end);
    let end = recording.calls.iter().map(|c| c.span.end).max().unwrap().max(span.end);
    let mut trace = TraceBuilder::new(0, end + 1).device(0).on_device(0, 1);
    let mut runs: BTreeMap<u32, Submits> = BTreeMap::new();
    let tids: std::collections::BTreeSet<u32> = recording.calls.iter().map(|c| c.tid).collect();
    for tid in tids {
        trace = trace.thread(1, tid, "python");
    }
    for call in &recording.calls {
        let Some(family) = family(&call.name) else { continue };
        let submit = matches!(family, CudaFamily::Launch | CudaFamily::GraphLaunch | CudaFamily::Memset);
        if submit || family == CudaFamily::Copy {
            let fresh = || Submits {
                thread: key(call.tid),
                pid: 1,
                first: call.span.start,
                last: call.span.start,
                ..Submits::default()
            };
            let run = runs.entry(call.tid).or_insert_with(fresh);
            if submit && call.span.start >= run.last + 200 * US {
                let done = std::mem::replace(run, fresh());
                trace = trace.record(Record::Submits(done));
            }
            match family {
                CudaFamily::Copy => run.copies += 1,
                CudaFamily::Memset => run.memsets += 1,
                _ => run.launches += 1,
            }
            if submit {
                run.last = call.span.start;
                count(run, call, family);
            }
        }
        if family == CudaFamily::Synchronize || call.span.len() > 100 * US {
            trace = trace.call(call.tid, family, &call.name, call.span.start, call.span.end);
        }
    }
    for run in runs.into_values() {
        trace = trace.record(Record::Submits(run));
    }
    let mut from = span.start;
    while from < span.end {
        let to = (from + window).min(span.end);
        let busy = overlap(&recording.busy, &[Span::new(from, to)]);
        let percent = (100.0 * busy as f64 / (to - from) as f64).round();
        trace = trace.reading(0, from, to, percent);
        from = to;
    }
    build(trace.records())
}

/// Counts a submit in its group, or in the rest where 31 others are.
fn count(run: &mut Submits, call: &HostCall, family: CudaFamily) {
    let alike = |g: &SubmitGroup| {
        !g.rest && (g.family, g.stream, g.function, g.grid) == (family, call.stream, call.function, call.grid)
    };
    let fresh = SubmitGroup { first: call.span.start, ..SubmitGroup::default() };
    let i = run.groups.iter().position(alike).or_else(|| {
        if run.groups.len() < 31 {
            let (stream, function, grid) = (call.stream, call.function, call.grid);
            run.groups.push(SubmitGroup { family, stream, function, grid, ..fresh.clone() });
            return Some(run.groups.len() - 1);
        }
        run.groups.iter().position(|g| g.rest)
    });
    let i = i.unwrap_or_else(|| {
        run.groups.push(SubmitGroup { rest: true, ..fresh });
        run.groups.len() - 1
    });
    let group = &mut run.groups[i];
    (group.count, group.last) = (group.count + 1, call.span.start);
    (group.timed, group.call_ns) = (group.timed + 1, group.call_ns + call.span.len());
}

fn f1(placed: &[Span], truth: &[Span]) -> f64 {
    let sum = |spans: &[Span]| spans.iter().map(|s| s.len()).sum::<u64>();
    2.0 * overlap(placed, truth) as f64 / (sum(placed) + sum(truth)) as f64
}

/// F1 of what is placed, and of that with the finest placement of what lies between submits.
fn score(recording: &Recording, located: &Located) -> (f64, f64) {
    let truth: Vec<Span> = recording.busy.windows(2).map(|b| Span::new(b[0].end, b[1].start)).collect();
    let placed: Vec<Span> = located.idle.placed.iter().map(|p| p.span).collect();
    let all = union(placed.iter().chain(&located.between_submits).copied().collect());
    (f1(&placed, &truth), f1(&all, &truth))
}

#[test]
fn placement_reaches_the_measured_floors() {
    // Name, and the better of the baselines' F1 at 166 ms; none where streams overlap most.
    let recordings = [
        ("alexnet", Some(1.00)),
        ("event_sync", Some(0.90)),
        ("async_training", Some(0.50)),
        ("nccl_training", Some(0.87)),
        ("sampled_rank0", Some(0.59)),
        ("control", None),
    ];
    let mut out = std::io::stderr();
    if !folder().join("alexnet.json.gz").exists() {
        // Straight to the terminal: a passing test's prints are not shown.
        let line = format!("SKIPPED {}: no recordings in {}\n", module_path!(), folder().display());
        out.write_all(line.as_bytes()).unwrap();
        return;
    }
    for (name, floor) in recordings {
        let recording = load(name);
        for window in [166_000 * US, 100_000 * US] {
            let located = locate(&timeline(&recording, window), None).remove(0);
            let (placed, all) = score(&recording, &located);
            let of_mass = located.idle.placed.iter().map(|p| p.span.len()).sum::<u64>() as f64
                / located.idle.idle_ns as f64;
            let ms = window / (1000 * US);
            let line = format!("{name} {ms} ms: {of_mass:.2} of idle placed, F1 {placed:.3}");
            writeln!(out, "{line}, with what lies between submits {all:.3}").unwrap();
            if let Some(floor) = floor.filter(|_| ms == 166) {
                assert!(all >= floor - 0.02, "{name}: F1 {all:.3} is under {floor} - 0.02");
            }
        }
    }
}
