//! Unwind information of any bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| whyidle::unwind::testing::unwind_information(data));
