//! The profiler's JSON, event by event, as a stream. An event is read leniently: what is not as it should be
//! is counted and left out, and a file that ends early or goes wrong gives all events before that place.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::ImportError;
use super::told::Told;

/// Longest text of one event.
const MAX_EVENT: u64 = 16 << 20;

/// Nanoseconds on the recording's own clock.
pub(super) type Stamp = i64;

/// What frames of a user stack are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OpKind {
    Operator,
    Annotation,
    Python,
    /// A call of the CUDA runtime or driver, whether a probe would see it or not.
    Call,
}

/// One event of use, or a name. A device's event comes as two: what the call told, without times; and when
/// the device was busy, without anything else.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Host {
        pid: i64,
        tid: i64,
        kind: OpKind,
        name: Cow<'a, str>,
        start: Stamp,
        end: Stamp,
        correlation: Option<i64>,
    },
    Told {
        correlation: i64,
        told: Told,
    },
    Busy {
        device: u32,
        start: Stamp,
        end: Stamp,
    },
    Process {
        pid: i64,
        name: Cow<'a, str>,
    },
    Thread {
        pid: i64,
        tid: i64,
        name: Cow<'a, str>,
    },
    Device {
        index: u32,
        name: String,
    },
    /// Unix time of stamp 0.
    Base(i64),
    Bad(Bad),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Not what an event looks like.
    Shape,
    /// Ends before it starts.
    Negative,
}

/// Why reading stopped before the file's proper end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut(pub String);

/// Reads a recording, gzip or plain, into `take`.
///
/// # Errors
/// It is no recording, it cannot be read, or `take` failed.
pub(super) fn read(
    input: impl Read,
    take: &mut dyn FnMut(Item) -> io::Result<()>,
) -> Result<Option<Cut>, ImportError> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let start = input.fill_buf().map_err(ImportError::Read)?;
    match *start {
        [] => Err(ImportError::not("it is empty")),
        [0x1f, 0x8b, ..] => json(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input)), true, take),
        _ => json(input, false, take),
    }
}

fn json(
    mut input: impl BufRead,
    gzip: bool,
    take: &mut dyn FnMut(Item) -> io::Result<()>,
) -> Result<Option<Cut>, ImportError> {
    let first = loop {
        let here = match input.fill_buf() {
            Ok(here) => here,
            Err(e) if gzip && is_damage(&e) => {
                return Err(ImportError::not("its compressed data is damaged"));
            }
            Err(e) => return Err(ImportError::Read(e)),
        };
        let blank = |b: &u8| b.is_ascii_whitespace() || [0xef, 0xbb, 0xbf].contains(b);
        match here.iter().position(|b| !blank(b)) {
            Some(at) => {
                let first = here[at];
                input.consume(at);
                break first;
            }
            None if here.is_empty() => return Err(ImportError::not("it is empty")),
            None => {
                let blank = here.len();
                input.consume(blank);
            }
        }
    };
    if !matches!(first, b'{' | b'[') {
        return Err(ImportError::not("it is not JSON, nor JSON compressed with gzip"));
    }
    let (since, ended) = (Cell::new(0), Cell::new(false));
    let mut state = State { take, since: &since, events: 0, found: false, failed: None };
    let source = Metered { inner: input, since: &since, ended: &ended };
    // A reader of single bytes is quick only over a buffer.
    let source = BufReader::with_capacity(1 << 16, source);
    let outcome = (&mut state).deserialize(&mut serde_json::Deserializer::from_reader(source));
    let State { events, found, failed, .. } = state;
    if let Some(error) = failed {
        return Err(ImportError::Scratch(error));
    }
    match outcome {
        Ok(()) if events > 0 => Ok(None),
        Ok(()) if found => Err(ImportError::not("its traceEvents holds no event")),
        Ok(()) => Err(ImportError::not("it is JSON without a list named traceEvents")),
        Err(e) if e.is_io() && !is_damage_kind(e.io_error_kind()) => Err(ImportError::Read(e.into())),
        Err(e) => {
            let why = why(&e, gzip, since.get(), ended.get());
            if events == 0 {
                return Err(ImportError::not(&why));
            }
            Ok(Some(Cut(why)))
        }
    }
}

fn why(error: &serde_json::Error, gzip: bool, since: u64, ended: bool) -> String {
    if since > MAX_EVENT {
        format!("one of its events is longer than {} MiB", MAX_EVENT >> 20)
    } else if ended || error.is_eof() || error.io_error_kind() == Some(io::ErrorKind::UnexpectedEof) {
        "the file ends in the middle".into()
    } else if error.is_io() && gzip {
        "its compressed data is damaged".into()
    } else {
        format!("its JSON is damaged ({error})")
    }
}

