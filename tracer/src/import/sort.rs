//! Sorting more than fits: chunks sorted in memory, spilled, and merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek as _, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Items held in memory before they are spilled.
const CHUNK: usize = 1 << 14;
/// Spilled chunks before they are merged into one, so that open files and their buffers stay few.
const RUNS: usize = 64;

/// Makes an empty scratch file that is gone when it is closed.
pub type Scratch<'a> = &'a dyn Fn() -> io::Result<File>;

/// Takes items in any order and gives them back in theirs. Holds at most [`CHUNK`] items and a buffer for
/// each of [`RUNS`] files.
pub(super) struct Sorter<'a, T> {
    scratch: Scratch<'a>,
    chunk: Vec<T>,
    runs: Vec<Run>,
}

/// A spilled chunk.
struct Run {
    file: BufReader<File>,
    left: u64,
}

impl<'a, T: Ord + Serialize + DeserializeOwned> Sorter<'a, T> {
    pub(super) fn new(scratch: Scratch<'a>) -> Self {
        Self { scratch, chunk: Vec::new(), runs: Vec::new() }
    }

    /// # Errors
    /// The scratch file cannot be written.
    pub(super) fn push(&mut self, item: T) -> io::Result<()> {
        self.chunk.push(item);
        if self.chunk.len() < CHUNK {
            return Ok(());
        }
        self.chunk.sort_unstable();
        let run = spill((self.scratch)()?, self.chunk.drain(..).map(Ok))?;
        self.runs.push(run);
        if self.runs.len() == RUNS {
            let all: Merge<T> = Merge::new(std::mem::take(&mut self.runs), Vec::new())?;
            let run = spill((self.scratch)()?, all)?;
            self.runs.push(run);
        }
        Ok(())
    }

    /// # Errors
    /// A scratch file cannot be read back.
    pub(super) fn sorted(mut self) -> io::Result<Merge<T>> {
        self.chunk.sort_unstable();
        Merge::new(self.runs, self.chunk)
    }
}

fn spill<T: Serialize>(file: File, items: impl Iterator<Item = io::Result<T>>) -> io::Result<Run> {
    let mut out = BufWriter::new(file);
    let mut left = 0;
    for item in items {
        postcard::to_io(&item?, &mut out).map_err(io::Error::other)?;
        left += 1;
    }
    out.flush()?;
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(Run { file: BufReader::new(file), left })
}

impl Run {
    fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        // For borrowed text and bytes, of which items have none.
        let mut none = [0; 0];
        let (item, _) = postcard::from_io((&mut self.file, &mut none[..])).map_err(io::Error::other)?;
        Ok(Some(item))
    }
}

/// All items of some sorted runs, in order.
pub(super) struct Merge<T> {
    runs: Vec<Run>,
    /// The last chunk, still in memory.
    rest: std::vec::IntoIter<T>,
    /// The next item of each run and where it is from.
    heads: BinaryHeap<Reverse<(T, usize)>>,
}

impl<T: Ord + DeserializeOwned> Merge<T> {
    fn new(runs: Vec<Run>, rest: Vec<T>) -> io::Result<Self> {
        let mut merge = Self { rest: rest.into_iter(), heads: BinaryHeap::new(), runs };
        for from in 0..=merge.runs.len() {
            merge.refill(from)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, from: usize) -> io::Result<()> {
        let next = match self.runs.get_mut(from) {
            Some(run) => run.next()?,
            None => self.rest.next(),
        };
        self.heads.extend(next.map(|item| Reverse((item, from))));
        Ok(())
    }
}

impl<T: Ord + DeserializeOwned> Iterator for Merge<T> {
    type Item = io::Result<T>;

    fn next(&mut self) -> Option<io::Result<T>> {
        let Reverse((item, from)) = self.heads.pop()?;
        Some(self.refill(from).map(|()| item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_chunks_come_back_whole_and_in_order() {
        let count = CHUNK as u64 * (RUNS as u64 + 3) + 17;
        let scratch = tempfile::tempfile;
        let mut sorter = Sorter::new(&scratch);
        // A permutation: the factor is odd and the modulus a power of two.
        let modulus = count.next_power_of_two();
        let values = (0..modulus).map(|i| i.wrapping_mul(0x9e37_79b9) % modulus).filter(|v| *v < count);
        for value in values {
            sorter.push(value).unwrap();
        }
        let back: Vec<u64> = sorter.sorted().unwrap().map(Result::unwrap).collect();
        assert_eq!(back.len() as u64, count);
        assert!(back.iter().zip(0..).all(|(a, b)| *a == b));
    }

    #[test]
    fn nothing_gives_nothing() {
        let scratch = tempfile::tempfile;
        assert_eq!(Sorter::<u64>::new(&scratch).sorted().unwrap().count(), 0);
    }
}
