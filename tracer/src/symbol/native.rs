//! Names of user addresses: by offset in the file that was mapped, each offset once for all processes.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};

use super::demangle::demangle;
use super::files::{FileName, Files};
use super::perf_map::PerfMaps;
use super::ranges::Ranges;
use super::{Named, VDSO, elf, looked_up, made_at_run_time, maps, module, symbol};
use crate::trace::{Frame, Mapping, StackKind, Symbol};

/// Debug information beyond this is left alone, and names come from the symbol table: packed sections are
/// unpacked into memory.
const DEBUG_BYTES: u64 = 1 << 30;

/// Addresses that lie in one file.
#[derive(Default)]
struct InFile<'a> {
    mappings: Vec<&'a Mapping>,
    /// By offset in the file, which symbols of the result lie there.
    offsets: BTreeMap<u64, Vec<usize>>,
}

/// `addresses`: by (pid, image, address), whether it is a return address. The result is in their order.
pub(super) fn resolve(
    addresses: &BTreeMap<(u32, u32, u64), bool>,
    mappings: &[Mapping],
    files: &Files,
    perf_maps: &PerfMaps,
) -> Vec<Symbol> {
    let mut ranges: HashMap<(u32, u32), Ranges> = HashMap::new();
    let mut newest: HashMap<u32, u32> = HashMap::new();
    for mapping in mappings {
        ranges.entry((mapping.pid, mapping.image)).or_default().insert(mapping);
        newest.insert(mapping.pid, mapping.image);
    }
    let mut symbols = Vec::with_capacity(addresses.len());
    let mut by_file: BTreeMap<FileName, InFile> = BTreeMap::new();
    // By process, for its newest program: looked-up address, and which symbols of the result lie there.
    let mut made: BTreeMap<u32, BTreeMap<u64, Vec<usize>>> = BTreeMap::new();
    for (&(pid, image, address), &returns) in addresses {
        let lookup = looked_up(address, returns);
        let mut symbol = symbol(StackKind::User, (pid, image), address, Named::Frames(Vec::new()));
        match ranges.get(&(pid, image)).map(|ranges| ranges.find(lookup)) {
            None => {
                symbol.reason =
                    "the process ended before its mappings were read, or ran another program by then"
                        .to_owned();
            }
            Some(None) => {
                symbol.reason = "no executable mapping holds this address: a broken frame-pointer chain, or \
                                 code that is mapped no more"
                    .to_owned();
            }
            Some(Some(mapping)) => {
                symbol.module = module(&mapping.path);
                symbol.file_offset = (lookup - mapping.start).saturating_add(mapping.offset);
                symbol.build_id = mapping.build_id.clone();
                if made_at_run_time(&mapping.path) {
                    if newest.get(&pid) != Some(&image) {
                        symbol.reason = "code made at run time, of a program that is gone".to_owned();
                        symbols.push(symbol);
                        continue;
                    }
                    made.entry(pid).or_default().entry(lookup).or_default().push(symbols.len());
                    symbols.push(symbol);
                    continue;
                }
                let file = by_file.entry((mapping.path.clone(), mapping.build_id.clone())).or_default();
                if file.mappings.last().is_none_or(|last| !std::ptr::eq(*last, mapping)) {
                    file.mappings.push(mapping);
                }
                file.offsets.entry(symbol.file_offset).or_default().push(symbols.len());
            }
        }
        symbols.push(symbol);
    }
    for ((path, _), file) in by_file {
        let offsets: Vec<_> = file.offsets.keys().copied().collect();
        let named = match path.as_str() {
            VDSO => name_vdso(&offsets),
            path if path.starts_with('/') => match files.find(&file.mappings) {
                Ok(path) => name_offsets(&path, &offsets),
                Err(reason) => vec![Named::Unknown(reason); offsets.len()],
            },
            other => vec![Named::Unknown(format!("{other} is no file")); offsets.len()],
        };
        put(&mut symbols, &file.offsets, named);
    }
    for (pid, places) in made {
        let addresses: Vec<_> = places.keys().copied().collect();
        put(&mut symbols, &places, perf_maps.name(pid, &addresses));
    }
    symbols
}

/// `named` has an answer for each of `places`, in order.
fn put(symbols: &mut [Symbol], places: &BTreeMap<u64, Vec<usize>>, named: Vec<Named>) {
    for (places, named) in places.values().zip(named) {
        for &place in places {
            match &named {
                Named::Frames(frames) => symbols[place].frames.clone_from(frames),
                Named::Unknown(reason) => symbols[place].reason.clone_from(reason),
            }
        }
    }
}

/// One answer for each offset in the file.
pub(super) fn name_offsets(path: &Path, offsets: &[u64]) -> Vec<Named> {
    name_in(path, Input::FileOffset(offsets))
}

