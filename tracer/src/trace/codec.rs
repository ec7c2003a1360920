//! Records to bytes and back: postcard with a length before each, so that a record of an unknown kind can be
//! passed over.

use postcard::Error;
use postcard::de_flavors::Flavor;
use serde::Deserialize;

use super::record::Record;

/// Appends length and record to `payload`. `scratch` only saves allocations.
pub(super) fn encode(record: &Record, payload: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<(), Error> {
    scratch.clear();
    *scratch = postcard::to_extend(record, std::mem::take(scratch))?;
    let mut length = [0; 10];
    payload.extend_from_slice(postcard::to_slice(&(scratch.len() as u64), &mut length)?);
    payload.extend_from_slice(scratch);
    Ok(())
}

#[derive(Debug, PartialEq)]
pub(super) enum Decoded {
    Record(Box<Record>),
    /// The kind is not known here.
    LaterKind,
    Undecodable,
}

/// Takes the first record off `payload`, `None` at its end. A length that overruns the payload takes it all.
pub(super) fn decode(payload: &mut &[u8]) -> Option<Decoded> {
    if payload.is_empty() {
        return None;
    }
    let body = match postcard::take_from_bytes::<u64>(payload) {
        Ok((length, rest)) if length <= rest.len() as u64 => {
            let (body, rest) = rest.split_at(length as usize);
            *payload = rest;
            body
        }
        _ => {
            *payload = &[];
            return Some(Decoded::Undecodable);
        }
    };
    Some(decode_one(body))
}

fn decode_one(body: &[u8]) -> Decoded {
    if body.is_empty() {
        return Decoded::Undecodable;
    }
    if let Ok(record) = decode_body(body) {
        return Decoded::Record(Box::new(record));
    }
    let Ok((kind, _)) = postcard::take_from_bytes::<u32>(body) else { return Decoded::Undecodable };
    // A known kind reads from its number alone, so what does not is unknown here.
    let mut number = [0; 5];
    match postcard::to_slice(&kind, &mut number).map(|number| decode_body(number).is_ok()) {
        Ok(false) => Decoded::LaterKind,
        _ => Decoded::Undecodable,
    }
}

/// Bytes left over are fields that a later version appended, and ignored.
fn decode_body(body: &[u8]) -> Result<Record, Error> {
    let (bytes, zeros) = (body, Padded::ZEROS.len());
    Record::deserialize(&mut postcard::Deserializer::from_flavor(Padded { bytes, zeros }))
}

/// A record's bytes and some zeros after them. Every field type reads zeros as its empty value, so a field
/// appended to a record's kind since the trace was written comes out empty. The zeros are bounded, so no
/// length in a hostile record makes a long list of them.
struct Padded<'de> {
    bytes: &'de [u8],
    zeros: usize,
}

impl Padded<'_> {
    const ZEROS: [u8; 256] = [0; 256];
    /// The longest value that is not a list: text and bytes must be there in full.
    const LONGEST: usize = 8;
}

impl<'de> Flavor<'de> for Padded<'de> {
    type Remainder = ();
    type Source = &'de [u8];

    fn pop(&mut self) -> Result<u8, Error> {
        self.try_take_n(1).map(|byte| byte[0])
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.bytes.len() + self.zeros)
    }

    fn try_take_n(&mut self, n: usize) -> Result<&'de [u8], Error> {
        if let Some((taken, rest)) = self.bytes.split_at_checked(n) {
            self.bytes = rest;
            Ok(taken)
        } else if self.bytes.is_empty() && n <= Self::LONGEST.min(self.zeros) {
            self.zeros -= n;
            Ok(&Self::ZEROS[..n])
        } else {
            Err(Error::DeserializeUnexpectedEnd)
        }
    }

    fn finalize(self) -> Result<(), Error> {
        Ok(())
    }
}
