//! Finds the good frames of a stream, and takes down what lies between them.

use std::io::{self, Read};

use super::damage::{Damage, DamageKind, DamageList};
use super::frame::{FLAG_LAST, FRAME_HEADER_LEN, FRAME_MAGIC, FrameHeader, MAX_PAYLOAD, VERSION};
use super::window::Window;

/// Bytes that may be checksummed in vain while looking for the next good frame, beyond what real damage
/// needs: a file made of nothing but headers that claim long frames would otherwise take quadratic time.
const WASTE: u64 = 64 << 20;

pub(super) struct Scanner<R> {
    window: Window<R>,
    /// Sequence number the next frame should have.
    expected: u64,
    last_seen: bool,
    wasted: u64,
    decompressor: zstd::bulk::Decompressor<'static>,
}

/// A good frame.
pub(super) struct Frame {
    pub(super) header: FrameHeader,
    pub(super) offset: u64,
}

enum Candidate {
    Good(FrameHeader),
    /// With the header, if that much is sound; `cut`: the file ends before the frame does.
    Bad {
        header: Option<FrameHeader>,
        cut: bool,
    },
}

/// Bytes passed over since the last good frame.
#[derive(Default)]
struct Gap {
    bytes: u64,
    /// Records of frames whose header is sound and whose payload is not.
    records: u64,
    frames: u64,
    cut: bool,
}

impl<R: Read> Scanner<R> {
    pub(super) fn new(window: Window<R>) -> io::Result<Self> {
        let decompressor = zstd::bulk::Decompressor::new()?;
        Ok(Self { window, expected: 0, last_seen: false, wasted: 0, decompressor })
    }

    pub(super) fn offset(&self) -> u64 {
        self.window.offset()
    }

    #[cfg(test)]
    pub(super) fn wasted(&self) -> u64 {
        self.wasted
    }

    /// The next good frame with its records in `payload`; `None` at the end of the stream.
    pub(super) fn next(
        &mut self,
        payload: &mut Vec<u8>,
        damage: &mut DamageList,
    ) -> io::Result<Option<Frame>> {
        let mut gap = Gap::default();
        let mut start = self.window.offset();
        loop {
            let offset = self.window.offset();
            let available = self.window.peek(FRAME_HEADER_LEN)?.len();
            if available == 0 {
                self.end(start, &gap, damage);
                return Ok(None);
            }
            let (header, cut) = match self.candidate(payload)? {
                Candidate::Good(header) if header.sequence >= self.expected => {
                    self.report(start, &gap, header.sequence - self.expected, damage);
                    self.expected = header.sequence.saturating_add(1);
                    self.last_seen = header.flags & FLAG_LAST != 0;
                    self.window.consume(FRAME_HEADER_LEN + header.compressed as usize);
                    return Ok(Some(Frame { header, offset }));
                }
                Candidate::Good(header) => {
                    self.report(start, &gap, 0, damage);
                    let length = FRAME_HEADER_LEN + header.compressed as usize;
                    damage.push(Damage {
                        kind: DamageKind::OutOfOrder,
                        offset,
                        bytes: length as u64,
                        frames: 0,
                        records: u64::from(header.records),
                    });
                    self.window.consume(length);
                    (gap, start) = (Gap::default(), self.window.offset());
                    continue;
                }
                Candidate::Bad { header, cut } => (header, cut),
            };
            if let Some(header) = header.filter(|h| h.sequence >= self.expected) {
                gap.records = gap.records.saturating_add(u64::from(header.records));
                gap.frames += 1;
            }
            // Short of a header only counts at the gap's start: every gap at the end gets there.
            gap.cut |= cut && (header.is_some() || gap.bytes == 0);
            gap.bytes += self.pass(header)?;
        }
    }

    /// Looks at what lies at the current offset, without consuming it.
    fn candidate(&mut self, payload: &mut Vec<u8>) -> io::Result<Candidate> {
        let bytes = self.window.peek(FRAME_HEADER_LEN)?;
        let Some(header) = FrameHeader::parse(bytes) else {
            return Ok(Candidate::Bad { header: None, cut: bytes.len() < FRAME_HEADER_LEN });
        };
        let bad = |cut| Ok(Candidate::Bad { header: Some(header), cut });
        let length = FRAME_HEADER_LEN + header.compressed as usize;
        let bytes = self.window.peek(length)?;
        let Some(compressed) = bytes.get(FRAME_HEADER_LEN..length) else { return bad(true) };
        if header.version > VERSION || crc32fast::hash(compressed) != header.payload_crc {
            return bad(false);
        }
        payload.clear();
        payload.reserve_exact((header.uncompressed as usize).min(MAX_PAYLOAD));
        match self.decompressor.decompress_to_buffer(compressed, payload) {
            Ok(n) if n == header.uncompressed as usize => Ok(Candidate::Good(header)),
            _ => bad(false),
        }
    }

    /// Steps over what is no good frame, to where the next may begin. Returns the bytes passed.
    fn pass(&mut self, header: Option<FrameHeader>) -> io::Result<u64> {
        let mut passed = 1;
        if let Some(header) = header {
            self.wasted += u64::from(header.compressed);
            if self.wasted > WASTE.saturating_add(self.window.offset()) {
                passed = FRAME_HEADER_LEN + header.compressed as usize;
            }
        }
        let bytes = self.window.peek(passed)?;
        passed = passed.min(bytes.len());
        let rest = &bytes[passed..];
        passed += rest.iter().position(|b| *b == FRAME_MAGIC[0]).unwrap_or(rest.len());
        self.window.consume(passed);
        Ok(passed as u64)
    }

    fn report(&self, start: u64, gap: &Gap, missing: u64, damage: &mut DamageList) {
        if gap.bytes == 0 && missing == 0 {
            return;
        }
        let kind = if gap.bytes == 0 { DamageKind::NeverWritten } else { DamageKind::Skipped };
        // More headers than missing numbers: some of them were not of this trace.
        let records = if gap.frames <= missing { gap.records } else { 0 };
        damage.push(Damage { kind, offset: start, bytes: gap.bytes, frames: missing, records });
    }

    fn end(&self, start: u64, gap: &Gap, damage: &mut DamageList) {
        let kind = match (gap.bytes, self.last_seen) {
            (0, true) => return,
            (0, false) => DamageKind::NoEnd,
            _ if gap.cut => DamageKind::CutTail,
            _ => DamageKind::Skipped,
        };
        damage.push(Damage {
            kind,
            offset: start,
            bytes: gap.bytes,
            frames: gap.frames,
            records: gap.records,
        });
        if kind == DamageKind::Skipped && !self.last_seen {
            let offset = start + gap.bytes;
            damage.push(Damage { kind: DamageKind::NoEnd, offset, bytes: 0, frames: 0, records: 0 });
        }
    }
}
