//! The part of a user stack that native addresses do not show: the Python functions a thread runs, read from
//! its interpreter's frames while it stands still.

use aya_ebpf::bindings::{BPF_ANY, BPF_RB_FORCE_WAKEUP};
use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_ringbuf_output};
use tracer_ebpf::wire::python::{FRAME_WORDS, IDENTITY_WORDS, MAX_PYTHON_FRAMES, mix, python_end};
use tracer_ebpf::wire::{
    MISSING, NO_STEP, PythonFrame, PythonKept, PythonLayout, PythonStack, PythonThread, kind, loss, pid_bits,
};

use crate::globals::offset;
use crate::maps::{BLANK_PYTHON, PYTHON, PYTHON_CODE, PYTHON_KEPT, PYTHON_LAYOUTS, PYTHON_SENT, RING};
use crate::task::{Current, pid_bits_of, set_pid_bits};
use crate::{emit, unwind};

/// 3.14 marks pointers in their lowest bits.
const TAGS: u64 = 7;
const ADDRESS: u64 = (1 << 56) - 1;
const HEADER: u64 = (size_of::<PythonStack>() - MAX_PYTHON_FRAMES * size_of::<PythonFrame>()) as u64;

/// Walks the running thread's Python stack. Its id, 0 for a thread without one.
#[inline(always)]
pub fn walk(tid: u32, pid: u32) -> u64 {
    if pid_bits_of(tid) & pid_bits::PYTHON == 0 {
        return 0;
    }
    python_walk(tid, pid)
}

/// A global function to the verifier, as those in `unwind` are: walked once, whatever it is called with.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_walk(tid: u32, pid: u32) -> u64 {
    // SAFETY: copied out at once.
    let Some(thread) = (unsafe { PYTHON.get(tid) }).copied() else { return 0 };
    let Some(layout) = PYTHON_LAYOUTS.get_ptr(thread.layout) else { return 0 };
    // SAFETY: a live element, written before any thread names it.
    let Some(current) = (unsafe { current(&thread, &*layout) }) else { return 0 };
    let Some(kept) = kept(tid) else { return 0 };
    // SAFETY: live elements.
    unsafe {
        (*kept).stack.pid = pid;
        (*kept).stack.layout = thread.layout;
        frames(kept, layout, current)
    }
}

/// The thread's current frame. `None` without one, and for a state that is another thread's by now.
#[inline(always)]
fn current(thread: &PythonThread, layout: &PythonLayout) -> Option<u64> {
    let mut at = thread.state;
    if thread.local != 0 {
        let base: u64 =
            if offset!(task_fsbase) == MISSING { 0 } else { Current::get().load(offset!(task_fsbase)) };
        at = unwind::word(base.wrapping_add_signed(thread.local.into()))?;
    } else if thread.thread != 0 && word(at, layout.thread)? != thread.thread {
        return None;
    }
    if layout.cframe != NO_STEP {
        at = word(at, layout.cframe)?;
    }
    word(at, layout.current).filter(|frame| *frame != 0)
}

#[inline(always)]
fn kept(tid: u32) -> Option<*mut PythonKept> {
    if let Some(kept) = PYTHON_KEPT.get_ptr_mut(tid) {
        return Some(kept);
    }
    if PYTHON_KEPT.insert(tid, BLANK_PYTHON.get(0)?, BPF_ANY.into()).is_err() {
        emit::lost(loss::STACK, loss::MAP_FULL, 0);
        return None;
    }
    PYTHON_KEPT.get_ptr_mut(tid)
}

