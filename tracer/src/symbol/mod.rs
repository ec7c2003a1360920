//! Names for addresses: kernel, native (ELF, DWARF). Resolved into the trace when recording ends.
//!
//! While recording, [`Mappings`] keeps what an address needs once its process is gone: where which file was
//! mapped. At the end [`resolve`] names every distinct address once. An address that cannot be named keeps
//! its module, its offset and the reason.

mod debug_dirs;
mod demangle;
pub(crate) mod elf;
mod files;
mod kernel;
mod mappings;
pub(crate) mod maps;
mod native;
mod perf_map;
mod ranges;
#[doc(hidden)]
pub mod testing;

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::Path;

use crate::trace::{Frame, Mapping, Stack, StackKind, Symbol};

pub use debug_dirs::{DebugDirs, unnamed};
pub use mappings::Mappings;

use files::Files;
use perf_map::PerfMaps;

/// `Mapping::path` of executable memory without a file.
pub const ANONYMOUS: &str = "[anon]";
/// How the `path` of such memory begins where its maker gave it a name.
const NAMED_ANONYMOUS: &str = "[anon:";
/// `Mapping::path` of the kernel's code in user space.
pub const VDSO: &str = "[vdso]";
/// `Symbol::module` of kernel addresses.
pub const KERNEL: &str = "[kernel]";

/// What became of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    /// Innermost first.
    Frames(Vec<Frame>),
    Unknown(String),
}

/// Names every distinct address of the stacks, sorted by (kind, pid, image, address): the same input and the same
/// files give the same names. Files are found through the processes that still live, else by path, and only
/// taken if their build id is the mapping's.
///
/// All addresses but a user stack's innermost are return addresses and looked up one byte before; the key
/// stays the address as recorded.
#[must_use]
pub fn resolve<S: Borrow<Stack>>(stacks: &[S], mappings: &[Mapping]) -> Vec<Symbol> {
    resolve_with(stacks, mappings, &Files::default(), &PerfMaps::default())
}

fn resolve_with<S: Borrow<Stack>>(
    stacks: &[S],
    mappings: &[Mapping],
    files: &Files,
    perf_maps: &PerfMaps,
) -> Vec<Symbol> {
    let (mut of_kernel, mut of_processes) = (BTreeMap::new(), BTreeMap::new());
    for stack in stacks {
        let stack = stack.borrow();
        for (depth, &address) in stack.addresses.iter().enumerate() {
            let returns = depth > 0;
            match stack.kind {
                StackKind::Kernel => *of_kernel.entry(address).or_insert(false) |= returns,
                StackKind::User => {
                    *of_processes.entry((stack.pid, stack.image, address)).or_insert(false) |= returns;
                }
            }
        }
    }
    let mut symbols = kernel::resolve(&of_kernel);
    symbols.extend(native::resolve(&of_processes, mappings, files, perf_maps));
    symbols
}

/// The address to look up: a return address may be the first byte of the next line, or of the next function.
fn looked_up(address: u64, returns: bool) -> u64 {
    address.saturating_sub(u64::from(returns))
}

fn symbol(kind: StackKind, (pid, image): (u32, u32), address: u64, named: Named) -> Symbol {
    let (frames, reason) = match named {
        Named::Frames(frames) => (frames, String::new()),
        Named::Unknown(reason) => (Vec::new(), reason),
    };
    Symbol {
        kind,
        pid,
        image,
        address,
        frames,
        module: String::new(),
        file_offset: 0,
        build_id: Vec::new(),
        reason,
    }
}

/// Whether a mapping of this path holds code made at run time.
fn made_at_run_time(path: &str) -> bool {
    path == ANONYMOUS || path.starts_with(NAMED_ANONYMOUS)
}

fn module(path: &str) -> String {
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| path.to_owned())
}
