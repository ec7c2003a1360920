//! Walks user stacks by tables of unwind rules, for code that keeps no frame pointers.
//!
//! The functions without a mangled name are global ones for the verifier: it walks each once a program, not once
//! a call. They may only take numbers, so what a walk knows lies in a map, by `slot`.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use tracer_ebpf::wire::unwind::{
    CHUNK_MAPPINGS, CHUNK_ROWS, NO_OBJECT, SEGMENT_CHUNKS, TRAMPOLINE, end, rule,
};
use tracer_ebpf::wire::{Chunk, MAX_FRAMES, MISSING, Mapped, Row, Table, Walk};

use crate::globals::offset;
use crate::maps::{BLANK_WALK, LAYOUTS, POOL, TABLES, WALKS};
use crate::task::{Current, Regs, probe};

/// Row 0 for programs under the run-queue locks (interrupts off), row 1 for the perf events, which may come on
/// top of the others but not of one another.
#[map]
static ROWS: PerCpuArray<Walk> = PerCpuArray::with_max_entries(2, 0);

pub const LOCKED: u32 = 0;
pub const PERF: u32 = 1;
/// With a thread id, for programs that may be preempted.
const THREAD: u32 = 1 << 31;

/// Halvings that find one of `MAPPINGS`, and one of a pool's chunks.
const MAPPING_STEPS: u32 = 10;
const CHUNK_STEPS: u32 = 21;
/// What a frame pointer may span.
const FRAME_BYTES: u64 = 1 << 20;
/// Probed returns of one thread that are looked through.
const RETURNS: u32 = 16;

/// Of the kernel's signal frame: `struct rt_sigframe` without its return address.
const SIGNAL_BP: u64 = 120;
const SIGNAL_SP: u64 = 160;
const SIGNAL_IP: u64 = 168;

#[inline(always)]
pub fn walk(slot: u32) -> Option<*mut Walk> {
    if slot & THREAD == 0 { ROWS.get_ptr_mut(slot) } else { WALKS.get_ptr_mut(slot & !THREAD) }
}

/// Changes with everything that stacks are walked by.
#[inline(always)]
pub fn tables() -> u32 {
    TABLES.get(NO_OBJECT).map_or(0, |t| t.base)
}

/// The slot of a thread of its own.
#[inline(always)]
pub fn thread_slot(tid: u32) -> Option<u32> {
    if WALKS.get_ptr_mut(tid).is_none() {
        WALKS.insert(tid, BLANK_WALK.get(0)?, BPF_ANY.into()).ok()?;
    }
    Some(THREAD | tid)
}

/// Walks the running task's user stack into the slot's record; `false` where nothing is known of its process.
///
/// # Safety
/// `w` is what `walk` gives for `slot`, `regs` belongs to the running task.
#[inline(always)]
pub unsafe fn by_tables(w: *mut Walk, slot: u32, regs: Regs, pid: u32) -> bool {
    // SAFETY: copied out at once.
    let Some(layout) = (unsafe { LAYOUTS.get(pid) }).copied() else { return false };
    // SAFETY: by contract.
    unsafe {
        (*w).layout = layout;
        (*w).mapping.start = 0;
        (*w).mapping.end = 0;
        (*w).ip = regs.ip();
        (*w).sp = regs.sp();
        (*w).bp = regs.bp();
        (*w).exact = 1;
        (*w).guessed = 0;
        (*w).out.frames = 0;
        let end = unwind_walk(slot);
        (*w).out.end = if end == end::START && (*w).guessed != 0 { end::GUESSED } else { end };
    }
    true
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_walk(slot: u32) -> u32 {
    for _ in 0..MAX_FRAMES {
        let end = unwind_step(slot);
        if end != end::UNKNOWN {
            return end;
        }
    }
    end::DEPTH
}

/// Writes the frame down and goes on to its caller's; why it cannot, or `UNKNOWN`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_step(slot: u32) -> u32 {
    let Some(w) = walk(slot) else { return end::NO_RULE };
    // SAFETY: a live element that nobody else writes now.
    unsafe {
        let mapped = unwind_place(slot);
        let n = (&raw const (*w).out.frames).read_volatile();
        if n >= MAX_FRAMES as u32 {
            return end::DEPTH;
        }
        (&raw mut (*w).out.addresses).cast::<u64>().add(n as usize).write_volatile((*w).ip);
        (&raw mut (*w).out.frames).write_volatile(n + 1);
        if mapped == 0 {
            return end::NO_MAPPING;
        }
        let rule = unwind_rule(slot);
        let (sp, bp) = ((&raw const (*w).sp).read_volatile(), (&raw const (*w).bp).read_volatile());
        let offset = (((rule as i32) >> rule::OFFSET_SHIFT) as i64 * 8) as u64;
        let add = u64::from(rule >> rule::ADD_SHIFT & rule::ADD) * 8;
        let cfa = match rule & rule::KIND {
            rule::SP => sp.wrapping_add(offset),
            rule::BP => bp.wrapping_add(offset),
            rule::AT_SP => match word(sp.wrapping_add(offset)) {
                Some(base) => base.wrapping_add(add),
                None => return end::UNREADABLE,
            },
            rule::AT_BP => match word(bp.wrapping_add(offset)) {
                Some(base) => base.wrapping_add(add),
                None => return end::UNREADABLE,
            },
            rule::STUB => {
                let past = ((*w).ip & 15) * 8 >= offset;
                sp.wrapping_add(8).wrapping_add(u64::from(past) * 8)
            }
            rule::SIGNAL => return signal(w, sp),
            rule::START => return end::START,
            _ => return unwind_frame_pointer(slot),
        };
        if cfa <= sp {
            return end::NO_RULE;
        }
        let caller = match rule & rule::FRAME {
            rule::FRAME_BELOW => {
                word(cfa.wrapping_sub(u64::from(rule >> rule::BELOW_SHIFT & rule::BELOW) * 8))
            }
            rule::FRAME_AT_BP => word(bp),
            rule::FRAME_LOST => Some(0),
            _ => Some(bp),
        };
        let (Some(ip), Some(bp)) = (word(cfa.wrapping_sub(8)), caller) else { return end::UNREADABLE };
        // The outermost frame of a thread has a rule that says so: this one is a coroutine's, or the rule is wrong.
        if ip == 0 {
            return end::NO_RULE;
        }
        (*w).ip = ip;
        (*w).sp = cfa;
        (*w).bp = bp;
        (*w).exact = 0;
    }
    end::UNKNOWN
}

