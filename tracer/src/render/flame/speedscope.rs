//! JSON for speedscope: each profile is a list of samples, which are lists of frames by number.

use std::collections::BTreeMap;

use serde::Serialize;

use super::difference::Rates;
use super::{Difference, Flame, FlameError};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: String,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Profile>,
}

#[derive(Default, Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

pub(super) fn of_flame(flame: &Flame) -> Result<Vec<u8>, FlameError> {
    let mut frames = Frames::default();
    let stacks = flame.stacks.iter().map(|(stack, ns)| (stack.as_slice(), *ns));
    let profile = frames.profile(flame.subtitle(), stacks);
    write(flame.title(), frames, vec![profile])
}

/// Weights cannot be negative, so what is more on either side is a profile of its own.
pub(super) fn of_difference(difference: &Difference) -> Result<Vec<u8>, FlameError> {
    let [first, second] = difference.sides();
    let mut frames = Frames::default();
    let mut side = |name: &str, more: fn(&Rates) -> bool| {
        let stacks = difference.stacks.iter().filter(|(_, rates)| more(rates));
        let stacks = stacks.map(|(stack, rates)| (stack.as_slice(), rates.width()));
        frames.profile(format!("more {name}, per second; {}", difference.subtitle()), stacks)
    };
    let profiles = vec![side(first, |r| r.first > r.second), side(second, |r| r.first < r.second)];
    write(difference.title(), frames, profiles)
}

#[derive(Default)]
struct Frames<'a> {
    shared: Shared<'a>,
    numbers: BTreeMap<&'a str, usize>,
}

impl<'a> Frames<'a> {
    fn number(&mut self, name: &'a str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.shared.frames.push(Frame { name });
            self.shared.frames.len() - 1
        })
    }

    fn profile(&mut self, name: String, stacks: impl Iterator<Item = (&'a [String], u64)>) -> Profile {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for (stack, ns) in stacks {
            samples.push(stack.iter().map(|frame| self.number(frame)).collect());
            weights.push(ns);
        }
        let end_value = weights.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        Profile { kind: "sampled", name, unit: "nanoseconds", start_value: 0, end_value, samples, weights }
    }
}

fn write(name: String, frames: Frames, profiles: Vec<Profile>) -> Result<Vec<u8>, FlameError> {
    let exporter = format!("whyidle {}", env!("CARGO_PKG_VERSION"));
    let shared = frames.shared;
    let file = File { schema: SCHEMA, name, exporter, active_profile_index: 0, shared, profiles };
    let mut text = serde_json::to_vec(&file).map_err(std::io::Error::from)?;
    text.push(b'\n');
    Ok(text)
}
