//! Names in this process, in the kernel, and in programs compiled here.

mod debug_files;
mod program;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::trace::StackEnd;
use program::Program;

fn user(addresses: &[u64]) -> Stack {
    Stack {
        id: 1,
        kind: StackKind::User,
        pid: std::process::id(),
        image: 0,
        addresses: addresses.to_vec(),
        end: StackEnd::Unknown,
        python: 0,
    }
}

fn names(symbol: &Symbol) -> Vec<&str> {
    symbol.frames.iter().map(|f| f.function.as_str()).collect()
}

#[inline(never)]
fn known_function() -> u64 {
    std::hint::black_box(known_function as fn() -> u64 as usize as u64)
}

#[test]
fn own_functions_have_names_lines_and_build_ids() {
    let address = known_function();
    let mut mappings = Mappings::default();
    let new = mappings.see(1, &user(&[address]));
    assert_eq!(new.len(), 1);
    assert!((new[0].start..new[0].end).contains(&address));
    assert_eq!(mappings.see(2, &user(&[address])), [], "one record a mapping");
    for symbols in [mappings.resolve(&[user(&[address])]), resolve(&[user(&[address])], &new)] {
        let [symbol] = &symbols[..] else { panic!("{symbols:?}") };
        assert_eq!((symbol.kind, symbol.address), (StackKind::User, address));
        let outermost = symbol.frames.last().unwrap();
        assert_eq!(outermost.function, "whyidle::symbol::tests::known_function");
        assert!(outermost.file.as_ref().unwrap().ends_with("src/symbol/tests/mod.rs"));
        assert!(outermost.line.is_some());
        assert_eq!(symbol.build_id, new[0].build_id);
        assert!(Path::new(&new[0].path).ends_with(&symbol.module));
        assert_eq!(symbol.file_offset, address - new[0].start + new[0].offset);
    }
}

#[test]
fn the_first_byte_after_a_call_is_looked_up_in_the_call() {
    let address = known_function();
    let mut mappings = Mappings::default();
    mappings.see(1, &user(&[address]));
    let symbols = mappings.resolve(&[user(&[address + 1, address])]);
    assert_eq!(symbols[0].address, address);
    assert!(!names(&symbols[0]).contains(&"whyidle::symbol::tests::known_function"), "{symbols:?}");
    assert_eq!(symbols[1].frames.last().unwrap().function, "whyidle::symbol::tests::known_function");
}

#[test]
fn addresses_without_a_file_say_what_they_are() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let (at, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice, which nothing reads.
    let jit = unsafe { mmap_anonymous(at, 0x1000, ProtFlags::READ | ProtFlags::EXEC, flags) }.unwrap();
    let mut mappings = Mappings::default();
    let stack = user(&[0x10, jit as u64 + 5]);
    assert_eq!(mappings.see(1, &stack)[0].path, ANONYMOUS);
    let symbols = mappings.resolve(std::slice::from_ref(&stack));
    assert!(symbols[0].reason.contains("no executable mapping"), "{:?}", symbols[0]);
    assert_eq!((symbols[1].module.as_str(), symbols[1].address), (ANONYMOUS, jit as u64 + 5));
    assert!(symbols[1].reason.contains("JIT"));
    // SAFETY: mapped above with this length, and nothing points into it.
    unsafe { munmap(jit, 0x1000) }.unwrap();
    let gone = resolve(&[stack], &[]);
    assert!(gone.iter().all(|s| s.reason.contains("ended before")), "{gone:?}");
}

#[test]
fn the_vdso_is_named() {
    let mut vdso = None;
    maps::read(std::process::id(), |line| {
        if line.name == VDSO.as_bytes() {
            vdso = Some((line.start, line.end));
        }
    })
    .unwrap();
    let (start, end) = vdso.unwrap();
    let stacks: Vec<_> = (start..end).step_by(16).map(|a| user(&[a])).collect();
    let mut mappings = Mappings::default();
    stacks.iter().for_each(|s| drop(mappings.see(1, s)));
    let symbols = mappings.resolve(&stacks);
    assert!(symbols.iter().all(|s| s.module == VDSO));
    assert!(symbols.iter().flat_map(names).any(|name| name.contains("clock_gettime")), "{symbols:?}");
}

