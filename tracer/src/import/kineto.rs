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
use super::lossy::Lossy;

/// Longest text of one event, or of another part of the file.
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
    let source = Metered { inner: Lossy::new(input), since: &since, ended: &ended };
    // A reader of single bytes is quick only over a buffer.
    let mut source = BufReader::with_capacity(1 << 16, source);
    let outcome = (&mut state).deserialize(&mut serde_json::Deserializer::from_reader(&mut source));
    let State { events, found, failed, .. } = state;
    if let Some(error) = failed {
        return Err(ImportError::Scratch(error));
    }
    match outcome {
        Ok(()) if events > 0 => rest(&mut source, &since, gzip),
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

/// What comes after the recording's last bracket: nothing, or why that place is doubtful.
fn rest(source: &mut impl BufRead, since: &Cell<u64>, gzip: bool) -> Result<Option<Cut>, ImportError> {
    loop {
        since.set(0);
        let here = match source.fill_buf() {
            Ok(here) => here,
            Err(e) if gzip && e.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Some(Cut("the file ends in the middle".into())));
            }
            // Its checksum, for one.
            Err(e) if gzip && is_damage(&e) => {
                return Ok(Some(Cut("its compressed data is damaged at the end".into())));
            }
            Err(e) => return Err(ImportError::Read(e)),
        };
        if here.is_empty() {
            return Ok(None);
        }
        if !here.iter().all(u8::is_ascii_whitespace) {
            return Ok(Some(Cut("something comes after its end".into())));
        }
        let blank = here.len();
        source.consume(blank);
    }
}

fn why(error: &serde_json::Error, gzip: bool, since: u64, ended: bool) -> String {
    if since > MAX_EVENT {
        format!("one of its parts is longer than {} MiB", MAX_EVENT >> 20)
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

#[cfg(test)]
mod tests {
    use super::super::testing::{gzip, import};
    use super::super::tests::{records, small, submits};
    use crate::trace::Record;

    #[test]
    fn bytes_that_are_no_text_cost_nothing_but_themselves() {
        let whole = records(&small());
        let bad = small().json().into_bytes();
        let at = bad.windows(8).position(|w| w == b"aten::mm").unwrap();
        for byte in [0xff, 0x80, 0xc3, 0xf0] {
            let mut bad = bad.clone();
            bad[at] = byte;
            for bytes in [bad.clone(), gzip(&bad)] {
                let (records, imported) = import(&bytes).unwrap();
                assert_eq!((imported.cut, records.len()), (None, whole.len()), "{byte:#x}");
                let named = |r: &Record| matches!(r, Record::Symbol(s) if s.frames[0].function == "?ten::mm");
                assert!(records.iter().any(named), "{byte:#x}");
            }
        }
    }

    #[test]
    fn what_is_wrong_after_the_last_event_is_said() {
        let json = small().json().into_bytes();
        let zipped = gzip(&json);
        let with = |bytes: &[u8], more: &[u8]| [bytes, more].concat();
        let flipped = |from_end: usize| {
            let mut bytes = zipped.clone();
            let at = bytes.len() - from_end;
            bytes[at] ^= 0x55;
            bytes
        };
        for (bytes, why) in [
            (with(&json, b"\n \n"), None),
            (with(&json, b"garbage"), Some("something comes after its end")),
            (with(&json, b"\n{\"traceEvents\":[]}"), Some("something comes after its end")),
            // The checksum and the length.
            (flipped(6), Some("its compressed data is damaged at the end")),
            (flipped(2), Some("its compressed data is damaged at the end")),
            (with(&zipped, &[b'x'; 32]), Some("its compressed data is damaged at the end")),
            // Too short to tell from a second part that was cut.
            (with(&zipped, b"x"), Some("the file ends in the middle")),
            (zipped[..zipped.len() - 3].to_vec(), Some("the file ends in the middle")),
            (with(&zipped, &gzip(b"\n")), None),
            (with(&zipped, &gzip(b"more")), Some("something comes after its end")),
        ] {
            let (records, imported) = import(&bytes).unwrap();
            assert_eq!(imported.cut.as_deref(), why);
            assert_eq!(imported.lacks.iter().any(|l| l.what == "the recording's end"), why.is_some());
            assert_eq!(records.iter().any(|r| matches!(r, Record::End(_))), why.is_none(), "{why:?}");
            assert_eq!(submits(&records).len(), 2, "{why:?}");
        }
    }

    #[test]
    fn a_part_without_end_is_called_a_part() {
        let mut bytes = small().json().trim_end().trim_end_matches('}').as_bytes().to_vec();
        bytes.extend(b",\"deviceProperties\":\"");
        bytes.resize(bytes.len() + (17 << 20), b'x');
        let (_, imported) = import(&bytes).unwrap();
        assert_eq!(imported.cut.as_deref(), Some("one of its parts is longer than 16 MiB"));
    }
}
