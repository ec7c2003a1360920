//! Copies of the object's uprobe programs. aya loads each once and attaches it to one offset at a time, which
//! takes the kernel a tenth of a second to undo. A copy of our own can be loaded for links of many offsets; on
//! kernels that have no cookies, one per entry point can hold its cookie as a constant; and as many as there are
//! classes of calls let the kernel's own run counts tell them apart.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya_obj::btf::FuncSecInfo;
use aya_obj::generated::{BPF_PSEUDO_MAP_VALUE, bpf_insn};
use aya_obj::{Object, ProgramSection};
use object::{Object as _, ObjectSymbol as _};

use super::load::{Globals, OBJECT};
use super::raw;

/// The uprobe programs of the object, ready to be loaded against the maps of a loaded one.
#[derive(Debug)]
pub(super) struct Copies {
    programs: HashMap<String, Prepared>,
    license: CString,
    globals: Globals,
    /// The section that holds them, and the map it was loaded as.
    globals_at: usize,
    globals_fd: RawFd,
    /// The object's, as the kernel has it; `None` where it has none.
    btf: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Prepared {
    instructions: Vec<bpf_insn>,
    functions: FuncSecInfo,
    record_bytes: usize,
    returns: bool,
}

/// A loaded copy. The map of its globals, where it has its own, lives as long as the program.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) program: OwnedFd,
    /// It runs when a function returns.
    pub(super) returns: bool,
}

impl Copies {
    /// # Errors
    /// The object does not fit the loaded one: a fault in this program.
    pub(super) fn new(ebpf: &Ebpf, globals: Globals) -> Result<Self, String> {
        let mut object = Object::parse(OBJECT).map_err(|e| e.to_string())?;
        let license = object.license.clone();
        let maps: HashMap<_, _> = std::mem::take(&mut object.maps);
        let mut fds = Vec::new();
        let mut globals_fd = None;
        let globals_at = globals_section()?;
        for (name, map) in &maps {
            let loaded = ebpf.map(name).and_then(fd).ok_or_else(|| format!("map {name} is not loaded"))?;
            if map.section_index() == globals_at {
                globals_fd = Some(loaded);
            }
            fds.push((name.as_str(), loaded, map));
        }
        let text = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(fds.into_iter(), &text).map_err(|e| e.to_string())?;
        object.relocate_calls(&text).map_err(|e| e.to_string())?;
        let mut programs = HashMap::new();
        for (name, program) in &object.programs {
            let returns = match program.section {
                ProgramSection::UProbe { .. } => false,
                ProgramSection::URetProbe { .. } => true,
                _ => continue,
            };
            let function = object.functions.get(&program.function_key()).ok_or("a program has no code")?;
            let instructions = function.instructions.clone();
            let (functions, record_bytes) = (function.func_info.clone(), function.func_info_rec_size);
            programs.insert(name.clone(), Prepared { instructions, functions, record_bytes, returns });
        }
        let globals_fd = globals_fd.ok_or("the object has no globals")?;
        Ok(Self { programs, license, globals, globals_at, globals_fd, btf: None })
    }

    /// Copies are loaded with the types that the object's own programs were loaded with.
    pub(super) fn take_types(&mut self, ebpf: &Ebpf) {
        let id = ebpf.programs().find_map(|(_, program)| program.info().ok()?.btf_id());
        self.btf = id.and_then(|id| raw::btf(id).ok()).map(Arc::new);
    }

    /// Loads a copy of `program`; with `multi` for links of many offsets, which not every kernel can tell from
    /// others when it loads it.
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) fn load(&self, program: &str, multi: bool) -> Result<Copy, String> {
        let prepared = self.prepared(program)?;
        self.load_instructions(program, &prepared.instructions, prepared, multi)
    }

    /// Loads a copy of `program` that takes `cookie` for its own wherever it is attached.
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) fn load_with_cookie(&self, program: &str, cookie: u64) -> Result<Copy, String> {
        let prepared = self.prepared(program)?;
        let map = self.globals_with(cookie)?;
        let mut instructions = prepared.instructions.clone();
        for instruction in &mut instructions {
            let value_of_globals = u32::from(instruction.src_reg()) == BPF_PSEUDO_MAP_VALUE
                && u32::from(instruction.code) == LD_IMM64
                && instruction.imm == self.globals_fd;
            if value_of_globals {
                instruction.imm = map.fd().as_fd().as_raw_fd();
            }
        }
        self.load_instructions(program, &instructions, prepared, false)
    }

    fn prepared(&self, program: &str) -> Result<&Prepared, String> {
        self.programs.get(program).ok_or_else(|| format!("the kernel object has no uprobe program {program}"))
    }

    fn load_instructions(
        &self,
        name: &str,
        instructions: &[bpf_insn],
        prepared: &Prepared,
        multi: bool,
    ) -> Result<Copy, String> {
        let types = self.btf.as_ref().map(|btf| raw::Types {
            btf: btf.clone(),
            functions: prepared.functions.func_info_bytes(),
            count: u32::try_from(prepared.functions.len()).unwrap_or(0),
            record_bytes: u32::try_from(prepared.record_bytes).unwrap_or(0),
        });
        let program = raw::load_uprobe(name, instructions, &self.license, types.as_ref(), multi)?;
        Ok(Copy { program, returns: prepared.returns })
    }

    /// The object's globals in a map of their own, with this cookie among them.
    fn globals_with(&self, cookie: u64) -> Result<MapData, String> {
        let mut object = Object::parse(OBJECT).map_err(|e| e.to_string())?;
        let cookie = cookie.to_ne_bytes();
        let mut patches = self.globals.bytes();
        patches.insert("COOKIE", (&cookie, true));
        object.patch_map_data(patches).map_err(|e| e.to_string())?;
        let map = object.maps.drain().find(|(_, map)| map.section_index() == self.globals_at);
        let (name, map) = map.ok_or("the object has no globals")?;
        let data = map.data().to_vec();
        let map = MapData::create(map, &name, None).map_err(|e| e.to_string())?;
        raw::seal_globals(map.fd().as_fd(), &data).map_err(|e| format!("globals of a program: {e}"))?;
        Ok(map)
    }
}

/// Index of the section that holds the globals; other constants have read-only sections, and so maps, of their own.
fn globals_section() -> Result<usize, String> {
    let object = object::File::parse(OBJECT).map_err(|e| e.to_string())?;
    let cookie = object.symbols().find(|symbol| symbol.name() == Ok("COOKIE"));
    let index = cookie.and_then(|symbol| symbol.section_index()).ok_or("the object has no cookie")?;
    Ok(index.0)
}

/// `BPF_LD | BPF_IMM | BPF_DW`.
const LD_IMM64: u32 = 0x18;

/// Of the kinds of maps that the object has.
fn fd(map: &Map) -> Option<RawFd> {
    let data = match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerCpuLruHashMap(data)
        | Map::PerfEventArray(data)
        | Map::RingBuf(data)
        | Map::StackTraceMap(data) => data,
        _ => return None,
    };
    Some(data.fd().as_fd().as_raw_fd())
}
