//! What is asked of an ELF file directly: build id, exported functions, how much debug information it claims.
//!
//! Files belong to the watched processes, so nothing in them is believed: no read goes past a budget, whatever
//! lengths a header claims. Read, not mapped: a file that shrinks meanwhile then is an error, not a SIGBUS.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

use object::elf::{
    FileHeader32, FileHeader64, PF_X, PT_LOAD, SHF_COMPRESSED, SHF_EXECINSTR, SHN_UNDEF, SHT_DYNSYM,
    SHT_NOBITS, STT_FUNC, STT_OBJECT,
};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::read::{FileKind, ReadCache, ReadRef, StringTable};
use object::{Endianness, SectionIndex};

/// Bytes that may be read of one file. The dynamic symbols of the largest libraries take a few MiB.
const BUDGET: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    #[error("damaged ELF file: {0}")]
    Damaged(#[from] object::read::Error),
    #[error("no dynamic symbols")]
    NoDynamicSymbols,
}

/// An exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export<'a> {
    pub(crate) name: &'a [u8],
    /// Where its first byte lies in the file.
    pub(crate) file_offset: u64,
}

/// The GNU build id, empty where the file has none.
pub(crate) fn build_id(file: File) -> Result<Vec<u8>, ElfError> {
    open(file, &mut BuildId)
}

/// Bytes of debug information the file claims to hold, unpacked.
pub(crate) fn debug_bytes(file: File) -> Result<u64, ElfError> {
    open(file, &mut DebugBytes)
}

/// Calls `each` with every function the file exports.
pub(crate) fn exports(file: File, each: &mut dyn FnMut(Export)) -> Result<(), ElfError> {
    open(file, &mut Exports(each))
}

/// Where exported functions and variables lie, and where the file's first loaded byte does, as the file counts
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses<const N: usize> {
    /// In the order of the names.
    pub(crate) of: [Option<u64>; N],
    pub(crate) first: u64,
}

/// A loaded segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) executable: bool,
    /// Its bytes lie in this file; those of a program's debuginfo file do not.
    pub(crate) in_file: bool,
    /// As the file counts addresses.
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) align: u64,
}

/// In the order of the file's program headers, which is that of addresses.
pub(crate) fn segments(file: File) -> Result<Vec<Segment>, ElfError> {
    open(file, &mut Segments)
}

/// `None`: the file loads nothing.
pub(crate) fn addresses<const N: usize>(
    file: File,
    names: [&[u8]; N],
) -> Result<Option<Addresses<N>>, ElfError> {
    open(file, &mut Exported(names))
}

/// Something to do with an ELF file of either class.
trait Question {
    type Answer;
    fn ask<'a, E: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &Parsed<'a, E>,
    ) -> Result<Self::Answer, ElfError>;
}

struct Parsed<'a, E: FileHeader> {
    header: &'a E,
    endian: Endianness,
    data: Bounded<'a>,
}

impl<'a, E: FileHeader<Endian = Endianness>> Parsed<'a, E> {
    fn sections(&self) -> Result<SectionTable<'a, E, Bounded<'a>>, ElfError> {
        Ok(self.header.sections(self.endian, self.data)?)
    }

    /// Both tables at once: a read for each of some thousand names would cost more than all of it.
    fn dynamic_symbols(&self) -> Result<(&'a [E::Sym], StringTable<'a>), ElfError> {
        let (endian, sections) = (self.endian, self.sections()?);
        let table =
            sections.iter().find(|s| s.sh_type(endian) == SHT_DYNSYM).ok_or(ElfError::NoDynamicSymbols)?;
        let symbols: &'a [E::Sym] = table.data_as_array(endian, self.data)?;
        let names: &'a [u8] =
            sections.section(SectionIndex(table.sh_link(endian) as usize))?.data(endian, self.data)?;
        Ok((symbols, StringTable::new(names, 0, names.len() as u64)))
    }
}

/// Gives `ask` the file, of which it can read `budget` bytes.
pub(crate) fn bounded<R>(file: File, budget: u64, ask: impl for<'a> FnOnce(Bounded<'a>) -> R) -> R {
    let cache = ReadCache::new(file);
    let budget = Cell::new(budget);
    ask(Bounded { cache: &cache, budget: &budget })
}

fn open<Q: Question>(file: File, question: &mut Q) -> Result<Q::Answer, ElfError> {
    bounded(file, BUDGET, |data| match FileKind::parse(data) {
        Ok(FileKind::Elf64) => ask::<FileHeader64<Endianness>, Q>(data, question),
        Ok(FileKind::Elf32) => ask::<FileHeader32<Endianness>, Q>(data, question),
        _ => Err(ElfError::NotElf),
    })
}

fn ask<'a, E: FileHeader<Endian = Endianness>, Q: Question>(
    data: Bounded<'a>,
    question: &mut Q,
) -> Result<Q::Answer, ElfError> {
    let header = E::parse(data)?;
    let endian = header.endian()?;
    question.ask(&Parsed { header, endian, data })
}

struct BuildId;

impl Question for BuildId {
    type Answer = Vec<u8>;

    fn ask<'a, E: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &Parsed<'a, E>,
    ) -> Result<Vec<u8>, ElfError> {
        // A debuginfo file's program headers may tell where its notes lay in the program, so its sections count too.
        for segment in file.header.program_headers(file.endian, file.data)? {
            let notes = segment.notes(file.endian, file.data).ok().flatten();
            if let Some(id) = notes.and_then(|notes| in_notes(file.endian, notes)) {
                return Ok(id);
            }
        }
        for section in file.sections()?.iter() {
            let notes = section.notes(file.endian, file.data).ok().flatten();
            if let Some(id) = notes.and_then(|notes| in_notes(file.endian, notes)) {
                return Ok(id);
            }
        }
        Ok(Vec::new())
    }
}