fn is_damage(error: &io::Error) -> bool {
    is_damage_kind(Some(error.kind()))
}

/// What a decompressor says of bad data, as against a disk that cannot be read.
fn is_damage_kind(kind: Option<io::ErrorKind>) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    kind.is_none_or(|k| matches!(k, InvalidData | InvalidInput | UnexpectedEof))
}

/// Counts the bytes since the last event, and stops one without end from filling memory.
struct Metered<'a, R> {
    inner: R,
    since: &'a Cell<u64>,
    /// Nothing is left: a number cut short is no number, but not because the file is damaged.
    ended: &'a Cell<bool>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.ended.set(read == 0);
        self.since.set(self.since.get() + read as u64);
        if self.since.get() > MAX_EVENT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(read)
    }
}

struct State<'a> {
    take: &'a mut dyn FnMut(Item) -> io::Result<()>,
    since: &'a Cell<u64>,
    events: u64,
    /// There is a list of events.
    found: bool,
    failed: Option<io::Error>,
}

impl State<'_> {
    /// False once the sink failed.
    fn give(&mut self, item: Item) -> bool {
        match (self.take)(item) {
            Ok(()) => true,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }
}

/// The whole file: an object with `traceEvents`, or the list alone.
impl<'de> DeserializeSeed<'de> for &mut State<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut State<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a profiler's recording")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "traceEvents" => map.next_value_seed(Events(self))?,
                "baseTimeNanoseconds" => {
                    let raw = map.next_value::<Box<RawValue>>()?;
                    if let Some(base) = integer(&raw) {
                        self.give(Item::Base(base));
                    }
                }
                "deviceProperties" => {
                    let raw = map.next_value::<Box<RawValue>>()?;
                    for device in serde_json::from_str::<Vec<Device>>(raw.get()).unwrap_or_default() {
                        self.give(Item::Device { index: device.id, name: device.name });
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            self.since.set(0);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        Events(self).visit_seq(list)
    }
}

#[derive(Deserialize)]
struct Device {
    id: u32,
    name: String,
}

/// The list of events. Anything else under its name is as if it were not there.
struct Events<'s, 'a>(&'s mut State<'a>);

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let state = self.0;
        state.found = true;
        while let Some(raw) = list.next_element::<Box<RawValue>>()? {
            state.since.set(0);
            if !event(&raw, state) {
                return Err(serde::de::Error::custom("the scratch file failed"));
            }
        }
        Ok(())
    }
}

/// The fields of an event that are of use, as they are written.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Option<&'a RawValue>,
    #[serde(borrow)]
    cat: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Correlated<'a> {
    #[serde(borrow)]
    correlation: Option<&'a RawValue>,
}

/// Hands over what an event holds. False once the sink failed.
fn event(raw: &RawValue, state: &mut State) -> bool {
    let Ok(event) = serde_json::from_str::<Event>(raw.get()) else {
        return state.give(Item::Bad(Bad::Shape));
    };
    match event.ph.map(RawValue::get) {
        Some("\"X\"") => {
            state.events += 1;
            complete(&event, state)
        }
        Some("\"M\"") => match metadata(&event) {
            Some(item) => state.give(item),
            None => true,
        },
        Some(_) => {
            state.events += 1;
            true
        }
        None => state.give(Item::Bad(Bad::Shape)),
    }
}

fn complete(event: &Event, state: &mut State) -> bool {
    let category = event.cat.map_or("", |c| c.get().trim_matches('"'));
    // Some writers capitalise, `Kernel` and `Operator` of old.
    let category = category.to_ascii_lowercase();
    let kind = match category.as_str() {
        "cuda_runtime" | "cuda_driver" | "runtime" => OpKind::Call,
        "cpu_op" | "operator" => OpKind::Operator,
        "user_annotation" => OpKind::Annotation,
        "python_function" => OpKind::Python,
        "kernel" | "gpu_memset" | "gpu_memcpy" | "memcpy" | "memset" | "cuda_sync" => {
            return device(event, &category, state);
        }
        _ => return true,
    };
    match host(event, kind) {
        Ok(item) => state.give(item),
        Err(bad) => state.give(Item::Bad(bad)),
    }
}

