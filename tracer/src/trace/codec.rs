//! Records to bytes and back: postcard with a length before each, so that a record of an unknown kind can be
//! passed over.

use super::record::Record;

/// Zero bytes a record cut short is read on with. Every field type reads zeros as its empty value, so that a
/// field appended to a record since the trace was written comes out empty.
const ZEROS: usize = 256;

/// Appends length and record to `payload`. `scratch` only saves allocations.
pub(super) fn encode(
    record: &Record,
    payload: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Result<(), postcard::Error> {
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
    // Bytes left over are fields that a later version appended.
    match postcard::take_from_bytes::<Record>(body) {
        Ok((record, _)) => Decoded::Record(Box::new(record)),
        Err(postcard::Error::DeserializeUnexpectedEnd) => match extended(body) {
            Some(record) => Decoded::Record(Box::new(record)),
            None => unreadable(body),
        },
        Err(_) => unreadable(body),
    }
}

fn extended(body: &[u8]) -> Option<Record> {
    let mut longer = Vec::with_capacity(body.len() + ZEROS);
    longer.extend_from_slice(body);
    longer.resize(body.len() + ZEROS, 0);
    postcard::from_bytes(&longer).ok()
}

/// A known kind reads from its number and zeros alone, so what does not is unknown here.
fn unreadable(body: &[u8]) -> Decoded {
    let Ok((kind, _)) = postcard::take_from_bytes::<u32>(body) else { return Decoded::Undecodable };
    let mut number = [0; 5];
    match postcard::to_slice(&kind, &mut number).ok().and_then(|number| extended(number)) {
        Some(_) => Decoded::Undecodable,
        None => Decoded::LaterKind,
    }
}
