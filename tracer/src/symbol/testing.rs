//! For fuzzing: what is asked of files that belong to the watched processes.

use std::fs::File;
use std::io::Write;

use rustix::fs::MemfdFlags;

use super::{elf, native, perf_map};

/// Asks an ELF file of these bytes all that is ever asked of one.
///
/// # Panics
/// No file can be made in memory.
pub fn elf(bytes: &[u8]) {
    let mut file =
        File::from(rustix::fs::memfd_create("elf", MemfdFlags::CLOEXEC).expect("a file in memory"));
    file.write_all(bytes).expect("a file in memory takes bytes");
    let again = || file.try_clone().expect("a descriptor");
    drop(elf::build_id(again()));
    drop(elf::debug_bytes(again()));
    drop(elf::segments(again()));
    drop(elf::addresses(again(), [b"_PyRuntime", b"Py_Version"]));
    let mut offsets = vec![0, 0x40, 0x1000, 0x1139];
    drop(elf::exports(again(), &mut |export| {
        if offsets.len() < 64 {
            offsets.push(export.file_offset);
        }
    }));
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    native::name_offsets(path.as_ref(), &offsets);
    native::name_virtual(path.as_ref(), &offsets);
}

/// Reads a perf map of these bytes.
pub fn perf_map(bytes: &[u8]) {
    drop(perf_map::parse(bytes, &[0, 0x1000, 0x1001, u64::MAX]));
}
