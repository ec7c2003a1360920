//! Names from files with debug information for programs that lack it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::*;
use super::Program;

fn tool(name: &str, arguments: &[&std::ffi::OsStr]) {
    assert!(Command::new(name).args(arguments).status().unwrap().success(), "{name} {arguments:?}");
}

/// What naming gives for a program whose own file is stripped, by the files that are in the folder.
fn from_folder(stack: &Stack, stored: &[Mapping], folder: &Path) -> Vec<Symbol> {
    let stripped = resolve(std::slice::from_ref(stack), stored);
    assert!(stripped.iter().all(|s| s.frames.is_empty()), "{stripped:?}");
    let known = |key| stripped.iter().find(|s| (s.pid, s.image, s.address) == key);
    let folders = DebugDirs::open(&[folder.to_owned()]).unwrap();
    let mut named = folders.name(&unnamed(&[stack], stored, known));
    // A recording that was cut has no symbols at all.
    let mut cut = folders.name(&unnamed(&[stack], stored, |_| None));
    named.sort_by_key(|s| s.address);
    cut.sort_by_key(|s| s.address);
    assert_eq!(named, cut);
    named
}

/// A program with debug information that has ended: its stack and mappings, and what naming gave while it ran.
fn ended(layout: &[&str]) -> (Program, Stack, Vec<Mapping>, Vec<Symbol>) {
    let mut program = Program::start(&[&["-O1", "-g", "-Wl,--build-id"], layout].concat());
    let mut mappings = Mappings::default();
    let stack = program.stack();
    let stored = mappings.see(1, &stack);
    let whole = mappings.resolve(std::slice::from_ref(&stack));
    program.end();
    (program, stack, stored, whole)
}

#[test]
fn debuginfo_files_name_what_a_stripped_program_cannot() {
    // With an offset in the file that is the address, and with one that is not.
    for layout in [&[][..], &["-Wl,-z,noseparate-code"], &["-Wl,-Ttext-segment=0x4000000", "-no-pie"]] {
        let (program, stack, stored, whole) = ended(layout);
        let folder = tempfile::tempdir().unwrap();
        let (path, debug) = (program.path.as_os_str(), folder.path().join("any-name"));
        tool("objcopy", &["--only-keep-debug".as_ref(), path, debug.as_os_str()]);
        let full = folder.path().join("full");
        fs::copy(&program.path, &full).unwrap();
        fs::remove_file(&program.path).unwrap();
        tool("strip", &["-o".as_ref(), path, full.as_os_str()]);
        fs::remove_file(&full).unwrap();

        let check = |named: Vec<Symbol>| {
            assert_eq!(named.len(), 2, "{layout:?}");
            for (named, whole) in named.iter().zip(&whole) {
                assert_eq!((&named.frames, &named.reason), (&whole.frames, &whole.reason), "{layout:?}");
                assert_eq!((named.file_offset, &named.build_id), (whole.file_offset, &whole.build_id));
            }
        };
        check(from_folder(&stack, &stored, folder.path()));

        // As distributions lay them out.
        let id: String = stored[0].build_id.iter().map(|b| format!("{b:02x}")).collect();
        let place = folder.path().join(".build-id").join(&id[..2]);
        fs::create_dir_all(&place).unwrap();
        let placed = place.join(format!("{}.debug", &id[2..]));
        fs::rename(&debug, &placed).unwrap();
        check(from_folder(&stack, &stored, folder.path()));

        // Another program's file under this one's name has nothing to say.
        fs::copy(std::env::current_exe().unwrap(), &placed).unwrap();
        assert_eq!(from_folder(&stack, &stored, folder.path()), []);
    }
}

#[test]
fn the_program_itself_is_a_debug_file_and_damaged_ones_are_none() {
    let (program, stack, stored, whole) = ended(&[]);
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(&program.path).unwrap();
    fs::remove_file(&program.path).unwrap();
    for (name, content) in [("junk", &[0x7f; 99][..]), ("cut", &bytes[..bytes.len() / 3]), ("empty", &[])] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    assert_eq!(from_folder(&stack, &stored, folder.path()), []);
    fs::write(folder.path().join("prog"), &bytes).unwrap();
    let named = from_folder(&stack, &stored, folder.path());
    assert_eq!(named, whole);
    let missing = DebugDirs::open(&[folder.path().join("none")]).unwrap_err();
    assert_eq!(missing.1.kind(), std::io::ErrorKind::NotFound);
}
