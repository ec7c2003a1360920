use std::arch::asm;
use std::collections::HashMap;
use std::fs::File;

use proptest::prelude::*;
use tracer_ebpf::wire::Row;
use tracer_ebpf::wire::unwind::rule;

use super::rule::{Cfa, Frame, packed};
use super::*;
use crate::symbol::elf;
use crate::symbol::maps::{self, MapsLine};

const BUDGET: u64 = 512 << 20;

/// Code and rows of what this process has mapped, by file.
type Tables = HashMap<Vec<u8>, (Code, Vec<Row>)>;

fn table(line: &MapsLine) -> Option<(Code, Vec<Row>)> {
    let file = File::open(line.path()).ok()?;
    elf::bounded(file, BUDGET, |data| {
        Some((Code::read(data).ok()?, rows(&Image::read(data).ok()?, data).ok()?))
    })
}

fn own() -> (Vec<MapsLine>, Tables) {
    let mut lines = Vec::new();
    maps::read(std::process::id(), |line| lines.push(line)).unwrap();
    lines.retain(|line| line.executable && line.is_file());
    let tables = lines.iter().filter_map(|line| Some((line.name.clone(), table(line)?))).collect();
    (lines, tables)
}

/// The kernel side's walk, over this thread's own memory.
fn walk(mut ip: u64, mut sp: u64, mut bp: u64) -> (Vec<u64>, &'static str) {
    let (lines, tables) = own();
    let mut frames = Vec::new();
    // SAFETY: the tests walk their own stacks, which are mapped up to where their threads start.
    let word = |at: u64| unsafe { (at as *const u64).read() };
    loop {
        frames.push(ip);
        let key = ip - u64::from(frames.len() > 1);
        let Some(line) = lines.iter().find(|l| (l.start..l.end).contains(&key)) else {
            return (frames, "code");
        };
        let Some((code, rows)) = tables.get(&line.name) else { return (frames, "a table") };
        let pc = (key - code.bias(line.start, line.offset).unwrap()) as u32;
        let row = rows[rows.partition_point(|row| row.pc <= pc) - 1].rule;
        let offset = (i64::from(row.cast_signed() >> rule::OFFSET_SHIFT) * 8).cast_unsigned();
        let add = u64::from(row >> rule::ADD_SHIFT & rule::ADD) * 8;
        let cfa = match row & rule::KIND {
            rule::SP => sp.wrapping_add(offset),
            rule::BP => bp.wrapping_add(offset),
            rule::AT_SP => word(sp.wrapping_add(offset)).wrapping_add(add),
            rule::AT_BP => word(bp.wrapping_add(offset)).wrapping_add(add),
            rule::START => return (frames, "start"),
            _ => return (frames, "a rule"),
        };
        assert!(cfa > sp && frames.len() < 500, "{frames:x?}");
        bp = match row & rule::FRAME {
            rule::FRAME_BELOW => word(cfa - u64::from(row >> rule::BELOW_SHIFT & rule::BELOW) * 8),
            rule::FRAME_AT_BP => word(bp),
            _ => bp,
        };
        (ip, sp) = (word(cfa - 8), cfa);
    }
}

#[inline(never)]
fn deep(depth: u32) -> (Vec<u64>, &'static str) {
    if depth > 0 {
        let mut walked = deep(depth - 1);
        // Not a tail call.
        walked.0.push(0);
        return walked;
    }
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
    }
    walk(ip, sp, bp)
}

#[test]
fn the_rows_of_this_program_lead_to_the_start_of_a_thread() {
    let walked = |depth| std::thread::spawn(move || deep(depth)).join().unwrap();
    let (short, long) = (walked(3), walked(13));
    assert_eq!((short.1, long.1), ("start", "start"));
    let frames = |(walked, _): &(Vec<u64>, _), depth| walked.len() - depth;
    assert_eq!(frames(&long, 13), frames(&short, 3) + 10, "each call is a frame");
}

// As assembly is written that needs its stack aligned, without a word on its frame.
std::arch::global_asm!(
    ".p2align 4",
    "whyidle_bare:",
    "push rbp",
    "mov rax, rsp",
    "sub rsp, 4",
    "and rsp, -64",
    "mov [rsp], rax",
    "mov rbp, rsp",
    "lea rsp, [rbp - 128]",
    "push rbx",
    "sub rsp, 56",
    "call rdi",
    "add rsp, 56",
    "pop rbx",
    "mov rsp, rbp",
    "pop rsp",
    "pop rbp",
    "ret",
    ".p2align 4",
);

