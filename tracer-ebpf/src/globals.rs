//! Read-only globals. The verifier knows their values, so a branch on one costs nothing at run time.

use core::ptr::{addr_of, read_volatile};

use aya_ebpf::Global;
use tracer_ebpf::wire::{Offsets, Settings};

#[unsafe(no_mangle)]
pub static OFFSETS: Global<Offsets> = Global::new(Offsets::NONE);

#[unsafe(no_mangle)]
pub static SETTINGS: Global<Settings> = Global::new(Settings {
    wake_bytes: 0,
    own_tgid: 0,
    all: 0,
    have_task_pt_regs: 0,
    have_current_task_btf: 0,
    have_cookie: 0,
    thread_size: 0,
    pt_regs_size: 0,
    log: 0,
});

/// The cookie of the one entry point that a copy of a program serves where the kernel keeps no cookies. Each
/// copy has globals of its own.
#[unsafe(no_mangle)]
pub static COOKIE: Global<u64> = Global::new(0);

#[inline(always)]
pub fn constant_cookie() -> u64 {
    // SAFETY: `Global` is transparent and always initialised.
    volatile(unsafe { &*addr_of!(COOKIE).cast() })
}

#[inline(always)]
pub fn offsets() -> &'static Offsets {
    // SAFETY: `Global` is transparent and always initialised.
    unsafe { &*addr_of!(OFFSETS).cast() }
}

#[inline(always)]
pub fn settings() -> &'static Settings {
    // SAFETY: as above.
    unsafe { &*addr_of!(SETTINGS).cast() }
}

/// Reads so that the compiler cannot fold the placeholder in.
#[inline(always)]
pub fn volatile<T: Copy>(p: &T) -> T {
    // SAFETY: a reference is readable.
    unsafe { read_volatile(p) }
}

macro_rules! offset {
    ($field:ident) => {
        $crate::globals::volatile(&$crate::globals::offsets().$field)
    };
}

macro_rules! setting {
    ($field:ident) => {
        $crate::globals::volatile(&$crate::globals::settings().$field)
    };
}

pub(crate) use {offset, setting};
