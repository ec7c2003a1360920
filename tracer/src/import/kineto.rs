//! The profiler's JSON, event by event, as a stream. A file that ends early or goes wrong gives all events before
//! that place.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::ImportError;
use super::event::{self, Item, integer};

/// Longest text of one event.
const MAX_EVENT: u64 = 16 << 20;

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
            let mut events = 0;
            let going = event::read(&raw, &mut events, &mut |item| state.give(item));
            state.events += events;
            if !going {
                return Err(serde::de::Error::custom("the scratch file failed"));
            }
        }
        Ok(())
    }
}
