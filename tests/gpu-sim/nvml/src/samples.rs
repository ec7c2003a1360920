//! The driver's sample buffers.

use gpu_sim_timeline::clock;
use gpu_sim_timeline::signal::{self, Recent};
use libc::{c_uint, c_ulonglong};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlReturn_t, nvmlSample_t, nvmlSamplingType_t, nvmlValue_t, nvmlValueType_t,
};

use crate::abi::{Code, answer, device, give};
use crate::library::Library;

/// `NVML_TOTAL_POWER_SAMPLES`, `NVML_GPU_UTILIZATION_SAMPLES`, `NVML_MEMORY_UTILIZATION_SAMPLES`.
const POWER: nvmlSamplingType_t = 0;
const UTILIZATION: nvmlSamplingType_t = 1;
const MEMORY: nvmlSamplingType_t = 2;
/// `NVML_VALUE_TYPE_DOUBLE`, `NVML_VALUE_TYPE_UNSIGNED_INT`, `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const DOUBLE: nvmlValueType_t = 0;
const UNSIGNED: nvmlValueType_t = 1;
const LONG_LONG: nvmlValueType_t = 3;

/// Busy percent of the period that ended at `end`, as this library gives it.
pub(crate) fn busy_percent(library: &Library, recent: &Recent, end: u64, garbage: bool) -> c_uint {
    let honest = recent.utilization(end, library.period_ns);
    if garbage {
        return 1_000 + honest;
    }
    if library.faults.unknown_device { 0 } else { honest }
}

pub(crate) fn power_mw(library: &Library, recent: &Recent, end: u64) -> c_uint {
    if library.faults.unknown_device { signal::POWER_LIMIT_MW / 10 * 8 } else { recent.power_mw(end) }
}

/// (stamp in us on the library's clock, value), oldest first.
fn buffer(
    library: &Library,
    index: u32,
    kind: nvmlSamplingType_t,
    last_seen_us: u64,
) -> Result<Vec<(u64, c_uint)>, Code> {
    library.maybe_hang();
    let utilization = kind == UTILIZATION || kind == MEMORY;
    if library.faults.no_samples || (utilization && library.faults.mig) || !(utilization || kind == POWER) {
        return Err(Code::NOT_SUPPORTED);
    }
    library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
    let (now, period) = (clock::now(), library.period_ns);
    let mut ends = signal::period_ends(&library.timeline, index, period, 0, now);
    ends.retain(|&end| library.stamp_us(end - lag(library)) > last_seen_us);
    let since = ends.first().map_or(now, |first| first.saturating_sub(period.max(signal::POWER_WINDOW_NS)));
    let recent = Recent::new(&library.timeline, index, since, now);
    if utilization && library.faults.idle_not_found {
        ends.retain(|&end| recent.utilization(end, period) > 0);
    }
    let mut samples = Vec::with_capacity(ends.len());
    for end in ends {
        let turn = |every: Option<u64>| every.is_some_and(|n| (end / period).is_multiple_of(n));
        let value = match kind {
            POWER => power_mw(library, &recent, end),
            MEMORY => recent.memory(end, period),
            _ => busy_percent(library, &recent, end, turn(library.faults.garbage)),
        };
        let mut stamp = library.stamp_us(end - lag(library)).saturating_add_signed(jitter_us(library, end));
        if turn(library.faults.backward) {
            stamp = stamp.saturating_sub(1_000_000);
        }
        if turn(library.faults.future) {
            stamp += 3_600_000_000;
        }
        samples.push((stamp, value));
        if turn(library.faults.duplicate) {
            samples.push((stamp, value));
        }
    }
    Ok(samples)
}

fn lag(library: &Library) -> u64 {
    library.faults.stamp_lag.as_nanos() as u64
}

/// Scattered, and the same each time the sample is read.
fn jitter_us(library: &Library, end: u64) -> i64 {
    let most = library.faults.jitter.as_micros() as i64;
    let scattered = (end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i64;
    if most == 0 { 0 } else { scattered % (2 * most + 1) - most }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSamples(
    handle: nvmlDevice_t,
    kind: nvmlSamplingType_t,
    last_seen_us: c_ulonglong,
    value_type: *mut nvmlValueType_t,
    count: *mut c_uint,
    samples: *mut nvmlSample_t,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = device(&library, handle)?;
        let buffer = buffer(&library, index, kind, last_seen_us)?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(value_type, library.faults.value_type.unwrap_or(UNSIGNED))? };
        if samples.is_null() {
            // SAFETY: the caller's pointer, as the API demands it.
            return unsafe { give(count, signal::KEPT as c_uint) };
        }
        if buffer.is_empty() {
            return Err(Code::NOT_FOUND);
        }
        // SAFETY: null or the caller's number of samples, as the API demands it.
        let room = *unsafe { count.as_ref() }.ok_or(Code::INVALID_ARGUMENT)?;
        let kept = buffer.len().min(room as usize);
        for (place, &(stamp, value)) in buffer[..kept].iter().enumerate() {
            let value = match library.faults.value_type {
                Some(DOUBLE) => nvmlValue_t { dVal: value.into() },
                Some(LONG_LONG) => nvmlValue_t { ullVal: value.into() },
                _ => nvmlValue_t { uiVal: value },
            };
            let sample = nvmlSample_t { timeStamp: stamp, sampleValue: value };
            // SAFETY: `place` is below the number of samples the caller has room for.
            unsafe { samples.add(place).write(sample) };
        }
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(count, kept as c_uint) }
    })
}
