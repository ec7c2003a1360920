//! An ELF file of any bytes: all that is asked of one.

#![no_main]

use std::panic;
use std::sync::Once;

use libfuzzer_sys::fuzz_target;

static QUIET: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    // A parser's panic on a damaged file is caught where it happens, and costs that file's names. libFuzzer's hook would
    // end the run before that; a panic that nobody catches still ends it.
    QUIET.call_once(|| panic::set_hook(Box::new(|_| {})));
    whyidle::symbol::testing::elf(data);
});
