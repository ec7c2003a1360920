//! Code objects, read from a process's memory: which function, in which file, on which line.

use tracer_ebpf::wire::PythonFrame;
use tracer_ebpf::wire::python::{IDENTITY_WORDS, identity};

use super::layout::{Layout, Lines, TYPE_OF, Text};
use super::lines;
use super::memory::Memory;

/// Names and paths beyond are cut.
const CHARACTERS: usize = 1024;
/// A longer table is not read: 64 KiB are some ten thousand lines in one function.
const TABLE: u64 = 1 << 20;
/// Copies of one function's instructions that are looked at: one a thread.
const COPIES: u64 = 4096;
const ADDRESS: u64 = (1 << 56) - 1;

/// Addresses of the types `code`, `str` and `bytes`, where the interpreter's file exports them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Types {
    pub(super) code: Option<u64>,
    pub(super) text: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// What is kept of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) name: String,
    pub(super) file: String,
    first_line: u32,
    table: Vec<u8>,
    address: u64,
}

/// The code object's address, and the flag of its frame.
pub(super) fn parts(frame: &PythonFrame) -> (u64, u8) {
    (frame.code & ADDRESS, (frame.code >> 56) as u8)
}

impl Code {
    /// The code object at `address`, if it still is the one the kernel side saw, whose `identity` is given,
    /// and its parts are what they should be by their types, where those are known.
    pub(super) fn read(
        memory: &impl Memory,
        layout: &Layout,
        address: u64,
        seen: u64,
        types: Types,
    ) -> Option<Self> {
        let is_same = || Some(Self::identity(memory, layout, address)? == seen);
        let at = &layout.code;
        is_same().filter(|same| *same)?;
        let field = |offset| memory.pointer(address, offset);
        let (name, file, table) = (field(at.name)?, field(at.filename)?, field(at.line_table)?);
        let live = || {
            is_live(memory, layout, address, types.code)?;
            is_live(memory, layout, name, types.text)?;
            is_live(memory, layout, file, types.text)?;
            is_live(memory, layout, table, types.bytes)
        };
        live()?;
        let code = Self {
            name: text(memory, &layout.text, name)?,
            file: text(memory, &layout.text, file)?,
            first_line: memory.int(address, at.first_line)?,
            table: bytes(memory, layout, table)?,
            address,
        };
        // Still, after all of it was read.
        live()?;
        is_same().filter(|same| *same)?;
        Some(code)
    }

