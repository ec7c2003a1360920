//! GPU performance monitoring: two samples, and what happened between them.

use std::ffi::CStr;

use gpu_sim_timeline::clock;
use gpu_sim_timeline::signal::Recent;
use libc::c_uint;
use nvml_wrapper_sys::bindings::{
    NVML_GPM_METRICS_GET_VERSION, NVML_GPM_SUPPORT_VERSION, nvmlDevice_t, nvmlGpmMetric_t,
    nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t, nvmlReturn_t,
};

use crate::abi::{Code, answer, device, give, target};
use crate::library::Library;
use crate::mig::FIRST_ID;

/// What one sample holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    device: u32,
    instance: Option<u32>,
    at: u64,
}

/// Documented as the least time between two samples.
const LEAST_NS: u64 = 100_000_000;
/// Of a busy device, percent: SMs with work, tensor cores, memory interface.
const SM_PERCENT: f64 = 80.0;
const TENSOR_PERCENT: f64 = 40.0;
const DRAM_PERCENT: f64 = 30.0;
/// While a copy runs.
const PCIE_MIB_PER_S: f64 = 24_000.0;

fn allowed(library: &Library) -> Result<(), Code> {
    if !library.gpm {
        return Err(Code::NOT_SUPPORTED);
    }
    if library.faults.no_permission { Err(Code::NO_PERMISSION) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmQueryDeviceSupport(
    handle: nvmlDevice_t,
    support: *mut nvmlGpmSupport_t,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        target(&library, handle)?;
        // SAFETY: null or the caller's structure, as the API demands it.
        let support = unsafe { support.as_mut() }.ok_or(Code::INVALID_ARGUMENT)?;
        if support.version != NVML_GPM_SUPPORT_VERSION {
            return Err(Code::VERSION_MISMATCH);
        }
        support.isSupportedDevice = c_uint::from(library.gpm);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    answer(|| {
        let number = Library::get()?.objects().add_sample();
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(sample, std::ptr::without_provenance_mut(number)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    answer(|| {
        let freed = Library::get()?.objects().samples.remove(&sample.addr());
        freed.map(drop).ok_or(Code::INVALID_ARGUMENT)
    })
}

fn take(library: &Library, sample: nvmlGpmSample_t, device: u32, instance: Option<u32>) -> Result<(), Code> {
    allowed(library)?;
    library.maybe_hang();
    library.timeline.reap().map_err(|_io| Code::UNKNOWN)?;
    let taken = Taken { device, instance, at: clock::now() };
    let mut objects = library.objects();
    *objects.samples.get_mut(&sample.addr()).ok_or(Code::INVALID_ARGUMENT)? = Some(taken);
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleGet(handle: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = device(&library, handle)?;
        if library.faults.mig {
            return Err(Code::NOT_SUPPORTED);
        }
        take(&library, sample, index, None)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMigSampleGet(
    handle: nvmlDevice_t,
    gpu_instance_id: c_uint,
    sample: nvmlGpmSample_t,
) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        let index = device(&library, handle)?;
        let instance = gpu_instance_id.checked_sub(FIRST_ID).filter(|&i| i < library.faults.mig_instances);
        take(&library, sample, index, Some(instance.ok_or(Code::INVALID_ARGUMENT)?))
    })
}

/// Value and unit of a metric, from the shares of kernels and of copies.
fn metric(id: c_uint, busy: f64, copies: f64) -> Option<(f64, &'static CStr)> {
    Some(match id {
        1 => (100.0 * busy, c"%"),
        2 => (SM_PERCENT * busy, c"%"),
        5 => (TENSOR_PERCENT * busy, c"%"),
        10 => (DRAM_PERCENT * busy, c"%"),
        20 => (0.0, c"MiB/s"),
        21 => (PCIE_MIB_PER_S * copies, c"MiB/s"),
        _ => return None,
    })
}

fn fill(metric_of: &mut nvmlGpmMetric_t, busy: f64, copies: f64) {
    match metric(metric_of.metricId, busy, copies) {
        Some((value, unit)) => {
            (metric_of.nvmlReturn, metric_of.value) = (0, value);
            metric_of.metricInfo.shortName = c"metric".as_ptr().cast_mut();
            metric_of.metricInfo.longName = c"simulated metric".as_ptr().cast_mut();
            metric_of.metricInfo.unit = unit.as_ptr().cast_mut();
        }
        None => metric_of.nvmlReturn = Code::NOT_SUPPORTED.0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    answer(|| {
        let library = Library::get()?;
        // SAFETY: null or the caller's structure, as the API demands it.
        let request = unsafe { request.as_mut() }.ok_or(Code::INVALID_ARGUMENT)?;
        if request.version != NVML_GPM_METRICS_GET_VERSION {
            return Err(Code::VERSION_MISMATCH);
        }
        allowed(&library)?;
        let taken =
            |sample: nvmlGpmSample_t| library.objects().samples.get(&sample.addr()).copied().flatten();
        let (first, second) =
            taken(request.sample1).zip(taken(request.sample2)).ok_or(Code::INVALID_ARGUMENT)?;
        let same = (first.device, first.instance) == (second.device, second.instance);
        if !same || second.at.saturating_sub(first.at) < LEAST_NS {
            return Err(Code::INVALID_ARGUMENT);
        }
        let recent = Recent::of(&library.timeline, first.device, first.instance, first.at, second.at);
        let (busy, copies) = recent.shares(first.at, second.at);
        let wanted = request.metrics.get_mut(..request.numMetrics as usize).ok_or(Code::INVALID_ARGUMENT)?;
        wanted.iter_mut().for_each(|metric| fill(metric, busy, copies));
        Ok(())
    })
}