/// Where a function whose return is probed will really return to, known by where its return address lay.
#[inline(always)]
fn returned_to(slot: u64) -> Option<u64> {
    if offset!(task_utask) == MISSING || offset!(utask_returns) == MISSING || offset!(return_next) == MISSING
    {
        return None;
    }
    let utask: u64 = Current::get().load(offset!(task_utask));
    let mut at: u64 = probe(utask as *const u8, offset!(utask_returns))?;
    for _ in 0..RETURNS {
        if probe::<u64>(at as *const u8, offset!(return_sp))? == slot {
            return probe(at as *const u8, offset!(return_ip));
        }
        at = probe(at as *const u8, offset!(return_next))?;
    }
    None
}

/// # Safety
/// `w` is a live element.
#[inline(always)]
unsafe fn signal(w: *mut Walk, sp: u64) -> u32 {
    let (Some(ip), Some(bp), Some(sp)) = (
        word(sp.wrapping_add(SIGNAL_IP)),
        word(sp.wrapping_add(SIGNAL_BP)),
        word(sp.wrapping_add(SIGNAL_SP)),
    ) else {
        return end::UNREADABLE;
    };
    // SAFETY: by contract. The stack may be another one now.
    unsafe {
        (*w).ip = ip;
        (*w).sp = sp;
        (*w).bp = bp;
        (*w).exact = 1;
    }
    end::UNKNOWN
}

/// Code without rules: its frame pointer is believed where it leads up the stack and to code.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_frame_pointer(slot: u32) -> u32 {
    let Some(w) = walk(slot) else { return end::NO_RULE };
    // SAFETY: a live element that nobody else writes now.
    unsafe {
        let stopped = if (*w).has_table == 0 { end::NO_TABLE } else { end::NO_RULE };
        let bp = (*w).bp;
        (*w).guessed |= (*w).pending;
        // The processes' ABI: the outermost frame has none.
        if bp == 0 && (*w).exact == 0 {
            return end::START;
        }
        if bp & 7 != 0 || bp < (*w).sp || bp - (*w).sp > FRAME_BYTES {
            return stopped;
        }
        let (Some(caller), Some(ip)) = (word(bp), word(bp.wrapping_add(8))) else { return stopped };
        (*w).ip = ip;
        (*w).exact = 0;
        (*w).sp = bp.wrapping_add(16);
        (*w).bp = caller;
        if unwind_place(slot) == 0 {
            return stopped;
        }
    }
    end::UNKNOWN
}

/// Finds the mapping that the walk's address lies in; 0 where there is none. Where that is the trampoline of probed
/// returns, known or too new to be, it is the address that the function will really return to.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_place(slot: u32) -> u32 {
    let Some(w) = walk(slot) else { return 0 };
    let mapped = unwind_mapping(slot);
    // SAFETY: a live element that nobody else writes now.
    unsafe {
        if mapped != 0 && (*w).mapping.object != TRAMPOLINE {
            return 1;
        }
        for i in 0..2 {
            let sp = (*w).sp.wrapping_add(i * PUSHED);
            if let Some(ip) = returned_to(sp.wrapping_sub(8)) {
                (*w).ip = ip;
                (*w).sp = sp;
                return unwind_mapping(slot);
            }
            // Only where the thread is in the trampoline itself.
            if (*w).exact == 0 {
                break;
            }
        }
    }
    mapped
}