/// One answer for each address, as the file counts them.
pub(super) fn name_virtual(path: &Path, addresses: &[u64]) -> Vec<Named> {
    name_in(path, Input::VirtOffset(addresses))
}

fn name_in(path: &Path, input: Input<&[u64]>) -> Vec<Named> {
    let count = input.as_inner_ref().len();
    let debug = File::open(path).ok().and_then(|file| elf::debug_bytes(file).ok()).unwrap_or(u64::MAX);
    let ask = |debug_syms| {
        let mut source = Elf::new(path);
        source.debug_syms = debug_syms;
        symbolize(&Source::from(source), input, count)
    };
    let table = ask(false);
    // Debug information that cannot be read must not take the symbol table's names with it.
    let with_lines = if debug > DEBUG_BYTES { None } else { ask(true).ok() };
    match (with_lines, table) {
        (Some(lines), Ok(table)) => lines.into_iter().zip(table).map(|(l, t)| fuller(l, t)).collect(),
        (Some(lines), Err(_)) => lines,
        (None, Ok(table)) => table,
        (None, Err(reason)) => vec![Named::Unknown(reason); count],
    }
}

/// Line tables alone hold bare function names (`resize_`); the symbol table then has the path as well.
fn fuller(mut lines: Named, table: Named) -> Named {
    match (&mut lines, &table) {
        (Named::Frames(lines), Named::Frames(table)) => {
            if let (Some(bare), Some(full)) = (lines.last_mut(), table.last())
                && full.function.contains("::")
                && full.function.contains(&bare.function)
            {
                bare.function.clone_from(&full.function);
            }
            Named::Frames(std::mem::take(lines))
        }
        (Named::Unknown(_), Named::Frames(_)) => table,
        _ => lines,
    }
}

/// The kernel maps the same code into every process, this one too.
fn name_vdso(offsets: &[u64]) -> Vec<Named> {
    let Some(own) = maps::own_vdso() else {
        return vec![Named::Unknown("this process has no vDSO to compare".into()); offsets.len()];
    };
    let size = own.end - own.start;
    let mut source = Process::new(Pid::Slf);
    (source.perf_map, source.debug_syms) = (false, false);
    // An offset past the end cannot come from this kernel's vDSO; its start is no function, so stays unnamed.
    let addresses: Vec<_> =
        offsets.iter().map(|offset| own.start + if *offset < size { *offset } else { 0 }).collect();
    symbolize(&Source::from(source), Input::AbsAddr(&addresses), addresses.len())
        .unwrap_or_else(|reason| vec![Named::Unknown(reason); offsets.len()])
}

/// # Errors
/// In words, for all of them.
fn symbolize(source: &Source, input: Input<&[u64]>, count: usize) -> Result<Vec<Named>, String> {
    // The files are the watched processes': a parser's panic on one must cost that file's names only. A fresh
    // symbolizer for each file also gives the memory of the last one back.
    let named = catch_unwind(AssertUnwindSafe(|| {
        let symbolizer = Symbolizer::builder().enable_demangling(false).build();
        let named = symbolizer.symbolize(source, input).map_err(|e| e.to_string())?;
        Ok(named.into_iter().map(one).collect::<Vec<_>>())
    }));
    let named = named.unwrap_or_else(|_| Err("the file's symbols are damaged".to_owned()))?;
    if named.len() == count { Ok(named) } else { Err("the file's symbols are damaged".to_owned()) }
}

fn one(symbolized: Symbolized) -> Named {
    match symbolized {
        Symbolized::Unknown(reason) => Named::Unknown(words(reason).to_owned()),
        Symbolized::Sym(sym) if sym.name.is_empty() => Named::Unknown("a function without a name".into()),
        Symbolized::Sym(sym) => Named::Frames(frames(&sym)),
    }
}

fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidFileOffset => "the address lies in no code of this file",
        Reason::MissingSyms => "the file is stripped: only its exported functions have names",
        Reason::UnknownAddr => "no function of this file's symbols holds the address",
        Reason::Unmapped | Reason::MissingComponent => "not mapped any more",
        Reason::Unsupported => "a kind of file whose symbols cannot be read",
        _ => "the file's symbols cannot be read",
    }
}

fn frames(sym: &Sym) -> Vec<Frame> {
    let frame = |name: &str, info: Option<&CodeInfo>| Frame {
        function: demangle(name),
        file: info.map(|info| info.to_path().to_string_lossy().into_owned()),
        line: info.and_then(|info| info.line),
    };
    let outermost = frame(&sym.name, sym.code_info.as_deref());
    let inlined = sym.inlined.iter().rev().map(|f| frame(&f.name, f.code_info.as_ref()));
    inlined.chain([outermost]).collect()
}