#[test]
fn kernel_functions_are_named_or_the_reason_given() {
    let text = fs::read_to_string("/proc/kallsyms").unwrap();
    let line = text.lines().find(|l| l.ends_with(" T schedule")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let addresses = vec![address + 4, address + 6];
    let symbols = resolve(
        &[Stack {
            id: 1,
            kind: StackKind::Kernel,
            pid: 0,
            image: 0,
            addresses,
            end: StackEnd::Unknown,
            python: 0,
        }],
        &[],
    );
    assert_eq!(symbols.len(), 2);
    for symbol in &symbols {
        assert_eq!((symbol.pid, symbol.module.as_str()), (0, KERNEL));
        if address == 0 {
            assert!(symbol.reason.contains("kallsyms"), "{symbol:?}");
        } else {
            assert_eq!(names(symbol), ["schedule"]);
        }
    }
}

#[test]
fn a_process_in_nonsense_is_not_read_again_and_again() {
    let mut mappings = Mappings::default();
    let second = 1_000_000_000;
    let before = |mappings: &Mappings| mappings.read_again(std::process::id());
    for (at, next) in [(0, 1), (second / 2, 1), (second, 3), (2 * second, 3), (3 * second, 7)] {
        assert_eq!(mappings.see(at, &user(&[0x10])), []);
        assert_eq!(before(&mappings), next * second);
    }
    mappings.exec(std::process::id(), 1, 3 * second);
    let of_the_next = Stack { image: 1, ..user(&[known_function()]) };
    assert_eq!(mappings.see(3 * second, &of_the_next).len(), 1);
}

#[test]
fn a_program_is_not_named_by_the_one_after_it() {
    let (pid, second) = (std::process::id(), 1_000_000_000);
    let (first, next) = (user(&[known_function()]), Stack { image: 1, ..user(&[known_function()]) });
    let names = |mappings: &Mappings, stack: &Stack| {
        let symbols = mappings.resolve(std::slice::from_ref(stack));
        symbols.iter().any(|s| !s.frames.is_empty())
    };
    // Read long before the next program began: kept, and not read again.
    let mut mappings = Mappings::default();
    assert_eq!(mappings.see(second, &first).len(), 1);
    mappings.exec(pid, 1, 2 * second);
    assert_eq!(mappings.see(2 * second, &first), []);
    assert_eq!((names(&mappings, &first), names(&mappings, &next)), (true, false));
    assert_eq!(mappings.see(2 * second, &next).len(), 1);
    assert_eq!((names(&mappings, &first), names(&mappings, &next)), (true, true));
    // Read when the next one may have been there already.
    let mut mappings = Mappings::default();
    assert_eq!(mappings.see(second, &first).len(), 1);
    mappings.exec(pid, 1, second + 1_000_000);
    assert_eq!((mappings.stored(), names(&mappings, &first)), (&[][..], false));
    // Not read in time.
    let mut mappings = Mappings::default();
    mappings.exec(pid, 1, second);
    assert_eq!(mappings.see(second, &first), []);
    assert!(!names(&mappings, &first));
    // The id is another process's now, which has run as many programs.
    mappings.exit(pid);
    assert_eq!(mappings.see(3 * second, &first).len(), 1);
}

#[test]
fn inlined_functions_are_frames_of_their_own() {
    let mut program = Program::start(&["-O1", "-g", "-Wl,--build-id"]);
    let mut mappings = Mappings::default();
    let stack = program.stack();
    let stored = mappings.see(1, &stack);
    assert!(
        stored.iter().all(|m| m.build_id.len() == 20 && Path::new(&m.path) == program.path),
        "{stored:?}"
    );
    let alive = mappings.resolve(std::slice::from_ref(&stack));
    let of = |symbols: &[Symbol], at: usize| {
        symbols.iter().find(|s| s.address == program.addresses[at]).unwrap().clone()
    };
    assert_eq!(names(&of(&alive, 0)), ["leaf", "middle"]);
    let returns = of(&alive, 1);
    assert_eq!(names(&returns), ["main"]);
    assert_eq!(returns.frames[0].line, Some(10));
    assert_eq!(returns.module, "prog");
    assert_eq!(returns.file_offset, program.addresses[1] - 1 - stored[0].start + stored[0].offset);

    // The same after its end, and after the file is gone.
    assert_eq!(resolve(std::slice::from_ref(&stack), &stored), alive);
    program.end();
    assert_eq!(resolve(std::slice::from_ref(&stack), &stored), alive);
    fs::remove_file(&program.path).unwrap();
    assert_eq!(mappings.resolve(std::slice::from_ref(&stack)), alive);
    let gone = resolve(std::slice::from_ref(&stack), &stored);
    for (gone, alive) in gone.iter().zip(&alive) {
        assert_eq!(gone.frames, []);
        assert!(gone.reason.contains("No such file"), "{gone:?}");
        assert_eq!((&gone.module, gone.file_offset), (&alive.module, alive.file_offset));
        assert_eq!(gone.build_id, alive.build_id);
    }
    fs::copy(std::env::current_exe().unwrap(), &program.path).unwrap();
    assert!(resolve(&[stack], &stored)[0].reason.contains("build id differs"));
}

#[test]
fn a_stripped_program_says_so() {
    let program = Program::start(&["-O1", "-s", "-Wl,--build-id"]);
    let mut mappings = Mappings::default();
    let stack = program.stack();
    mappings.see(1, &stack);
    for symbol in mappings.resolve(&[stack]) {
        assert_eq!(symbol.frames, []);
        assert_ne!(symbol.reason, "");
        assert_eq!(symbol.module, "prog");
    }
}

/// The program's bytes, and offsets into its code.
fn program_file() -> (Vec<u8>, Vec<u64>) {
    let program = Program::start(&["-O1", "-g", "-gz"]);
    let mut mappings = Mappings::default();
    let stack = program.stack();
    mappings.see(1, &stack);
    let offsets = mappings.resolve(&[stack]).iter().map(|s| s.file_offset).collect();
    (fs::read(&program.path).unwrap(), offsets)
}

#[test]
fn damaged_files_cost_names_only() {
    let (bytes, offsets) = program_file();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prog");
    let names = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        native::name_offsets(&path, &offsets)
    };
    assert!(names(&bytes).iter().all(|n| matches!(n, Named::Frames(_))));
    for junk in [&b""[..], b"\x7fELF", &bytes[..64], &[0xff; 4096]] {
        let named = names(junk);
        assert!(named.len() == offsets.len() && named.iter().all(|n| matches!(n, Named::Unknown(_))));
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let damage = (
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 1..9),
        any::<prop::sample::Index>(),
    );
    runner
        .run(&(damage, any::<bool>()), |((at, with, cut), cutting)| {
            let mut damaged = bytes.clone();
            // Headers, symbols and debug information; the end holds the section table.
            let at = at.index(damaged.len() - with.len());
            damaged[at..at + with.len()].copy_from_slice(&with);
            if cutting {
                damaged.truncate(cut.index(bytes.len()));
            }
            prop_assert_eq!(names(&damaged).len(), offsets.len());
            Ok(())
        })
        .unwrap();
}