/// What the trampoline of probed returns keeps on the stack around its system call (since 6.11).
const PUSHED: u64 = 24;

/// Finds the mapping that the walk's address lies in; 0 where there is none.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_mapping(slot: u32) -> u32 {
    let Some(w) = walk(slot) else { return 0 };
    // SAFETY: a live element that nobody else writes now; the bounds of the search lie in memory, where the
    // verifier does not follow their values.
    unsafe {
        let (low, high) = (&raw mut (*w).low, &raw mut (*w).high);
        let key = looked_up(w);
        if key >= (*w).mapping.start && key < (*w).mapping.end {
            return 1;
        }
        let base = (*w).layout.base;
        low.write_volatile(0);
        high.write_volatile((*w).layout.mappings);
        for _ in 0..MAPPING_STEPS {
            let (l, h) = (low.read_volatile(), high.read_volatile());
            if l + 1 >= h {
                break;
            }
            let middle = l + (h - l) / 2;
            let Some(m) = mapped(base, middle) else { return 0 };
            let side = if (*m).start <= key { low } else { high };
            side.write_volatile(middle);
        }
        let Some(m) = mapped(base, low.read_volatile()) else { return 0 };
        if key < (*m).start || key >= (*m).end {
            return 0;
        }
        (*w).mapping.start = (*m).start;
        (*w).mapping.end = (*m).end;
        (*w).mapping.bias = (*m).bias;
        (*w).mapping.object = (*m).object;
    }
    1
}

/// The rule at the walk's address, whose mapping has been found.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_rule(slot: u32) -> u32 {
    let Some(w) = walk(slot) else { return rule::NONE };
    // SAFETY: as in `unwind_mapping`.
    unsafe {
        (*w).has_table = 0;
        (*w).pending = 0;
        let object = (*w).mapping.object;
        let Some(table) = TABLES.get(object).copied() else { return rule::NONE };
        if table.chunks == 0 {
            (*w).pending = (object != NO_OBJECT && table != Table::NEVER).into();
            return rule::NONE;
        }
        (*w).has_table = 1;
        let pc = looked_up(w).wrapping_sub((*w).mapping.bias);
        if pc > u64::from(u32::MAX) {
            return rule::NONE;
        }
        let pc = pc as u32;
        let (low, high) = (&raw mut (*w).low, &raw mut (*w).high);
        low.write_volatile(0);
        high.write_volatile(table.chunks);
        for _ in 0..CHUNK_STEPS {
            let (l, h) = (low.read_volatile(), high.read_volatile());
            if l + 1 >= h {
                break;
            }
            let middle = l + (h - l) / 2;
            let Some(chunk) = chunk(table.base.wrapping_add(middle)) else { return rule::NONE };
            let side = if (*chunk.cast::<Row>()).pc <= pc { low } else { high };
            side.write_volatile(middle);
        }
        let Some(chunk) = chunk(table.base.wrapping_add(low.read_volatile())) else { return rule::NONE };
        row(chunk.cast(), pc)
    }
}

/// The rule of the last row of a chunk that is not past `pc`.
///
/// # Safety
/// `rows` is a chunk.
#[inline(always)]
unsafe fn row(rows: *const Row, pc: u32) -> u32 {
    let mut at = 0;
    let mut half = CHUNK_ROWS / 2;
    // SAFETY: the steps add up to less than a chunk.
    unsafe {
        while half > 0 {
            if (&raw const (*rows.add(at + half)).pc).read_volatile() <= pc {
                at += half;
            }
            half /= 2;
        }
        if (*rows.add(at)).pc > pc { rule::NONE } else { (&raw const (*rows.add(at)).rule).read_volatile() }
    }
}

/// A call that never returns may be the last instruction of its function, so a return address is looked up one
/// byte before.
///
/// # Safety
/// `w` is a live element.
#[inline(always)]
unsafe fn looked_up(w: *const Walk) -> u64 {
    // SAFETY: by contract.
    unsafe { (*w).ip.wrapping_sub(u64::from((*w).exact == 0)) }
}

#[inline(always)]
fn chunk(index: u32) -> Option<*const Chunk> {
    let (segment, within) = (index / SEGMENT_CHUNKS as u32, index % SEGMENT_CHUNKS as u32);
    POOL.get_value(segment, &within).map(|words| (&raw const *words).cast())
}

#[inline(always)]
fn mapped(base: u32, index: u32) -> Option<*const Mapped> {
    let chunk = chunk(base.wrapping_add(index / CHUNK_MAPPINGS as u32))?;
    Some(chunk.cast::<Mapped>().wrapping_add(index as usize % CHUNK_MAPPINGS))
}

/// A word of the running task's user memory.
#[inline(always)]
pub fn word(at: u64) -> Option<u64> {
    let mut value = 0u64;
    // SAFETY: the destination has the size given; the source is checked by the helper.
    let ret = unsafe { bpf_probe_read_user((&raw mut value).cast(), 8, at as *const _) };
    (ret == 0).then_some(value)
}
