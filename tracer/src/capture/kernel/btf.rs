//! What the running kernel looks like, from its own type information: field offsets, tracepoint prototypes,
//! helpers. Nothing is assumed that is not found here.

use std::fmt;
use std::path::Path;

use btf_rs::{Btf, BtfType, Struct, Type};
use tracer_ebpf::wire::{FIELDS, Field, MISSING};

use super::CaptureError;

/// Where kernels publish their type information.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The running kernel's types.
pub struct Kernel {
    btf: Btf,
    /// Offsets in the order of [`FIELDS`].
    offsets: Vec<u32>,
    helpers: Vec<String>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("offsets", &self.offsets).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Reads the running kernel's BTF.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn running() -> Result<Self, CaptureError> {
        Self::from_file(Path::new(VMLINUX))
    }

    /// # Errors
    /// The file is not there or is no BTF.
    pub fn from_file(path: &Path) -> Result<Self, CaptureError> {
        if !path.exists() {
            return Err(CaptureError::NoBtf { path: path.to_owned() });
        }
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| CaptureError::Kernel {
            what: format!("reading {}", path.display()),
            source,
        };
        // In one go: sysfs answers many small reads slowly.
        let bytes = std::fs::read(path).map_err(|e| failed(e.into()))?;
        let btf = Btf::from_bytes(&bytes).map_err(|e| failed(e.into()))?;
        let offsets = FIELDS.iter().map(|f| field_offset(&btf, f).unwrap_or(MISSING)).collect();
        let helpers = enum_names(&btf, "bpf_func_id");
        Ok(Self { btf, offsets, helpers })
    }

    /// Byte offsets in the order of [`FIELDS`], [`MISSING`] where the kernel has no such field.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    #[must_use]
    pub fn has_field(&self, name: &str) -> bool {
        FIELDS.iter().zip(&self.offsets).any(|(f, o)| f.name == name && *o != MISSING)
    }

    /// Whether BPF programs may call `bpf_<name>`.
    #[must_use]
    pub fn has_helper(&self, name: &str) -> bool {
        self.helpers.iter().any(|h| h.strip_prefix("BPF_FUNC_") == Some(name))
    }

    /// Number of arguments a tracepoint passes, `None` if there is no such tracepoint. Decides between
    /// variants of a program; versions do not, since distributions carry changes back.
    #[must_use]
    pub fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        let types = self.btf.resolve_types_by_name(&format!("btf_trace_{name}")).ok()?;
        types.iter().find_map(|t| {
            let Type::Typedef(typedef) = t else { return None };
            self.btf.chained_type_iter(typedef).find_map(|t| match t {
                // The first is the probe's own data.
                Type::FuncProto(proto) => proto.parameters.len().checked_sub(1),
                _ => None,
            })
        })
    }

    /// Whether a structure has a member, dots descending.
    #[must_use]
    pub fn has_member(&self, structure: &str, path: &str) -> bool {
        structure_named(&self.btf, structure).is_some_and(|s| descend(&self.btf, &s, path).is_some())
    }

    /// Size of a structure in bytes.
    #[must_use]
    pub fn size_of(&self, structure: &str) -> Option<usize> {
        structure_named(&self.btf, structure).map(|s| s.size())
    }
}

fn structure_named(btf: &Btf, name: &str) -> Option<Struct> {
    let types = btf.resolve_types_by_name(name).ok()?;
    types.into_iter().find_map(|t| match t {
        Type::Struct(s) if !s.members.is_empty() => Some(s),
        _ => None,
    })
}

fn field_offset(btf: &Btf, field: &Field) -> Option<u32> {
    let structure = structure_named(btf, field.structure)?;
    field.paths.iter().find_map(|path| {
        let bits = descend(btf, &structure, path)?;
        // A bit field has no address.
        bits.is_multiple_of(8).then_some(bits / 8)
    })
}

/// Bit offset of a dotted path, looking through anonymous members.
fn descend(btf: &Btf, structure: &Struct, path: &str) -> Option<u32> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
    structure.members.iter().find_map(|member| {
        let name = btf.resolve_name(member).unwrap_or_default();
        if name.is_empty() {
            let inner = aggregate(btf, member)?;
            return descend(btf, &inner, path).map(|bits| member.bit_offset() + bits);
        }
        if name != head || member.bitfield_size().is_some_and(|size| size != 0) {
            return None;
        }
        match rest {
            None => Some(member.bit_offset()),
            Some(rest) => {
                let inner = aggregate(btf, member)?;
                descend(btf, &inner, rest).map(|bits| member.bit_offset() + bits)
            }
        }
    })
}

/// The structure or union a member is, through typedefs and qualifiers but not through pointers.
fn aggregate(btf: &Btf, member: &dyn BtfType) -> Option<Struct> {
    for t in btf.chained_type_iter(member) {
        match t {
            Type::Struct(s) | Type::Union(s) => return Some(s),
            Type::Ptr(_) => return None,
            _ => {}
        }
    }
    None
}

fn enum_names(btf: &Btf, name: &str) -> Vec<String> {
    let types = btf.resolve_types_by_name(name).unwrap_or_default();
    types
        .iter()
        .filter_map(|t| match t {
            Type::Enum(e) => Some(e),
            _ => None,
        })
        .flat_map(|e| e.members.iter().filter_map(|m| btf.resolve_name(m).ok()))
        .collect()
}
