//! A profiler's recording of any bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whyidle::import::{Activity, NVML_WINDOW_NS, kineto};
use whyidle::timeline;

fuzz_target!(|data: &[u8]| {
    let mut records = Vec::new();
    let imported = kineto(data, &tempfile::tempfile, Activity::Readings(NVML_WINDOW_NS), &mut |record| {
        records.push(record);
        Ok(())
    });
    if imported.is_ok() {
        timeline::build(records);
    }
});
