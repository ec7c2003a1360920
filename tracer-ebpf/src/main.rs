//! The kernel object: one file per probe family under `probes`, what they share beside it.
#![no_std]
#![no_main]
// Inline assembly for this target is not stable; the build uses a nightly or `RUSTC_BOOTSTRAP`.
#![feature(asm_experimental_arch)]

mod atomic;
mod emit;
mod file;
mod globals;
mod histogram;
mod maps;
mod probes;
mod python;
mod stack;
mod task;
mod threads;
mod totals;
mod unwind;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
