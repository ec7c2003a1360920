//! A process's memory of any bytes: the interpreter, its threads, a function and its lines.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let asked = whyidle::capture::testing::python(data);
    assert!(asked.reads < 1 << 16 && asked.most <= 1 << 20);
});
