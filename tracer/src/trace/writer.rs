//! Appends records to a trace.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::codec;
use super::error::TraceError;
use super::frame::{FLAG_LAST, FRAME_TARGET, FrameHeader, MAX_PAYLOAD, VERSION, file_header};
use super::record::Record;

/// Fast, and within a few percent of what higher levels reach on records this small.
const LEVEL: i32 = 3;

/// Puts a file back to `length` bytes after a write that failed half way.
type Undo<W> = fn(&mut W, u64) -> io::Result<()>;

/// Length of a file, `None` of what has none.
type Length<W> = fn(&W) -> Option<u64>;

/// Appends records in frames. The same records give the same bytes, whenever and however often `flush` is
/// not called between them.
///
/// A frame that cannot be written is dropped and leaves a gap in the sequence, which the reader reports.
/// The writer stays usable: on a full disk the next small frame (the last one, from `finish`) often fits.
pub struct Writer<W: Write = File> {
    inner: W,
    path: PathBuf,
    undo: Option<Undo<W>>,
    length: Option<Length<W>>,
    compressor: zstd::bulk::Compressor<'static>,
    payload: Vec<u8>,
    scratch: Vec<u8>,
    /// Records in `payload`.
    records: u32,
    sequence: u64,
    /// Bytes in complete frames.
    written: u64,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .field("sequence", &self.sequence)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl Writer<File> {
    /// Creates the file, or empties an existing one, and writes the file header.
    ///
    /// # Errors
    /// [`TraceError::Create`] with path and cause.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let create = |source| TraceError::Create { path: path.to_owned(), source };
        let file = File::create(path).map_err(create)?;
        let mut writer = Self::new(file, path).map_err(|e| match e {
            TraceError::Write { path, source, .. } => TraceError::Create { path, source },
            other => other,
        })?;
        writer.undo = Some(|file, length| {
            file.set_len(length)?;
            file.seek(SeekFrom::Start(length)).map(|_| ())
        });
        writer.length = Some(|file| file.metadata().ok().filter(Metadata::is_file).map(|m| m.len()));
        Ok(writer)
    }

    /// Writes what is left, marks the end of the recording and waits until the file system has taken it.
    ///
    /// # Errors
    /// [`TraceError::Write`]; the file stays readable up to its last complete frame. [`TraceError::CutShort`].
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.write_frame(FLAG_LAST)?;
        // Some file systems tell of a full disk or a quota only here.
        match self.inner.sync_data() {
            // Pipes and some special files have nothing to sync.
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EROFS)) => {
                Err(TraceError::Write { path: self.path, records: 0, source: e })
            }
            _ => Ok(()),
        }
    }
}

impl<W: Write> Writer<W> {
    /// A trace into anything that takes bytes. `name` stands for the path in errors.
    ///
    /// # Errors
    /// [`TraceError::Write`] if the file header cannot be written.
    pub fn new(mut inner: W, name: &Path) -> Result<Self, TraceError> {
        let path = name.to_owned();
        let header = file_header();
        let start = || -> io::Result<_> {
            inner.write_all(&header)?;
            inner.flush()?;
            zstd::bulk::Compressor::new(LEVEL)
        };
        let compressor = match { start }() {
            Ok(compressor) => compressor,
            Err(source) => return Err(TraceError::Write { path, records: 0, source }),
        };
        Ok(Self {
            inner,
            path,
            undo: None,
            length: None,
            compressor,
            payload: Vec::with_capacity(FRAME_TARGET),
            scratch: Vec::new(),
            records: 0,
            sequence: 0,
            written: header.len() as u64,
        })
    }

    /// Takes a record; it is in the file after the next [`Self::flush`] at the latest.
    ///
    /// # Errors
    /// [`TraceError::Write`] and [`TraceError::CutShort`] if the frame before it could not be written: that
    /// frame's records are lost, this one is taken. [`TraceError::RecordTooLong`], [`TraceError::Encode`]: this one is not taken.
    pub fn append(&mut self, record: &Record) -> Result<(), TraceError> {
        let before = self.payload.len();
        if let Err(e) = codec::encode(record, &mut self.payload, &mut self.scratch) {
            self.payload.truncate(before);
            return Err(TraceError::Encode(e));
        }
        let bytes = self.payload.len() - before;
        if bytes > MAX_PAYLOAD {
            self.payload.truncate(before);
            self.scratch = Vec::new();
            return Err(TraceError::RecordTooLong { bytes, limit: MAX_PAYLOAD });
        }
        let mut result = Ok(());
        if before > 0 && self.payload.len() > FRAME_TARGET {
            let next = self.payload.split_off(before);
            result = self.write_frame(0);
            self.payload.extend_from_slice(&next);
        }
        self.records += 1;
        result
    }

    /// Closes the current frame and hands it to the operating system: it then survives the death of this
    /// process. Without records since the last frame it does nothing.
    ///
    /// # Errors
    /// [`TraceError::Write`], [`TraceError::CutShort`]: the frame's records are lost.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.records == 0 { Ok(()) } else { self.write_frame(0) }
    }

    /// Bytes in complete frames so far, the file header included.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Writes what is left, marks the end of the recording and gives the sink back.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish_into_inner(mut self) -> Result<W, TraceError> {
        self.write_frame(FLAG_LAST)?;
        Ok(self.inner)
    }

    #[cfg(test)]
    pub(super) fn sink_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    #[cfg(test)]
    pub(super) fn undo_with(&mut self, undo: Undo<W>) {
        self.undo = Some(undo);
    }

    fn write_frame(&mut self, flags: u16) -> Result<(), TraceError> {
        let cut = self.length.and_then(|length| length(&self.inner)).is_some_and(|now| now < self.written);
        // Written at our place in it, the next frame would fill up the file with zeros.
        let result = if cut { Ok(()) } else { self.try_write_frame(flags) };
        let records = u64::from(self.records);
        self.payload.clear();
        self.payload.shrink_to(FRAME_TARGET);
        self.records = 0;
        // Counted up for a lost frame too: the gap is how a reader knows of it.
        self.sequence += 1;
        if cut {
            return Err(TraceError::CutShort { path: self.path.clone() });
        }
        result.map_err(|source| {
            if let Some(undo) = self.undo {
                // If this fails too the torn frame stays, and the reader steps over it.
                drop(undo(&mut self.inner, self.written));
            }
            TraceError::Write { path: self.path.clone(), records, source }
        })
    }

    fn try_write_frame(&mut self, flags: u16) -> io::Result<()> {
        let compressed = self.compressor.compress(&self.payload)?;
        let header = FrameHeader {
            version: VERSION,
            flags,
            sequence: self.sequence,
            records: self.records,
            // Both are bounded by `append`.
            uncompressed: self.payload.len() as u32,
            compressed: compressed.len() as u32,
            payload_crc: crc32fast::hash(&compressed),
        };
        self.inner.write_all(&header.to_bytes())?;
        self.inner.write_all(&compressed)?;
        self.inner.flush()?;
        self.written += (super::frame::FRAME_HEADER_LEN + compressed.len()) as u64;
        Ok(())
    }
}
