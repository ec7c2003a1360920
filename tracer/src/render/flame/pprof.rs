//! The profile that `pprof` reads: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::FlameError;
use super::format::Profile;

/// Names of the fields as in the published format; strings are numbers into `string_table`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Encoded {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(super) comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub(super) default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    /// Innermost frame first.
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
}

pub(super) fn encode(profile: &Profile) -> Result<Vec<u8>, FlameError> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&build(profile).encode_to_vec())?;
    Ok(gzip.finish()?)
}

fn build(profile: &Profile) -> Encoded {
    let mut strings = Strings::default();
    strings.number("");
    let mut values = Vec::new();
    for (name, unit) in &profile.values {
        values.push(ValueType { r#type: strings.number(name), unit: strings.number(unit) });
    }
    let mut encoded = Encoded {
        default_sample_type: values.last().map_or(0, |value| value.r#type),
        sample_type: values,
        comment: vec![strings.number(&profile.title), strings.number(&profile.subtitle)],
        duration_nanos: i64::try_from(profile.duration_ns).unwrap_or(i64::MAX),
        ..Encoded::default()
    };
    let mut ids = BTreeMap::new();
    for (stack, value) in &profile.stacks {
        let mut location_id = Vec::with_capacity(stack.len());
        for frame in stack.iter().rev() {
            let next = ids.len() as u64 + 1;
            let id = *ids.entry(frame).or_insert(next);
            if id == next {
                let name = strings.number(frame);
                encoded.function.push(Function { id, name, system_name: name });
                encoded.location.push(Location { id, line: vec![Line { function_id: id }] });
            }
            location_id.push(id);
        }
        encoded.sample.push(Sample { location_id, value: value.clone() });
    }
    encoded.string_table = strings.table;
    encoded
}

/// Every string once, numbered as they come; the first is empty, as readers demand.
#[derive(Default)]
struct Strings {
    table: Vec<String>,
    numbers: BTreeMap<String, i64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let number = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}
