//! Names for addresses: kernel, native (ELF, DWARF). Resolved into the trace when recording ends.

pub(crate) mod elf;
pub(crate) mod maps;
