//! Text of which a byte may be none: such bytes become `?`, one for one, and all that stands around them is kept.

use std::io::{self, Read};

/// Bytes looked at together; the longest character has four.
const CAPACITY: usize = 1 << 16;

/// What `inner` gives, as UTF-8 whatever it gives.
pub(super) struct Lossy<R> {
    inner: R,
    /// Clean up to `clean`, and handed out up to `at`; beyond it at most the beginning of a character.
    bytes: Vec<u8>,
    at: usize,
    clean: usize,
}

impl<R: Read> Lossy<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, bytes: Vec::with_capacity(CAPACITY), at: 0, clean: 0 }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.clean);
        (self.at, self.clean) = (0, 0);
        let begun = self.bytes.len();
        self.bytes.resize(CAPACITY, 0);
        let read = self.inner.read(&mut self.bytes[begun..]);
        self.bytes.truncate(begun + *read.as_ref().unwrap_or(&0));
        let ended = read? == 0;
        self.clean = clean(&mut self.bytes, ended);
        Ok(())
    }
}

impl<R: Read> Read for Lossy<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.clean {
            self.refill()?;
            if self.bytes.is_empty() {
                return Ok(0);
            }
        }
        let given = into.len().min(self.clean - self.at);
        into[..given].copy_from_slice(&self.bytes[self.at..self.at + given]);
        self.at += given;
        Ok(given)
    }
}

/// Replaces what is no text. How many bytes are clean: all, but for the beginning of a character that may go on.
fn clean(bytes: &mut [u8], ended: bool) -> usize {
    let mut clean = 0;
    while let Err(error) = std::str::from_utf8(&bytes[clean..]) {
        let bad = clean + error.valid_up_to();
        let length = match error.error_len() {
            Some(length) => length,
            None if ended => bytes.len() - bad,
            None => return bad,
        };
        bytes[bad..bad + length].fill(b'?');
        clean = bad + length;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives so many bytes a read.
    struct Steps<'a>(&'a [u8], usize);

    impl Read for Steps<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let step = self.1.min(into.len());
            self.0.read(&mut into[..step])
        }
    }

    fn read(bytes: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        Lossy::new(Steps(bytes, step)).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn a_byte_that_is_no_text_costs_only_itself() {
        for (bytes, text) in [
            (&b"a\xffb"[..], "a?b"),
            (b"\xc3\xa4\xc3", "\u{e4}?"),
            (b"\xe2\x82", "??"),
            (b"\xf0\x9f\x98\x80\x80", "\u{1f600}?"),
            (b"", ""),
        ] {
            for step in 1..6 {
                assert_eq!(String::from_utf8(read(bytes, step)).unwrap(), text);
            }
        }
    }

    proptest! {
        #[test]
        fn text_stays_and_anything_becomes_text_of_its_length(
            text in ".{0,99}", bytes in any::<Vec<u8>>(), step in 1_usize..9,
        ) {
            prop_assert_eq!(read(text.as_bytes(), step), text.as_bytes());
            let out = read(&bytes, step);
            prop_assert_eq!(out.len(), bytes.len());
            prop_assert!(String::from_utf8(out).is_ok());
        }
    }
}
