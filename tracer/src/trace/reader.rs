//! Streams a trace's records back, in bounded memory.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::codec::{self, Decoded};
use super::damage::{Damage, DamageKind, DamageList};
use super::error::TraceError;
use super::frame::{FILE_HEADER_LEN, FILE_MAGIC, FrameHeader, VERSION, parse_file_header};
use super::record::Record;
use super::scan::{Frame, Scanner};
use super::window::Window;

/// A recording's records take twenty bytes of the file each, at the very least one. A made-up file can claim
/// thousands a byte; those past this number are then not read.
const FREE_RECORDS: u64 = 1 << 20;

/// How far into a file whose header is damaged a good frame is looked for before it is said to be no trace.
const SEARCH: usize = 1 << 20;

/// Iterates over the records of a trace in the order in which they were appended. All records of undamaged
/// frames come; what does not is in [`Self::damage`], complete once the iterator has ended. An error (only
/// [`TraceError::Read`]) ends it.
pub struct Reader<R: Read = File> {
    path: PathBuf,
    scanner: Scanner<R>,
    damage: DamageList,
    /// Records of the current frame.
    payload: Vec<u8>,
    at: usize,
    frame: Option<Frame>,
    /// Records taken from the current frame.
    taken: u32,
    /// Records given out.
    records: u64,
    done: bool,
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.path)
            .field("offset", &self.scanner.offset())
            .finish_non_exhaustive()
    }
}

impl Reader<File> {
    /// # Errors
    /// [`TraceError::Open`], [`TraceError::Read`], [`TraceError::Empty`], [`TraceError::NotATrace`] and
    /// [`TraceError::LaterVersion`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        Self::new(file, path)
    }
}

impl<R: Read> Reader<R> {
    /// A trace from anything that gives bytes. `name` stands for the path in errors.
    ///
    /// # Errors
    /// As for [`Reader::open`].
    pub fn new(inner: R, name: &Path) -> Result<Self, TraceError> {
        let path = name.to_owned();
        let read = |source| TraceError::Read { path: path.clone(), offset: 0, source };
        let mut window = Window::new(inner);
        let mut damage = DamageList::default();
        let start = window.peek(FILE_HEADER_LEN).map_err(read)?;
        if start.is_empty() {
            return Err(TraceError::Empty { path });
        }
        match parse_file_header(start) {
            Some(found) if found > VERSION => {
                return Err(TraceError::LaterVersion { path, found, supported: VERSION });
            }
            Some(_) => window.consume(FILE_HEADER_LEN),
            // Cut within the header: a trace, but without a record.
            None if start.len() < FILE_HEADER_LEN && begins_like_a_trace(start) => {
                return Err(TraceError::Empty { path });
            }
            None => {
                match first_frame(window.peek(SEARCH).map_err(read)?) {
                    Some((_, frame)) if frame.version > VERSION => {
                        let found = frame.version;
                        return Err(TraceError::LaterVersion { path, found, supported: VERSION });
                    }
                    None if !begins_like_a_trace(window.peek(FILE_HEADER_LEN).map_err(read)?) => {
                        return Err(TraceError::NotATrace { path });
                    }
                    _ => {}
                }
                let bytes = FILE_HEADER_LEN.min(window.peek(FILE_HEADER_LEN).map_err(read)?.len());
                let kind = DamageKind::FileHeader;
                damage.push(Damage { kind, offset: 0, bytes: bytes as u64, frames: 0, records: 0 });
                window.consume(bytes);
            }
        }
        let scanner = Scanner::new(window).map_err(read)?;
        let (payload, at, taken, records) = (Vec::new(), 0, 0, 0);
        Ok(Self { path, scanner, damage, payload, at, frame: None, taken, records, done: false })
    }

    /// What could not be read so far, in the order of the file; bounded in number.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        self.damage.as_slice()
    }

    /// How far the file has been read, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.scanner.offset()
    }

    fn next_in_frame(&mut self) -> Option<Record> {
        let frame = self.frame.as_ref()?;
        let offset = frame.offset;
        loop {
            let mut rest = &self.payload[self.at..];
            let decoded = codec::decode(&mut rest);
            self.at = self.payload.len() - rest.len();
            let kind = match decoded {
                None => break,
                Some(Decoded::Record(record)) => {
                    self.taken = self.taken.saturating_add(1);
                    return Some(*record);
                }
                Some(Decoded::LaterKind) => DamageKind::LaterKind,
                Some(Decoded::Undecodable) => DamageKind::Undecodable,
            };
            self.taken = self.taken.saturating_add(1);
            self.damage.push(Damage { kind, offset, bytes: 0, frames: 0, records: 1 });
        }
        let missing = frame.header.records.saturating_sub(self.taken);
        if missing > 0 {
            let (kind, records) = (DamageKind::Undecodable, u64::from(missing));
            self.damage.push(Damage { kind, offset, bytes: 0, frames: 0, records });
        }
        self.frame = None;
        None
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.next_in_frame() {
                self.records += 1;
                if self.records <= FREE_RECORDS + self.scanner.offset() {
                    return Some(Ok(record));
                }
                let (kind, offset) = (DamageKind::Implausible, self.scanner.offset());
                self.damage.push(Damage { kind, offset, bytes: 0, frames: 1, records: 0 });
                (self.frame, self.done) = (None, true);
            }
            if self.done {
                return None;
            }
            match self.scanner.next(&mut self.payload, &mut self.damage) {
                Ok(Some(frame)) => (self.frame, self.at, self.taken) = (Some(frame), 0, 0),
                Ok(None) => self.done = true,
                Err(source) => {
                    self.done = true;
                    let offset = self.scanner.offset();
                    return Some(Err(TraceError::Read { path: self.path.clone(), offset, source }));
                }
            }
        }
    }
}

fn begins_like_a_trace(bytes: &[u8]) -> bool {
    let n = bytes.len().min(FILE_MAGIC.len());
    n > 0 && bytes[..n] == FILE_MAGIC[..n]
}

fn first_frame(bytes: &[u8]) -> Option<(usize, FrameHeader)> {
    (0..bytes.len()).find_map(|at| FrameHeader::parse(&bytes[at..]).map(|header| (at, header)))
}
