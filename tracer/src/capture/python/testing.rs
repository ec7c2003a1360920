//! For fuzzing: what is read of the memory of watched processes.

use std::cell::Cell;

use super::code::{Code, Types};
use super::find;
use super::interpreter::Interpreter;
use super::layout::{self, Layout};
use super::lines;
use super::memory::{Fake, Memory};

/// Where the memory begins: small numbers are addresses in it.
const BASE: u64 = 0x100;

/// What was asked of a memory.
#[derive(Debug, Default)]
pub struct Asked {
    pub reads: u64,
    pub bytes: u64,
    /// Most bytes of one read.
    pub most: u64,
}

/// A process's memory of any bytes.
struct Any {
    fake: Fake,
    /// Every address is in it, and has what lies that much further in the bytes than they are long.
    endless: bool,
    asked: Cell<Asked>,
}

impl Memory for Any {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let Asked { reads, bytes, most } = self.asked.take();
        let length = to.len() as u64;
        self.asked.set(Asked { reads: reads + 1, bytes: bytes + length, most: most.max(length) });
        let there = &self.fake.bytes;
        if !self.endless || there.is_empty() {
            return self.fake.read(address, to);
        }
        let mut at = (address % there.len() as u64) as usize;
        for byte in to {
            *byte = there[at];
            at = (at + 1) % there.len();
        }
        Some(())
    }
}

/// Reads an interpreter, its threads, a function and its lines from a process whose memory holds these bytes. What was
/// asked of it.
#[must_use]
pub fn python(bytes: &[u8]) -> Asked {
    let (head, bytes) = bytes.split_at(bytes.len().min(16));
    let at = |i: usize| head.get(i).copied().unwrap_or_default();
    let word = |i: usize| u64::from(u16::from_le_bytes([at(i), at(i + 1)])) + BASE;
    let fake = Fake { base: BASE, bytes: bytes.to_vec() };
    let memory = Any { fake, endless: at(0) & 1 != 0, asked: Cell::default() };

    let exported = std::array::from_fn(|i| (at(1) >> i & 1 != 0).then(|| word(2).wrapping_add(8 * i as u64)));
    let found = find::interpreter(&memory, exported);
    let mut layouts: Vec<Layout> = (8..=12).filter_map(|minor| layout::of(3, minor)).collect();
    if let Some(find::Found::Known(mut interpreter)) = found {
        interpreter.threads_in(&memory);
        layouts.push(interpreter.layout);
    }
    let Some(layout) = layouts.get(usize::from(at(4)) % layouts.len()) else { return memory.asked.take() };
    Interpreter::new(word(2), Types::default(), *layout).threads_in(&memory);

    let (code, instruction) = (word(6), word(8));
    if let Some(seen) = Code::identity(&memory, layout, code)
        && let Some(code) = Code::read(&memory, layout, code, seen, Types::default())
    {
        let _line = code.line(&memory, layout, instruction);
    }
    for index in [-1, 0, i32::from(at(10)), i32::MAX] {
        let first = word(12) as u32;
        let _lnotab = lines::lnotab(bytes, first, index);
        let _linetable = lines::linetable(bytes, first, index);
        let _locations = lines::locations(bytes, first, index.into());
    }
    memory.asked.take()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Words that lead into the memory, and any others.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let small = (0u64..0x1000).prop_map(|word| word & !7);
        let word = prop_oneof![4 => small, 1 => any::<u64>(), 1 => Just(u64::from_le_bytes(*b"xdebugpy"))];
        (vec(any::<u8>(), 16), vec(word, 0..512)).prop_map(|(mut bytes, words)| {
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            bytes
        })
    }

    proptest! {
        #[test]
        fn any_memory_is_read_within_bounds(bytes in bytes()) {
            let Asked { reads, bytes, most } = python(&bytes);
            // Two interpreters of 4096 threads, their words below, one function.
            prop_assert!(reads < 2 * 6 * 4096 && most <= 1 << 20 && bytes < 8 << 20, "{reads} {bytes} {most}");
        }
    }

    #[test]
    fn a_list_without_end_is_left() {
        // Every word is the address of itself.
        let mut bytes = vec![1, 0xff, 0, 0];
        bytes.resize(16 + 8, 0);
        let asked = python(&bytes);
        assert!(asked.reads < 100, "{asked:?}");
        bytes[16..].copy_from_slice(&0x100u64.to_le_bytes());
        let asked = python(&bytes);
        assert!((4096..2 * 6 * 4096).contains(&asked.reads), "{asked:?}");
    }
}
