//! For fuzzing: a mutation of a whole file would never get past its checksums.

use super::frame::{FrameHeader, MAX_PAYLOAD, VERSION, file_header};

/// A sound file whose one frame holds `payload` as its records.
#[must_use]
pub fn file_of(payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
    let compressed = zstd::bulk::compress(payload, 1).unwrap_or_default();
    let header = FrameHeader {
        version: VERSION,
        flags: 0,
        sequence: 0,
        records: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        uncompressed: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        compressed: u32::try_from(compressed.len()).unwrap_or(u32::MAX),
        payload_crc: crc32fast::hash(&compressed),
    };
    [&file_header()[..], &header.to_bytes()[..], &compressed].concat()
}

#[cfg(test)]
mod tests {
    use super::super::codec::encode;
    use super::*;
    use crate::trace::{Host, Reader, Record};

    #[test]
    fn what_is_framed_is_read() {
        let (mut payload, mut scratch) = (Vec::new(), Vec::new());
        let record = Record::Host(Host { kernel: "6.1".into(), ..Host::default() });
        encode(&record, &mut payload, &mut scratch).unwrap();
        let file = file_of(&payload);
        let read: Vec<_> =
            Reader::new(file.as_slice(), "f".as_ref()).unwrap().map_while(Result::ok).collect();
        assert_eq!(read, [record]);
    }
}
