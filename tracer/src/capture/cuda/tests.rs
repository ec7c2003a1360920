//! Driver libraries made by hand, mapped into this process.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use object::elf::{
    EM_X86_64, ET_DYN, FileHeader64, PF_R, PF_X, PT_LOAD, ProgramHeader64, SHT_DYNSYM, SHT_STRTAB,
    STB_GLOBAL, STT_FUNC, SectionHeader64, Sym64,
};
use object::endian::{LittleEndian as L, U16, U32, U64};
use object::pod::{bytes_of, bytes_of_slice};
use proptest::prelude::*;

use super::*;

const CODE: u64 = 0x1000;
const CODE_ADDRESS: u64 = 0x41000;

/// A shared library that exports functions at these offsets into its code.
fn library(functions: &[(&str, u64)]) -> Vec<u8> {
    let mut names = vec![0];
    let mut symbols = vec![symbol(0, 0, 0)];
    for (name, offset) in functions {
        symbols.push(symbol(names.len() as u32, 1, CODE_ADDRESS + offset));
        names.extend(name.as_bytes());
        names.push(0);
    }
    let (header, segment) = (size_of::<FileHeader64<L>>(), size_of::<ProgramHeader64<L>>());
    let symbols_at = (header + segment) as u64;
    let symbols = bytes_of_slice(&symbols);
    let names_at = symbols_at + symbols.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let mut out = bytes_of(&FileHeader64::<L> {
        e_ident: object::elf::Ident {
            magic: object::elf::ELFMAG,
            class: object::elf::ELFCLASS64,
            data: object::elf::ELFDATA2LSB,
            version: object::elf::EV_CURRENT,
            os_abi: 0,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(L, ET_DYN),
        e_machine: U16::new(L, EM_X86_64),
        e_version: U32::new(L, 1),
        e_entry: U64::new(L, 0),
        e_phoff: U64::new(L, header as u64),
        e_shoff: U64::new(L, sections_at),
        e_flags: U32::new(L, 0),
        e_ehsize: U16::new(L, header as u16),
        e_phentsize: U16::new(L, segment as u16),
        e_phnum: U16::new(L, 1),
        e_shentsize: U16::new(L, size_of::<SectionHeader64<L>>() as u16),
        e_shnum: U16::new(L, 3),
        e_shstrndx: U16::new(L, 2),
    })
    .to_vec();
    out.extend(bytes_of(&ProgramHeader64::<L> {
        p_type: U32::new(L, PT_LOAD),
        p_flags: U32::new(L, PF_R | PF_X),
        p_offset: U64::new(L, CODE),
        p_vaddr: U64::new(L, CODE_ADDRESS),
        p_paddr: U64::new(L, 0),
        p_filesz: U64::new(L, 0x1000),
        p_memsz: U64::new(L, 0x1000),
        p_align: U64::new(L, 0x1000),
    }));
    out.extend(symbols);
    out.extend(&names);
    out.resize(sections_at as usize, 0);
    out.extend(bytes_of(&section(0, 0, 0, 0)));
    out.extend(bytes_of(&section(SHT_DYNSYM, symbols_at, symbols.len() as u64, 2)));
    out.extend(bytes_of(&section(SHT_STRTAB, names_at, names.len() as u64, 0)));
    out.resize((CODE + 0x1000) as usize, 0xc3);
    out
}

fn symbol(name: u32, section: u16, value: u64) -> Sym64<L> {
    Sym64 {
        st_name: U32::new(L, name),
        st_info: STB_GLOBAL << 4 | STT_FUNC,
        st_other: 0,
        st_shndx: U16::new(L, section),
        st_value: U64::new(L, value),
        st_size: U64::new(L, 1),
    }
}

fn section(kind: u32, offset: u64, size: u64, link: u32) -> SectionHeader64<L> {
    SectionHeader64 {
        sh_name: U32::new(L, 0),
        sh_type: U32::new(L, kind),
        sh_flags: U64::new(L, 0),
        sh_addr: U64::new(L, 0),
        sh_offset: U64::new(L, offset),
        sh_size: U64::new(L, size),
        sh_link: U32::new(L, link),
        sh_info: U32::new(L, 0),
        sh_addralign: U64::new(L, 1),
        sh_entsize: U64::new(L, if kind == SHT_DYNSYM { size_of::<Sym64<L>>() as u64 } else { 0 }),
    }
}

fn read(bytes: &[u8]) -> Result<Library, LibraryError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Library::read(file, PathBuf::from("/opt/libcuda.so.1"), 7)
}

fn offsets(library: &Library) -> Vec<(&str, u64)> {
    library.entry_points.iter().map(|e| (e.name, e.file_offset)).collect()
}

const DRIVER: &[(&str, u64)] = &[
    ("cuLaunchKernel", 0x10),
    ("cuInit", 0x20),
    ("cuStreamSynchronize", 0x30),
    ("cuStreamSynchronize_ptsz", 0x30),
    ("cuMemcpyDtoH_v2", 0x5000),
    ("cuMemsetD8Async", 0x40),
];