fn in_notes<E: FileHeader>(endian: E::Endian, mut notes: NoteIterator<'_, E>) -> Option<Vec<u8>> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == object::elf::ELF_NOTE_GNU && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID {
            return Some(note.desc().to_vec());
        }
    }
    None
}

struct Segments;

impl Question for Segments {
    type Answer = Vec<Segment>;

    fn ask<'a, E: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &Parsed<'a, E>,
    ) -> Result<Vec<Segment>, ElfError> {
        let endian = file.endian;
        let code = file.sections()?.iter().any(|section| {
            let flags: u64 = section.sh_flags(endian).into();
            flags & u64::from(SHF_EXECINSTR) != 0 && section.sh_type(endian) != SHT_NOBITS
        });
        let loaded = file.header.program_headers(endian, file.data)?.iter();
        let loaded = loaded.filter(|s| s.p_type(endian) == PT_LOAD).map(|s| Segment {
            executable: s.p_flags(endian) & PF_X != 0,
            in_file: code,
            address: s.p_vaddr(endian).into(),
            size: s.p_memsz(endian).into(),
            align: s.p_align(endian).into(),
        });
        Ok(loaded.collect())
    }
}

struct DebugBytes;

impl Question for DebugBytes {
    type Answer = u64;

    fn ask<'a, E: FileHeader<Endian = Endianness>>(&mut self, file: &Parsed<'a, E>) -> Result<u64, ElfError> {
        let sections = file.sections()?;
        let mut total = 0u64;
        for section in sections.iter() {
            let name = sections.section_name(file.endian, section)?;
            if !name.starts_with(b".debug") && !name.starts_with(b".zdebug") {
                continue;
            }
            let flags: u64 = section.sh_flags(file.endian).into();
            let size = if flags & u64::from(SHF_COMPRESSED) == 0 {
                section.sh_size(file.endian).into()
            } else {
                match section.compression(file.endian, file.data)? {
                    Some((header, _, _)) => {
                        object::read::elf::CompressionHeader::ch_size(header, file.endian).into()
                    }
                    None => 0,
                }
            };
            total = total.saturating_add(size);
        }
        Ok(total)
    }
}

struct Exports<'f>(&'f mut dyn FnMut(Export));

impl Question for Exports<'_> {
    type Answer = ();

    fn ask<'a, E: FileHeader<Endian = Endianness>>(&mut self, file: &Parsed<'a, E>) -> Result<(), ElfError> {
        let endian = file.endian;
        let segments = file.header.program_headers(endian, file.data)?;
        let (symbols, names) = file.dynamic_symbols()?;
        for symbol in symbols {
            if symbol.st_type() != STT_FUNC || symbol.st_shndx(endian) == SHN_UNDEF {
                continue;
            }
            let Ok(name) = symbol.name(endian, names) else { continue };
            let value: u64 = symbol.st_value(endian).into();
            let Some(file_offset) = segments.iter().find_map(|s| executable_offset(s, endian, value)) else {
                continue;
            };
            (self.0)(Export { name, file_offset });
        }
        Ok(())
    }
}

struct Exported<'n, const N: usize>([&'n [u8]; N]);

impl<const N: usize> Question for Exported<'_, N> {
    type Answer = Option<Addresses<N>>;

    fn ask<'a, E: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &Parsed<'a, E>,
    ) -> Result<Self::Answer, ElfError> {
        let endian = file.endian;
        let mut segments = file.header.program_headers(endian, file.data)?.iter();
        let Some(first) = segments.find(|s| s.p_type(endian) == PT_LOAD) else { return Ok(None) };
        let (symbols, names) = file.dynamic_symbols()?;
        let mut of = [None; N];
        for symbol in symbols {
            if !matches!(symbol.st_type(), STT_OBJECT | STT_FUNC) || symbol.st_shndx(endian) == SHN_UNDEF {
                continue;
            }
            let Ok(name) = symbol.name(endian, names) else { continue };
            if let Some(i) = self.0.iter().position(|wanted| *wanted == name) {
                of[i].get_or_insert(symbol.st_value(endian).into());
            }
        }
        Ok(Some(Addresses { of, first: first.p_vaddr(endian).into() }))
    }
}

fn executable_offset<P: ProgramHeader<Endian = Endianness>>(
    segment: &P,
    endian: Endianness,
    address: u64,
) -> Option<u64> {
    let (start, size): (u64, u64) = (segment.p_vaddr(endian).into(), segment.p_filesz(endian).into());
    let within = address.checked_sub(start).filter(|within| *within < size)?;
    let loaded = segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0;
    let offset: u64 = segment.p_offset(endian).into();
    loaded.then(|| offset.checked_add(within)).flatten()
}

/// A file of which only so much can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded<'a> {
    cache: &'a ReadCache<File>,
    budget: &'a Cell<u64>,
}

impl Bounded<'_> {
    fn spend(self, bytes: u64) -> Result<(), ()> {
        self.budget.set(self.budget.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.spend(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // What the cache reads at most.
        self.spend(4096)?;
        self.cache.read_bytes_at_until(range, delimiter)
    }
}
