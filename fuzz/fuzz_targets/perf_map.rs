//! A perf map of any bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| whyidle::symbol::testing::perf_map(data));