/// Walks into the row. The id of the stack.
///
/// How far it came is kept in memory, and paths that part in the loop meet again in it without a value of their
/// own: the verifier would follow each to the end.
///
/// # Safety
/// Both are live elements of maps.
#[inline(always)]
unsafe fn frames(kept: *mut PythonKept, layout: *const PythonLayout, current: u64) -> u64 {
    let mut frame = current;
    // SAFETY: by contract; indices are bounded below the arrays' lengths.
    unsafe {
        let (n, end) = (&raw mut (*kept).stack.frames, &raw mut (*kept).stack.end);
        n.write_volatile(0);
        end.write_volatile(python_end::TOO_DEEP);
        let mut h = mix(u64::from((*kept).stack.pid), 0x9e37_79b9_7f4a_7c15);
        for i in 0..MAX_PYTHON_FRAMES {
            if frame == 0 {
                end.write_volatile(python_end::WHOLE);
                break;
            }
            if !read_frame(kept, layout, frame) {
                end.write_volatile(python_end::UNREADABLE);
                break;
            }
            let code = word_of(kept, &raw const (*layout).code) & ADDRESS & !TAGS;
            let instruction = word_of(kept, &raw const (*layout).instruction);
            let identity = identity(kept, code.wrapping_add((*layout).identity.into()));
            let code = code | flag_of(kept, &raw const (*layout).flag);
            let entry = (&raw mut (*kept).stack.entries).cast::<PythonFrame>().add(i);
            (*entry).code = code;
            (*entry).instruction = instruction;
            (*entry).identity = identity;
            h = mix(mix(mix(h, code), instruction), identity);
            frame = word_of(kept, &raw const (*layout).previous);
            n.write_volatile(i as u32 + 1);
        }
        let end = end.read_volatile();
        if end == python_end::UNREADABLE {
            emit::lost(loss::STACK, loss::READ_FAULT, 0);
        }
        if n.read_volatile() == 0 {
            return 0;
        }
        let id = mix(h, end.into()) | 1;
        (*kept).stack.kind = kind::PYTHON_STACK;
        (*kept).stack.id = id;
        (*kept).stack.pad = 0;
        id
    }
}

const FRAME_BYTES: u32 = (FRAME_WORDS * 8) as u32;

/// # Safety
/// By contract of [`frames`].
#[inline(always)]
unsafe fn read_frame(kept: *mut PythonKept, layout: *const PythonLayout, frame: u64) -> bool {
    // SAFETY: by contract; the source is checked by the helper, the size bounded by the mask.
    unsafe {
        let span = (&raw const (*layout).span).read_volatile() & (FRAME_BYTES - 1);
        bpf_probe_read_user((&raw mut (*kept).frame).cast(), span, frame as *const _) == 0
    }
}

/// # Safety
/// By contract of [`frames`].
#[inline(always)]
unsafe fn word_of(kept: *const PythonKept, offset: *const u32) -> u64 {
    // SAFETY: by contract; bounded by the mask.
    unsafe {
        let words = (&raw const (*kept).frame).cast::<u8>();
        words.add((offset.read_volatile() & (FRAME_BYTES - 8)) as usize).cast::<u64>().read_volatile()
    }
}

/// # Safety
/// By contract of [`frames`].
#[inline(always)]
unsafe fn flag_of(kept: *const PythonKept, offset: *const u32) -> u64 {
    // SAFETY: by contract; bounded by the mask.
    unsafe {
        let bytes = (&raw const (*kept).frame).cast::<u8>();
        u64::from(bytes.add((offset.read_volatile() & (FRAME_BYTES - 1)) as usize).read_volatile()) << 56
    }
}

/// What tells the code object from another that comes to lie at the same address, 0 if it cannot be read.
///
/// # Safety
/// By contract of [`frames`].
#[inline(always)]
unsafe fn identity(kept: *mut PythonKept, from: u64) -> u64 {
    // SAFETY: by contract; the source is checked by the helper.
    unsafe {
        let words = (&raw mut (*kept).code).cast::<u64>();
        let failed = bpf_probe_read_user(words.cast(), (IDENTITY_WORDS * 8) as u32, from as *const _);
        // Errors are negative. No branch: see `frames`.
        tracer_ebpf::wire::python::identity(&*words.cast()) & !(failed >> 63) as u64
    }
}

