//! Modules and functions: a function's name may say how long its kernels last.

use std::time::Duration;

use libc::{c_char, c_void};

use crate::abi::{Code, CuResult, answer, give, text};
use crate::driver::Driver;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// `None`: the grid's x dimension in microseconds.
    duration: Option<Duration>,
}

impl Function {
    /// Nanoseconds on the device.
    pub(crate) fn duration(self, grid_x: u32) -> u64 {
        let duration = self.duration.unwrap_or(Duration::from_micros(u64::from(grid_x)));
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }

    /// `gemm_90ms`, `k_500us`, `k_7ns`, `k_2s`; anything else has no duration of its own.
    fn named(name: &str) -> Self {
        let word = name.rsplit_once('_').map_or("", |(_, word)| word);
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let of = match unit {
            "ns" => Duration::from_nanos,
            "us" => Duration::from_micros,
            "ms" => Duration::from_millis,
            "s" => Duration::from_secs,
            _ => return Self { duration: None },
        };
        Self { duration: word[..word.len() - unit.len()].parse().ok().map(of) }
    }
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, _image: *const c_void) -> CuResult {
    answer(|| load(module))
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
}
