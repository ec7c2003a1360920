//! What of an ELF file unwinding needs: where its code is loaded, and the sections that describe its frames.

use object::Endianness;
use object::elf::{
    EM_X86_64, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED, SHF_EXECINSTR, SHT_NOBITS,
};
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use super::UnwindError;

const PAGE: u64 = 4096;

type Header = FileHeader64<Endianness>;

/// A section in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
}

/// An executable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A section of code, of which the bytes are read where they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeSection {
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Where an object's code is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) segments: Vec<Segment>,
    /// Page of the lowest executable byte: rows count from here.
    pub(crate) base: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image<'a> {
    pub(crate) base: u64,
    /// Address of `.text`, for encodings relative to it.
    pub(crate) text: u64,
    pub(crate) eh_frame: Option<Section<'a>>,
    pub(crate) debug_frame: Option<Section<'a>>,
    pub(crate) code: Vec<CodeSection>,
}

impl Code {
    /// # Errors
    /// Not an ELF file for x86-64 with code in it.
    pub(crate) fn read<'a>(data: impl ReadRef<'a>) -> Result<Self, UnwindError> {
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        if header.e_machine.get(endian) != EM_X86_64 || endian != Endianness::Little {
            return Err(UnwindError::OtherMachine);
        }
        let segments: Vec<Segment> = header
            .program_headers(endian, data)?
            .iter()
            .filter(|s| s.p_type(endian) == PT_LOAD && s.p_flags(endian) & PF_X != 0)
            .map(|s| Segment {
                address: s.p_vaddr(endian),
                offset: s.p_offset(endian),
                size: s.p_filesz(endian),
            })
            .collect();
        let base = segments.iter().map(|s| s.address & !(PAGE - 1)).min().ok_or(UnwindError::NoCode)?;
        Ok(Self { segments, base })
    }

    /// What the kernel side takes from an address of a mapping that starts at `start` with the file's byte
    /// `offset`, to have a row's `pc`.
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| {
            let first = s.offset & !(PAGE - 1);
            s.offset.checked_add(s.size).is_some_and(|end| (first..end).contains(&offset))
        })?;
        let address = segment.address.wrapping_sub(segment.offset).wrapping_add(offset);
        Some(start.wrapping_sub(address.wrapping_sub(self.base)))
    }
}

impl<'a> Image<'a> {
    /// # Errors
    /// Not an ELF file for x86-64 with code in it, or its headers are damaged.
    pub(crate) fn read(data: impl ReadRef<'a>) -> Result<Self, UnwindError> {
        let code = Code::read(data)?;
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let mut image = Self { base: code.base, ..Self::default() };
        if let Ok(sections) = header.sections(endian, data) {
            for section in sections.iter() {
                let Ok(name) = sections.section_name(endian, section) else { continue };
                let address = section.sh_addr(endian);
                let plain = section.sh_flags(endian) & u64::from(SHF_COMPRESSED) == 0
                    && section.sh_type(endian) != SHT_NOBITS;
                let read = || Some(Section { address, bytes: section.data(endian, data).ok()? });
                if plain && section.sh_flags(endian) & u64::from(SHF_EXECINSTR) != 0 {
                    let (offset, size) = (section.sh_offset(endian), section.sh_size(endian));
                    image.code.push(CodeSection { address, offset, size });
                }
                match name {
                    b".text" => image.text = address,
                    b".eh_frame" if plain => image.eh_frame = read(),
                    // An executable's or library's own, not of a file of debug information beside it.
                    b".debug_frame" if plain => image.debug_frame = read(),
                    _ => {}
                }
            }
        }
        if image.eh_frame.is_none() {
            image.eh_frame = by_header(header, endian, data).ok().flatten();
        }
        Ok(image)
    }
}

/// `.eh_frame` of a file without sections: its header is a segment, and says where it begins. It ends with its
/// terminator, at the latest with its segment.
fn by_header<'a>(
    header: &Header,
    endian: Endianness,
    data: impl ReadRef<'a>,
) -> Result<Option<Section<'a>>, UnwindError> {
    let segments = header.program_headers(endian, data)?;
    let Some(found) = segments.iter().find(|s| s.p_type(endian) == PT_GNU_EH_FRAME) else { return Ok(None) };
    let bytes = found.data(endian, data).unwrap_or_default();
    let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(found.p_vaddr(endian));
    let parsed = gimli::EhFrameHdr::new(bytes, gimli::LittleEndian).parse(&bases, 8);
    let address = parsed.map_err(UnwindError::Frames)?.eh_frame_ptr().pointer();
    let held = segments.iter().filter(|s| s.p_type(endian) == PT_LOAD).find_map(|s| {
        let within = address.checked_sub(s.p_vaddr(endian)).filter(|w| *w < s.p_filesz(endian))?;
        let offset = s.p_offset(endian).checked_add(within)?;
        data.read_bytes_at(offset, s.p_filesz(endian) - within).ok()
    });
    Ok(held.map(|bytes| Section { address, bytes }))
}
