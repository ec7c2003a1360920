//! CUDA driver calls by uprobe. One record per silence or per long call, never one per launch.

mod arguments;
mod calls;
mod collective;
mod context;
mod runs;
mod thread;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_attach_cookie, bpf_ktime_get_ns};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use tracer_ebpf::wire::cuda::{cookie, family, layout, shape};

use super::fault::current_target;
use crate::globals::{constant_cookie, setting};
use crate::maps::CALLS;

pub use thread::exits;

/// An entry whose return is not looked for: what returns at once by definition.
#[uprobe]
pub fn cuda_submit(ctx: ProbeContext) -> u32 {
    entered(&ctx, false)
}

#[uprobe]
pub fn cuda_enter(ctx: ProbeContext) -> u32 {
    entered(&ctx, true)
}

#[uretprobe]
pub fn cuda_return(ctx: RetProbeContext) -> u32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    let row = row(cookie(&ctx) as u32);
    // SAFETY: the context's own registers; helpers without arguments.
    unsafe {
        if shape_of(row) >= shape::COLLECTIVE {
            collective::returned(&ctx, tid, pid);
        } else if let Some(s) = thread::known(tid) {
            let (height, result) = ((*ctx.regs).rsp, (*ctx.regs).rax as i32);
            // At its return the stack is one word shorter than at its entry; nested calls end lower.
            if (*s).sp != 0 && height == (*s).sp + 8 {
                calls::returned(&ctx, s, result, bpf_ktime_get_ns());
            }
        }
    }
    0
}

#[inline(always)]
fn entered(ctx: &ProbeContext, returns: bool) -> u32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    let cookie = cookie(ctx);
    let row = row(cookie as u32);
    if shape_of(row) >= shape::COLLECTIVE {
        collective::entered(ctx, tid, pid, row, cookie as u32);
        return 0;
    }
    let Some(s) = thread::state(tid, pid) else { return 0 };
    // SAFETY: a live element of the running thread, the context's own registers.
    unsafe {
        let height = (*ctx.regs).rsp;
        let now = bpf_ktime_get_ns();
        if calls::nested(s, height) {
            return 0;
        }
        calls::overtaken(s, now);
        (*s).what.family = (cookie >> cookie::FAMILY_SHIFT & cookie::FAMILY_MASK) as u32;
        (*s).what.id = cookie as u32;
        arguments::read(ctx.regs, s, row);
        match (*s).what.family {
            family::LAUNCH | family::GRAPH_LAUNCH | family::COPY | family::MEMSET => runs::count(ctx, s, now),
            family::SET_CONTEXT => context::entered(s),
            _ if shape_of(row) == shape::RECORD => calls::recorded(s, now),
            _ if shape_of(row) == shape::EVENT => calls::asks_of_event(s),
            _ => {}
        }
        if returns {
            calls::entered(ctx, s, height, now, cookie & cookie::NO_RETURN != 0);
        }
    }
    0
}

#[inline(always)]
fn cookie(ctx: &impl EbpfContext) -> u64 {
    if setting!(have_cookie) == 0 {
        return constant_cookie();
    }
    // SAFETY: the program's own context.
    unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }
}

/// Where the arguments of an entry point lie.
#[inline(always)]
fn row(id: u32) -> u64 {
    if id >= layout::ROWS { 0 } else { CALLS.get(id).copied().unwrap_or(0) }
}

#[inline(always)]
fn shape_of(row: u64) -> u64 {
    row >> layout::SHAPE & 31
}

/// Copies the arguments in registers and, where some lie there, those on the stack.
///
/// # Safety
/// `to` has sixteen words.
#[inline(always)]
unsafe fn fetch(regs: *const pt_regs, to: *mut u64, row: u64) {
    // SAFETY: by contract; the source on the stack is checked by the helper.
    unsafe {
        let r = &*regs;
        for (i, word) in [r.rdi, r.rsi, r.rdx, r.rcx, r.r8, r.r9].into_iter().enumerate() {
            to.add(i + 1).write(word);
        }
        if row & layout::ON_STACK != 0 {
            // Above the return address.
            let from = (r.rsp + 8) as *const _;
            aya_ebpf::helpers::generated::bpf_probe_read_user(to.add(7).cast(), 40, from);
        }
    }
}

/// The argument a nibble of the row names, 0 for none.
///
/// # Safety
/// `arguments` has sixteen words, the first of them 0.
#[inline(always)]
unsafe fn argument(arguments: *const u64, row: u64, place: u32) -> u64 {
    // SAFETY: by contract.
    unsafe { arguments.add((row >> place & 15) as usize).read() }
}