unsafe extern "sysv64" {
    fn whyidle_bare(called: extern "sysv64" fn());
}

#[test]
fn functions_without_a_word_on_their_frames_are_walked_through() {
    static WALKED: std::sync::Mutex<Option<(usize, &str)>> = std::sync::Mutex::new(None);
    extern "sysv64" fn called() {
        let (frames, end) = deep(0);
        *WALKED.lock().unwrap() = Some((frames.len(), end));
    }
    let walked = || WALKED.lock().unwrap().take().unwrap();
    let run = |f: fn()| std::thread::spawn(f).join().unwrap();
    run(|| called());
    let plain = walked();
    // SAFETY: it keeps to the ABI.
    run(|| unsafe { whyidle_bare(called) });
    let bare = walked();
    assert_eq!((plain.1, bare.1), ("start", "start"));
    assert_eq!(bare.0, plain.0 + 1);
}

#[test]
fn rows_are_in_order_and_not_repeated() {
    let (_, tables) = own();
    assert!(tables.len() > 1);
    for (name, (_, rows)) in tables {
        let name = String::from_utf8_lossy(&name).into_owned();
        assert!(rows.len() > 10, "{name}: {} rows", rows.len());
        for pair in rows.windows(2) {
            assert!(pair[0].pc < pair[1].pc && pair[0].rule != pair[1].rule, "{name}: {pair:?}");
        }
        assert_eq!(rows.last().map(|r| r.rule), Some(rule::NONE), "{name}");
    }
}

#[test]
fn what_does_not_fit_a_rule_is_none() {
    let none = [
        packed(Cfa::Sp(12), Frame::Same),
        packed(Cfa::Sp(1 << 30), Frame::Same),
        packed(Cfa::Sp(16), Frame::Below(8 * 64)),
        packed(Cfa::Sp(16), Frame::Below(-8)),
        packed(Cfa::AtSp(16, 32), Frame::Same),
        packed(Cfa::Stub(16), Frame::Same),
    ];
    assert_eq!(none, [rule::NONE; 6]);
    let negative = packed(Cfa::AtBp(-8, 0), Frame::AtBp);
    assert_eq!(negative.cast_signed() >> rule::OFFSET_SHIFT, -1);
    assert_eq!(packed(Cfa::Sp(8 << 12), Frame::Below(16)) >> rule::OFFSET_SHIFT, 1 << 12);
}

#[test]
fn nonsense_is_an_error() {
    for bytes in [&b""[..], b"\x7fELF", &[0x7f; 4096]] {
        assert!(Image::read(bytes).is_err());
    }
    let image =
        Image { eh_frame: Some(image::Section { address: 0, bytes: &[0xff; 64] }), ..Image::default() };
    assert!(rows(&image, &[][..]).is_err());
}

fn vdso() -> Vec<u8> {
    let mut found = None;
    maps::read(std::process::id(), |line| {
        if line.name == b"[vdso]" {
            found = Some(line);
        }
    })
    .unwrap();
    let line = found.unwrap();
    // SAFETY: mapped for as long as the process lives.
    unsafe { std::slice::from_raw_parts(line.start as *const u8, (line.end - line.start) as usize).to_vec() }
}

#[test]
fn the_kernels_own_code_has_rows() {
    let bytes = vdso();
    let image = Image::read(bytes.as_slice()).unwrap();
    let rows = rows(&image, bytes.as_slice()).unwrap();
    assert!(rows.iter().any(|row| row.rule & rule::KIND == rule::SP), "{rows:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damage_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut bytes = vdso();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(image) = Image::read(bytes.as_slice())
            && let Ok(rows) = rows(&image, bytes.as_slice())
        {
            prop_assert!(rows.windows(2).all(|pair| pair[0].pc < pair[1].pc));
        }
    }

    #[test]
    fn frames_may_be_anything(bytes in prop::collection::vec(any::<u8>(), 0..2000), address in any::<u64>()) {
        let section = || Some(image::Section { address, bytes: &bytes });
        let image = Image { eh_frame: section(), debug_frame: section(), ..Image::default() };
        if let Ok(rows) = rows(&image, bytes.as_slice()) {
            prop_assert!(rows.windows(2).all(|pair| pair[0].pc < pair[1].pc));
        }
    }
}