/// Sends the stack that the thread was last seen with, unless it was sent before or is not `id` any more.
#[inline(always)]
pub fn send(tid: u32, id: u64) {
    if id != 0 {
        python_send(tid, id);
    }
}

/// 0; a global function has to return something.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_send(tid: u32, id: u64) -> u32 {
    if PYTHON_SENT.get_ptr(id).is_some() {
        return 0;
    }
    let Some(kept) = PYTHON_KEPT.get_ptr_mut(tid) else { return 0 };
    // SAFETY: a live element.
    unsafe {
        if (*kept).stack.id != id {
            return 0;
        }
        let n = u64::from((&raw const (*kept).stack.frames).read_volatile()) & 127;
        let bytes = HEADER + n * size_of::<PythonFrame>() as u64;
        if bytes > size_of::<PythonStack>() as u64 {
            return 0;
        }
        // Code may be gone soon: its name is read at once.
        let wake = if has_new_code(kept) { BPF_RB_FORCE_WAKEUP.into() } else { emit::wake(&RING) };
        let ring = (&raw const RING).cast_mut().cast();
        if bpf_ringbuf_output(ring, (&raw mut (*kept).stack).cast(), bytes, wake) != 0 {
            emit::lost(loss::STACK, loss::RING_FULL, 0);
            return 0;
        }
    }
    // If it fails it is sent again next time: costs bytes, loses nothing.
    PYTHON_SENT.insert(id, 1, 0).ok();
    0
}

/// Whether code is in the stack that was in none before.
///
/// # Safety
/// `kept` is a live element.
#[inline(always)]
unsafe fn has_new_code(kept: *const PythonKept) -> bool {
    // SAFETY: by contract; `i` is bounded.
    unsafe {
        // In memory, and so unknown to the verifier: see `frames`.
        let new = (&raw const (*kept).stack.pad).cast_mut();
        new.write_volatile(0);
        for i in 0..MAX_PYTHON_FRAMES {
            if i as u32 >= (&raw const (*kept).stack.frames).read_volatile() {
                break;
            }
            let identity = (*kept).stack.entries[i].identity;
            if PYTHON_CODE.get_ptr(identity).is_none() && PYTHON_CODE.insert(identity, 1, 0).is_ok() {
                new.write_volatile(1);
            }
        }
        new.read_volatile() != 0
    }
}

/// The stack of the running thread, sent. Its id.
#[inline(always)]
pub fn of_current(tid: u32, pid: u32) -> u64 {
    let id = walk(tid, pid);
    send(tid, id);
    id
}

/// A new thread finds its state where its creator's process keeps them. A forked process has its parent's
/// memory, and in it the state of the thread that forked.
#[inline(always)]
pub fn born(creator: u32, tid: u32, forked: bool) {
    if pid_bits_of(creator) & pid_bits::PYTHON == 0 {
        return;
    }
    // SAFETY: copied out at once.
    let Some(mut thread) = (unsafe { PYTHON.get(creator) }).copied() else { return };
    if !forked && thread.local == 0 {
        return;
    }
    // The state names the parent's thread until the interpreter writes the child's.
    thread.thread = 0;
    if PYTHON.insert(tid, thread, 0).is_ok() {
        set_pid_bits(tid, pid_bits_of(tid) | pid_bits::PYTHON);
    }
}

/// The thread runs another program, or ends.
#[inline(always)]
pub fn gone(tid: u32) {
    if pid_bits_of(tid) & pid_bits::PYTHON != 0 {
        set_pid_bits(tid, pid_bits_of(tid) & !pid_bits::PYTHON);
    }
    PYTHON.remove(tid).ok();
    PYTHON_KEPT.remove(tid).ok();
}

#[inline(always)]
fn word(base: u64, offset: u32) -> Option<u64> {
    unwind::word(base.wrapping_add(offset.into()))
}
