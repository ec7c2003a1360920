//! A bounded look ahead into a stream of bytes.

use std::io::{self, Read};

/// Read at least this much at a time.
const CHUNK: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Window<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Bytes of `buffer` already consumed.
    start: usize,
    /// Position of the next byte to consume, from the start of the stream.
    offset: u64,
    ended: bool,
}

impl<R: Read> Window<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, buffer: Vec::new(), start: 0, offset: 0, ended: false }
    }

    /// Everything held after reading on until that is at least `wanted` bytes; less only at the end.
    pub(super) fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let have = self.buffer.len() - self.start;
        if have < wanted && !self.ended {
            self.buffer.drain(..self.start);
            self.start = 0;
            let missing = (wanted - have).max(CHUNK);
            let read = self.inner.by_ref().take(missing as u64).read_to_end(&mut self.buffer)?;
            self.ended = read < missing;
        }
        Ok(&self.buffer[self.start..])
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.buffer.len() - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}