fn host<'a>(event: &Event<'a>, kind: OpKind) -> Result<Item<'a>, Bad> {
    let (start, end) = times(event)?;
    let correlation = || {
        let args = serde_json::from_str::<Correlated>(event.args?.get()).ok()?;
        integer(args.correlation?)
    };
    Ok(Item::Host {
        pid: event.pid.and_then(integer).ok_or(Bad::Shape)?,
        tid: event.tid.and_then(integer).ok_or(Bad::Shape)?,
        kind,
        name: event.name.and_then(text).ok_or(Bad::Shape)?,
        start,
        end,
        correlation: if kind == OpKind::Call { correlation() } else { None },
    })
}

/// A device's event, taken apart.
fn device(event: &Event, category: &str, state: &mut State) -> bool {
    let name = event.name.and_then(text);
    let (Some(name), Some(args)) = (name, event.args) else { return state.give(Item::Bad(Bad::Shape)) };
    let Some((correlation, told)) = Told::read(category, &name, args) else {
        return state.give(Item::Bad(Bad::Shape));
    };
    let on = told.device;
    if let Some(correlation) = correlation
        && !state.give(Item::Told { correlation, told })
    {
        return false;
    }
    if !matches!(category, "kernel" | "gpu_memset" | "memset") {
        return true;
    }
    match (times(event), on) {
        (Ok((start, end)), Some(device)) => state.give(Item::Busy { device, start, end }),
        (Ok(_), None) => state.give(Item::Bad(Bad::Shape)),
        (Err(bad), _) => state.give(Item::Bad(bad)),
    }
}

fn metadata<'a>(event: &Event<'a>) -> Option<Item<'a>> {
    let what = text(event.name?)?;
    let pid = integer(event.pid?)?;
    let name = || Some(serde_json::from_str::<Named<'a>>(event.args?.get()).ok()?.name);
    match &*what {
        "process_name" => Some(Item::Process { pid, name: name()? }),
        "thread_name" => Some(Item::Thread { pid, tid: integer(event.tid?)?, name: name()? }),
        _ => None,
    }
}

fn times(event: &Event) -> Result<(Stamp, Stamp), Bad> {
    let start = event.ts.and_then(|ts| nanoseconds(ts.get())).ok_or(Bad::Shape)?;
    let length = event.dur.and_then(|dur| nanoseconds(dur.get())).ok_or(Bad::Shape)?;
    if length < 0 {
        return Err(Bad::Negative);
    }
    Ok((start, start.checked_add(length).ok_or(Bad::Shape)?))
}

fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text>(raw.get()).ok().map(|text| text.0)
}

/// A whole number, also one written as a text.
pub(super) fn integer(raw: &RawValue) -> Option<i64> {
    raw.get().trim_matches('"').parse().ok()
}

/// Decimal microseconds, of any length, to nanoseconds; a double would lose some.
fn nanoseconds(written: &str) -> Option<i64> {
    let written = written.trim_matches('"');
    if written.contains(['e', 'E']) {
        let us: f64 = written.parse().ok()?;
        // Whole nanoseconds are exact up to 2^53 of them, which is more than anyone writes in this form.
        let ns = (us * 1000.0).round();
        #[expect(clippy::cast_possible_truncation, reason = "within 2^53")]
        return (ns.abs() < 9e15).then_some(ns as i64);
    }
    let (negative, digits) = match written.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, written),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i64 = whole.parse().ok()?;
    let mut ns = 0;
    for place in 0..3 {
        ns = ns * 10 + fraction.as_bytes().get(place).map_or(0, |digit| i64::from(digit.wrapping_sub(b'0')));
    }
    let half = fraction.as_bytes().get(3).is_some_and(|digit| *digit >= b'5');
    let ns = whole.checked_mul(1000)?.checked_add(ns + i64::from(half))?;
    Some(if negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_every_nanosecond() {
        for (written, ns) in [
            ("1695835542514261.123", Some(1_695_835_542_514_261_123)),
            ("4458676522690.655", Some(4_458_676_522_690_655)),
            ("12", Some(12_000)),
            ("12.5", Some(12_500)),
            ("0.0004", Some(0)),
            ("0.9996", Some(1_000)),
            ("-3.25", Some(-3_250)),
            ("1.5e3", Some(1_500_000)),
            ("1e300", None),
            ("99999999999999999999", None),
            ("9223372036854775807", None),
            ("null", None),
            ("\"17.25\"", Some(17_250)),
            ("\"\"", None),
        ] {
            assert_eq!(nanoseconds(written), ns, "{written}");
        }
    }
}
