//! Names of kernel addresses, from `/proc/kallsyms`.

use std::collections::BTreeMap;

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::demangle::demangle;
use super::{KERNEL, Named, looked_up, symbol};
use crate::trace::{Frame, StackKind, Symbol};

/// `addresses`: whether each is a return address.
pub(super) fn resolve(addresses: &BTreeMap<u64, bool>) -> Vec<Symbol> {
    let lookups: Vec<_> = addresses.iter().map(|(address, returns)| looked_up(*address, *returns)).collect();
    let named = if lookups.is_empty() { Vec::new() } else { name(&lookups) };
    addresses
        .keys()
        .zip(named)
        .map(|(&address, named)| Symbol {
            module: KERNEL.to_owned(),
            ..symbol(StackKind::Kernel, (0, 0), address, named)
        })
        .collect()
}

fn name(lookups: &[u64]) -> Vec<Named> {
    // Only kallsyms: the debug information of a vmlinux would be gigabytes for lines nobody asked for.
    let source = Source::from(Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() });
    let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
    let named = symbolizer.symbolize(&source, Input::AbsAddr(lookups));
    match named {
        Ok(all) => all
            .into_iter()
            .map(|one| match one {
                Symbolized::Sym(sym) => {
                    Named::Frames(vec![Frame { function: demangle(&sym.name), file: None, line: None }])
                }
                Symbolized::Unknown(reason) => Named::Unknown(format!("not in /proc/kallsyms: {reason}")),
            })
            .collect(),
        Err(e) => {
            let reason =
                format!("/proc/kallsyms gives no addresses (not root, or kernel.kptr_restrict is 2): {e}");
            vec![Named::Unknown(reason); lookups.len()]
        }
    }
}
