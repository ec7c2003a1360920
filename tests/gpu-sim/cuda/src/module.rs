//! Modules and functions: a function's name may say how long its kernels last.

use std::time::Duration;

use libc::{c_char, c_int, c_uint, c_void};

use crate::abi::{Code, CuResult, answer, give, text};
use crate::driver::Driver;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// `None`: the grid's x dimension in microseconds.
    duration: Option<Duration>,
    /// What its first launch takes to load it, then `None`.
    pub(crate) load: Option<Duration>,
    /// How long the device stands still before each of its kernels.
    pub(crate) stall: Option<Duration>,
    /// Its parameter says who meets (`launch::Collective`).
    pub(crate) collective: bool,
}

/// Of kernels that end only when every rank has begun them.
const COLLECTIVE: &str = "ncclDevKernel";

impl Function {
    /// Nanoseconds on the device.
    pub(crate) fn duration(self, grid_x: u32) -> u64 {
        let duration = self.duration.unwrap_or(Duration::from_micros(u64::from(grid_x)));
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }

    /// `gemm_90ms`, `k_500us`, `k_7ns`, `k_2s`; anything else has no duration of its own. `lazy30ms_k_5ms`
    /// is loaded by its first launch, which takes 30 ms; before `stalled4ms_k` the device stands still for 4 ms.
    fn named(name: &str) -> Self {
        let word = name.rsplit_once('_').map_or("", |(_, word)| word);
        let after =
            |prefix| name.strip_prefix(prefix).and_then(|rest: &str| duration(rest.split_once('_')?.0));
        Self {
            duration: duration(word),
            load: after("lazy"),
            stall: after("stalled"),
            collective: name.starts_with(COLLECTIVE),
        }
    }
}

fn duration(word: &str) -> Option<Duration> {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let of = match unit {
        "ns" => Duration::from_nanos,
        "us" => Duration::from_micros,
        "ms" => Duration::from_millis,
        "s" => Duration::from_secs,
        _ => return None,
    };
    word[..word.len() - unit.len()].parse().ok().map(of)
}

/// How long an image takes to load: `load_90ms`. Real images begin with other bytes.
///
/// # Safety
/// `image` is null or readable up to the first byte that does not fit, at the latest a NUL.
unsafe fn load_time(image: *const c_void) -> Option<Duration> {
    const PREFIX: &[u8] = b"load_";
    const LONGEST: usize = 24;
    let mut bytes = Vec::new();
    while !image.is_null() && bytes.len() < LONGEST {
        // SAFETY: by the caller's promise, all bytes before fitted and none was NUL.
        let byte = unsafe { image.cast::<u8>().add(bytes.len()).read() };
        match PREFIX.get(bytes.len()) {
            Some(&wanted) if wanted != byte => return None,
            None if byte == 0 => break,
            None if !byte.is_ascii_alphanumeric() => return None,
            _ => bytes.push(byte),
        }
    }
    duration(std::str::from_utf8(bytes.get(PREFIX.len()..)?).ok()?)
}

fn load(module: *mut usize) -> Result<(), Code> {
    let mut objects = Driver::get()?.objects();
    let (context, _) = objects.current()?;
    let handle = objects.handle();
    objects.modules.insert(handle, context);
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(module, handle) }
}

/// The file is read, as a driver reads it; what it holds does not matter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoad(module: *mut usize, file: *const c_char) -> CuResult {
    answer(|| {
        // SAFETY: the caller's string, as the API demands it.
        let path = unsafe { text(file) }?.to_string_lossy();
        std::fs::read(&*path).map_err(|_unreadable| Code::NOT_FOUND)?;
        load(module)
    })
}

fn load_data(module: *mut usize, image: *const c_void) -> Result<(), Code> {
    // SAFETY: the caller's pointer, as the API demands it: an image, or text that ends in NUL.
    if let Some(time) = unsafe { load_time(image) } {
        std::thread::sleep(time);
    }
    load(module)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_void) -> CuResult {
    answer(|| load_data(module, image))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> CuResult {
    answer(|| load_data(module, image))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: usize) -> CuResult {
    answer(|| Driver::get()?.objects().modules.remove(&module).map(drop).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> CuResult {
    answer(|| {
        // SAFETY: the caller's string, as the API demands it.
        let name = unsafe { text(name) }?.to_string_lossy();
        let mut objects = Driver::get()?.objects();
        if !objects.modules.contains_key(&module) {
            return Err(Code::INVALID_HANDLE);
        }
        let handle = objects.handle();
        objects.functions.insert(handle, Function::named(&name));
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(function, handle) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_duration_else_the_grid_does() {
        let ns = |name: &str| Function::named(name).duration(7);
        assert_eq!(ns("k_90ms"), 90_000_000);
        assert_eq!(ns("gemm_f16_500us"), 500_000);
        assert_eq!(ns("k_3ns"), 3);
        assert_eq!(ns("k_2s"), 2_000_000_000);
        for without in ["k", "", "k_", "k_ms", "90ms", "k_90", "k_99999999999999999999ms", "k_-1ms", "ü_1mß"]
        {
            assert_eq!(ns(without), 7_000, "{without}");
        }
    }

    #[test]
    fn a_name_or_an_image_says_what_loading_and_beginning_take() {
        let lazy = Function::named("lazy30ms_k_5ms");
        assert_eq!((lazy.load, lazy.duration(1)), (Some(Duration::from_millis(30)), 5_000_000));
        assert_eq!(Function::named("lazy_k_5ms").load, None);
        let stalled = Function::named("stalled4ms_k");
        assert_eq!((stalled.stall, stalled.duration(7)), (Some(Duration::from_millis(4)), 7_000));
        // SAFETY: strings that end in NUL.
        let time = |image: &std::ffi::CStr| unsafe { load_time(image.as_ptr().cast()) };
        assert_eq!(time(c"load_90ms"), Some(Duration::from_millis(90)));
        for none in [c"", c"load", c"load_", c"load_9", c"k_20ms", c"load_9 ms"] {
            assert_eq!(time(none), None, "{none:?}");
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { load_time(std::ptr::null()) }, None);
    }
}
