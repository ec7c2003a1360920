//! The file header and the frame header: their layout is the same in all versions (`docs/format.md`).

/// Version of the format that is written, and the latest that is read.
pub const VERSION: u16 = 1;

pub(super) const FILE_MAGIC: [u8; 8] = *b"\x89whyidle";
pub(super) const FILE_HEADER_LEN: usize = 16;
pub(super) const FRAME_MAGIC: [u8; 4] = *b"\xf5WIf";
pub(super) const FRAME_HEADER_LEN: usize = 36;

/// A frame is closed before it grows past this, unless one record alone is longer.
pub(super) const FRAME_TARGET: usize = 64 << 10;
/// No frame holds more, so that no file can make a reader allocate more.
pub(super) const MAX_PAYLOAD: usize = 4 << 20;
/// zstd adds at most 1/256 to what it cannot compress; rounded up.
pub(super) const MAX_COMPRESSED: usize = MAX_PAYLOAD + (64 << 10);

/// In [`FrameHeader::flags`]: the recording ended in order with this frame.
pub(super) const FLAG_LAST: u16 = 1;

pub(super) fn file_header() -> [u8; FILE_HEADER_LEN] {
    let mut out = [0; FILE_HEADER_LEN];
    out[..8].copy_from_slice(&FILE_MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The version in a file header, `None` if it is none or damaged.
pub(super) fn parse_file_header(bytes: &[u8]) -> Option<u16> {
    let bytes: &[u8; FILE_HEADER_LEN] = bytes.first_chunk()?;
    let sound = bytes[..8] == FILE_MAGIC && u32_at(bytes, 12) == crc32fast::hash(&bytes[..12]);
    sound.then(|| u16_at(bytes, 8))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) version: u16,
    pub(super) flags: u16,
    /// Counts from 0; frames that could not be written leave a gap.
    pub(super) sequence: u64,
    /// Records in the payload.
    pub(super) records: u32,
    pub(super) uncompressed: u32,
    pub(super) compressed: u32,
    /// Of the compressed payload.
    pub(super) payload_crc: u32,
}

impl FrameHeader {
    pub(super) fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let mut out = [0; FRAME_HEADER_LEN];
        out[..4].copy_from_slice(&FRAME_MAGIC);
        out[4..6].copy_from_slice(&self.version.to_le_bytes());
        out[6..8].copy_from_slice(&self.flags.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..20].copy_from_slice(&self.records.to_le_bytes());
        out[20..24].copy_from_slice(&self.uncompressed.to_le_bytes());
        out[24..28].copy_from_slice(&self.compressed.to_le_bytes());
        out[28..32].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..32]);
        out[32..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` if the bytes are no sound header, or one that claims more than a frame may hold.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_HEADER_LEN] = bytes.first_chunk()?;
        if bytes[..4] != FRAME_MAGIC || u32_at(bytes, 32) != crc32fast::hash(&bytes[..32]) {
            return None;
        }
        let header = Self {
            version: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            sequence: u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32,
            records: u32_at(bytes, 16),
            uncompressed: u32_at(bytes, 20),
            compressed: u32_at(bytes, 24),
            payload_crc: u32_at(bytes, 28),
        };
        let fits =
            header.uncompressed as usize <= MAX_PAYLOAD && header.compressed as usize <= MAX_COMPRESSED;
        fits.then_some(header)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