#[test]
fn entry_points_are_found_at_their_file_offsets() {
    let library = read(&library(DRIVER)).unwrap();
    let found = offsets(&library);
    // `_ptsz` lies on the same byte; the copy lies in no segment that is loaded.
    assert_eq!(
        found,
        [("cuLaunchKernel", 0x1010), ("cuStreamSynchronize", 0x1030), ("cuMemsetD8Async", 0x1040)]
    );
    assert!(library.missing.contains(&"cuMemcpyDtoH_v2"));
    assert!(!library.missing.contains(&"cuStreamSynchronize_ptsz"));
    assert_eq!(
        library.entry_points.len() + 1 + library.missing.len(),
        names().filter(|n| !n.name.starts_with("nccl")).count()
    );
    let sync = &library.entry_points[1];
    assert_eq!((name(sync.id).unwrap().name, sync.wants_return), ("cuStreamSynchronize", true));
}

#[test]
fn what_is_no_driver_is_named_with_the_reason() {
    for (bytes, reason) in [
        (b"".to_vec(), "not an ELF file"),
        (b"#!/bin/sh\n".to_vec(), "not an ELF file"),
        (library(&[("main", 0)]), "exports none of the functions that are probed"),
        (library(DRIVER)[..100].to_vec(), "damaged ELF file"),
    ] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("/opt/libcuda.so.1 (mapped by process 7): "), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn claimed_sizes_allocate_nothing() {
    let mut bytes = library(DRIVER);
    let at = bytes.windows(8).position(|w| w == (120u64).to_le_bytes()).unwrap();
    let size = at + 8;
    bytes[size..size + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(&bytes).unwrap();
    file.set_len(1 << 42).unwrap();
    let error = Library::read(file, PathBuf::from("/x"), 1).unwrap_err();
    assert!(matches!(error, LibraryError::Elf { .. }), "{error}");
}

proptest! {
    #[test]
    fn damaged_libraries_are_read_without_panic(
        at in any::<prop::sample::Index>(),
        with in proptest::collection::vec(any::<u8>(), 1..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = library(DRIVER);
        // All but the code, which nobody reads.
        let at = at.index(0x300);
        bytes[at..at + with.len()].copy_from_slice(&with);
        drop(read(&bytes));
        drop(read(&bytes[..cut.index(bytes.len())]));
    }
}

/// Every test of this process sees the mappings of all others, so only one may make some at a time.
static MAPPING: Mutex<()> = Mutex::new(());

/// A file mapped executable into this process, until dropped.
struct Mapped(*mut core::ffi::c_void);

impl Mapped {
    fn new(path: &Path) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = File::open(path).unwrap();
        // SAFETY: a fresh mapping at an address of the kernel's choice, which nothing reads.
        let at = unsafe {
            mmap(std::ptr::null_mut(), 0x2000, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, &file, 0)
        };
        Self(at.unwrap())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nothing points into it.
        unsafe { rustix::mm::munmap(self.0, 0x2000) }.unwrap();
    }
}

#[test]
fn a_mapped_driver_is_found_once_whatever_its_name() {
    let _alone = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("libcuda.so.1"), folder.path().join("libcuda.so"));
    fs::write(&path, library(DRIVER)).unwrap();
    fs::hard_link(&path, &other).unwrap();
    fs::write(folder.path().join("libcudart.so.12"), library(DRIVER)).unwrap();
    let mut libraries = Libraries::default();
    assert!(libraries.scan([own, u32::MAX]).is_empty());
    assert_eq!(libraries.users().count(), 0);

    let _maps = [&path, &other, &folder.path().join("libcudart.so.12")].map(|p| Mapped::new(p));
    // The first of these names in the table of mappings is any of the two.
    let found = libraries.scan([own]);
    assert_eq!(found.len(), 1, "{found:?}");
    let library = found.into_iter().next().unwrap().unwrap();
    assert!(library.path == path || library.path == other, "{}", library.path.display());
    assert_eq!((library.pid, library.entry_points.len()), (own, 3));
    assert_eq!(fs::read(library.attach_path()).unwrap(), fs::read(&path).unwrap());
    assert_eq!(libraries.users().collect::<Vec<_>>(), [own]);
    for _ in 0..100 {
        assert!(libraries.scan([own]).is_empty());
    }
    assert!(libraries.scan([]).is_empty());
    assert_eq!(libraries.users().count(), 0);
}

#[test]
fn a_deleted_driver_can_still_be_attached_to() {
    let _alone = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.580.1");
    fs::write(&path, library(DRIVER)).unwrap();
    let _map = Mapped::new(&path);
    fs::remove_file(&path).unwrap();
    let found = Libraries::default().scan([std::process::id()]);
    let of_path: Vec<_> = found
        .iter()
        .filter(|f| match f {
            Ok(library) => library.path == path,
            Err(LibraryError::Open { path: tried, .. }) => *tried == path,
            Err(_) => false,
        })
        .collect();
    match of_path[..] {
        [Ok(library)] => assert_eq!(fs::read(library.attach_path()).unwrap(), self::library(DRIVER)),
        // `map_files` is for root only.
        [Err(LibraryError::Open { .. })] if !rustix::process::geteuid().is_root() => {}
        _ => panic!("{found:?}"),
    }
}