    /// What the kernel side sees of it.
    pub(super) fn identity(memory: &impl Memory, layout: &Layout, address: u64) -> Option<u64> {
        let bytes = memory.bytes(address, layout.frames.identity.into(), IDENTITY_WORDS * 8)?;
        let mut words = [0; IDENTITY_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(identity(&words))
    }

    /// The line of an instruction, as a frame tells it.
    pub(super) fn line(&self, memory: &impl Memory, layout: &Layout, instruction: u64) -> Option<u32> {
        let index = instruction as u32 as i32;
        match layout.code.lines {
            Lines::Lnotab => lines::lnotab(&self.table, self.first_line, index),
            Lines::Linetable => lines::linetable(&self.table, self.first_line, index.saturating_mul(2)),
            Lines::Locations => {
                let own = self.address.checked_add(layout.code.instructions)?;
                self.line_from(own, instruction).or_else(|| self.line_in_copy(memory, layout, instruction))
            }
        }
    }

    /// The line of the instruction at an address, `None` where it lies not in the code that starts at `start`.
    fn line_from(&self, start: u64, instruction: u64) -> Option<u32> {
        // A frame that has not begun points to the unit before the first.
        let bytes = i64::try_from(i128::from(instruction) - i128::from(start)).ok()?;
        (bytes >= -2).then_some(())?;
        lines::locations(&self.table, self.first_line, bytes.div_euclid(2))
    }

    /// Threads of free-threaded builds have copies of their own.
    fn line_in_copy(&self, memory: &impl Memory, layout: &Layout, instruction: u64) -> Option<u32> {
        let copies = memory.pointer(self.address, layout.code.copies?)?;
        let count = memory.word(copies)?.min(COPIES);
        let starts = (1..count).filter_map(|i| memory.pointer(copies, 8 + i * 8));
        // The copy that begins last before the instruction.
        let start = starts.filter(|start| *start <= instruction.saturating_add(2)).max()?;
        self.line_from(start, instruction)
    }
}

/// An object of its type that was not given back: who gives one back leaves no reference counted, and the allocators
/// put a pointer, or nothing, into its first word.
fn is_live(memory: &impl Memory, layout: &Layout, address: u64, of_type: Option<u64>) -> Option<()> {
    if layout.type_of == TYPE_OF {
        // 3.14 keeps flags in the topmost bits, where an address has none.
        let count = memory.word(address)?;
        (count as u32 != 0 && count >> 32 & 0xffff == 0).then_some(())?;
    } else {
        // Free-threaded: the owner's references, and those of others in the word that follows, above two flags.
        let own = memory.int(address, 12)?;
        let others = memory.word_at(address, 16)?.cast_signed() >> 2;
        (i64::from(own).checked_add(others)? > 0).then_some(())?;
    }
    let type_of = memory.word_at(address, layout.type_of)?;
    of_type.is_none_or(|wanted| wanted == type_of).then_some(())
}

/// A `str`, which is kept in the narrowest of three widths.
fn text(memory: &impl Memory, layout: &Text, address: u64) -> Option<String> {
    let state = memory.int(address, layout.state)? >> layout.kind_bit;
    let (width, compact, ascii) = (state as usize & 7, state & 8 != 0, state & 16 != 0);
    let data = match (compact, ascii) {
        (true, true) => address.checked_add(layout.ascii)?,
        (true, false) => address.checked_add(layout.compact)?,
        (false, _) => memory.pointer(address, layout.compact)?,
    };
    let length = usize::try_from(memory.word_at(address, layout.length)?).ok()?;
    if !matches!(width, 1 | 2 | 4) || length > 1 << 20 {
        return None;
    }
    let bytes = memory.bytes(data, 0, length.min(CHARACTERS) * width)?;
    let points = bytes.chunks_exact(width).map(|unit| {
        let mut point = [0; 4];
        point[..width].copy_from_slice(unit);
        u32::from_le_bytes(point)
    });
    Some(points.map(|p| char::from_u32(p).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

fn bytes(memory: &impl Memory, layout: &Layout, address: u64) -> Option<Vec<u8>> {
    let size = memory.word_at(address, layout.bytes.size)?;
    if size > TABLE {
        return None;
    }
    memory.bytes(address, layout.bytes.data, usize::try_from(size).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::layout::{self, Bytes};
    use super::super::memory::Fake;
    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;
    const CODE: u64 = BASE + 0x100;
    const NAME: u64 = BASE + 0x400;
    const FILE: u64 = BASE + 0x500;
    const TABLE_AT: u64 = BASE + 0x600;
    const TYPE: u64 = 0x5555;
    const TYPES: Types = Types { code: Some(TYPE), text: Some(TYPE + 1), bytes: Some(TYPE + 2) };

    fn words(memory: &mut Fake, words: &[(u64, u64)]) {
        words.iter().for_each(|(at, word)| memory.put(*at, &word.to_le_bytes()));
    }

    fn state(layout: &Text, width: u32, compact: bool, ascii: bool) -> u64 {
        u64::from((width | u32::from(compact) << 3 | u32::from(ascii) << 4) << layout.kind_bit)
    }

    /// `f` in `ß.py`, whose one line is 12.
    fn process(layout: &Layout) -> Fake {
        let mut memory = Fake { base: BASE, bytes: vec![0; 0x1000] };
        let (code, text) = (&layout.code, &layout.text);
        let first_line = CODE + code.first_line;
        words(
            &mut memory,
            &[
                (CODE + code.name, NAME),
                (CODE + code.filename, FILE),
                (CODE + code.line_table, TABLE_AT),
                (CODE + layout.type_of, TYPE),
                (NAME + layout.type_of, TYPE + 1),
                (FILE + layout.type_of, TYPE + 1),
                (TABLE_AT + layout.type_of, TYPE + 2),
                (NAME + text.length, 1),
                (NAME + text.state, state(text, 1, true, true)),
                (FILE + text.length, 4),
                (FILE + text.state, state(text, 2, true, false)),
                (TABLE_AT + layout.bytes.size, 2),
            ],
        );
        words(&mut memory, &alive(layout));
        memory.put(first_line, &12u32.to_le_bytes());
        memory.put(NAME + text.ascii, b"f");
        memory.put(FILE + text.compact, &[0xdf, 0, b'.', 0, b'p', 0, b'y', 0]);
        let table: [u8; 2] = if code.lines == Lines::Locations { [0x87, 0] } else { [200, 0] };
        memory.put(TABLE_AT + layout.bytes.data, &table);
        memory
    }

    fn seen(memory: &Fake, layout: &Layout) -> u64 {
        Code::identity(memory, layout, CODE).unwrap()
    }

    /// Of each version, and one that counts references as free-threaded builds do.
    fn layouts() -> impl Iterator<Item = Layout> {
        let mut free_threaded = layout::of(3, 12).unwrap();
        free_threaded.type_of = 24;
        free_threaded.text = Text { length: 32, state: 48, ascii: 56, compact: 72, ..free_threaded.text };
        free_threaded.bytes = Bytes { size: 32, data: 48 };
        (8..=12).filter_map(|minor| layout::of(3, minor)).chain([free_threaded])
    }

    /// One reference, as many as there can be, and from 3.14 on with flags. Free-threaded: the owner's, others',
    /// and fewer than the owner's because another gave one back.
    fn alive(layout: &Layout) -> Vec<(u64, u64)> {
        match layout.type_of {
            TYPE_OF => vec![(CODE, 1), (NAME, 1), (FILE, 0xffff_ffff), (TABLE_AT, 1 << 48 | 1)],
            _ => vec![
                (CODE + 8, 1 << 32),
                (NAME + 16, 1 << 2 | 3),
                (FILE + 8, 0xffff_ffff << 32),
                (TABLE_AT + 8, 2 << 32),
                (TABLE_AT + 16, (-4i64).cast_unsigned()),
            ],
        }
    }

    fn given_back(layout: &Layout, object: u64) -> Vec<(u64, u64)> {
        match layout.type_of {
            TYPE_OF => vec![(object, if object == NAME { BASE } else { 0 })],
            _ => vec![(object, BASE), (object + 8, 0xffff_ffff), (object + 16, 3)],
        }
    }

    #[test]
    fn a_function_is_read_in_each_version() {
        for layout in layouts() {
            let memory = process(&layout);
            let code = Code::read(&memory, &layout, CODE, seen(&memory, &layout), TYPES).unwrap();
            assert_eq!((code.name.as_str(), code.file.as_str()), ("f", "ß.py"));
            let instruction =
                if layout.code.lines == Lines::Locations { CODE + layout.code.instructions + 4 } else { 4 };
            assert_eq!(code.line(&memory, &layout, instruction), Some(12), "{:?}", layout.version);
        }
    }

    #[test]
    fn another_object_at_the_same_address_is_not_taken_for_it() {
        for layout in layouts() {
            let mut memory = process(&layout);
            let before = seen(&memory, &layout);
            memory.put(CODE + layout.code.line_table, &(TABLE_AT + 8).to_le_bytes());
            assert_eq!(Code::read(&memory, &layout, CODE, before, TYPES), None);
            let after = seen(&memory, &layout);
            assert!(Code::read(&memory, &layout, CODE, after, TYPES).is_none(), "no bytes there");
            assert_eq!(
                Code::read(&memory, &layout, CODE, after, Types { code: Some(TYPE + 1), ..TYPES }),
                None
            );
        }
    }

    #[test]
    fn what_was_given_back_is_not_read() {
        for layout in layouts() {
            for object in [CODE, NAME, FILE, TABLE_AT] {
                let mut memory = process(&layout);
                words(&mut memory, &given_back(&layout, object));
                assert_eq!(Code::read(&memory, &layout, CODE, seen(&memory, &layout), TYPES), None);
            }
        }
    }

    #[test]
    fn text_is_read_in_each_width() {
        let layout = of_3_12();
        let mut memory = Fake { base: BASE, bytes: vec![0; 0x1000] };
        words(
            &mut memory,
            &[(NAME + layout.length, 2), (NAME + layout.state, state(&layout, 4, true, false))],
        );
        memory.put(NAME + layout.compact, &[0, 0, 2, 0, b'x', 0, 0, 0]);
        assert_eq!(text(&memory, &layout, NAME).unwrap(), "\u{20000}x");
        // Not compact: the data lies elsewhere.
        words(
            &mut memory,
            &[
                (NAME + layout.length, 2),
                (NAME + layout.state, state(&layout, 1, false, false)),
                (NAME + layout.compact, FILE),
            ],
        );
        memory.put(FILE, &[0xe9, b'!']);
        assert_eq!(text(&memory, &layout, NAME).unwrap(), "é!");
        // A width there is not, and half of a surrogate pair.
        words(&mut memory, &[(NAME + layout.state, state(&layout, 3, true, true))]);
        assert_eq!(text(&memory, &layout, NAME), None);
        words(
            &mut memory,
            &[(NAME + layout.length, 1), (NAME + layout.state, state(&layout, 2, true, false))],
        );
        memory.put(NAME + layout.compact, &[0, 0xd8]);
        assert_eq!(text(&memory, &layout, NAME).unwrap(), "\u{fffd}");
    }

    fn of_3_12() -> Text {
        layout::of(3, 12).unwrap().text
    }

    #[test]
    fn a_threads_own_copy_of_the_instructions_has_the_same_lines() {
        let mut layout = layout::of(3, 12).unwrap();
        layout.code.copies = Some(0x200);
        let mut memory = process(&layout);
        let (array, copy) = (BASE + 0x800, BASE + 0x900);
        words(
            &mut memory,
            &[
                (CODE + 0x200, array),
                (array, 2),
                (array + 8, CODE + layout.code.instructions),
                (array + 16, copy),
            ],
        );
        let code = Code::read(&memory, &layout, CODE, seen(&memory, &layout), TYPES).unwrap();
        assert_eq!(code.line(&memory, &layout, copy + 6), Some(12));
        assert_eq!(code.line(&memory, &layout, copy + 60), None);
    }

    proptest! {
        #[test]
        fn any_memory_gives_a_function_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0x800), minor in 8u8..=12, instruction in any::<u64>(),
            pointers in prop::collection::vec((0u64..0xf0, 0u64..0x800), 0..12),
        ) {
            let mut layout = layout::of(3, minor).unwrap();
            layout.code.copies = Some(0x200);
            let mut memory = Fake { base: BASE, bytes };
            words(&mut memory, &pointers.iter().map(|(at, to)| (CODE + at / 8 * 8, BASE + to)).collect::<Vec<_>>());
            let seen = seen(&memory, &layout);
            if let Some(code) = Code::read(&memory, &layout, CODE, seen, Types::default()) {
                let _ = code.line(&memory, &layout, instruction);
            }
        }
    }
}
