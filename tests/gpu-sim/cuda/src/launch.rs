//! Kernel launches.

use gpu_sim_timeline::Work;
use libc::{c_uint, c_void};

use crate::abi::{Code, CuResult, LaunchConfig, NullStream, answer};
use crate::driver::Driver;
use crate::queue::submit;

fn launch(function: usize, grid_x: u32, stream: usize, null: NullStream) -> Result<(), Code> {
    let found = Driver::get()?.objects().functions.get(&function).copied();
    let duration = found.ok_or(Code::INVALID_HANDLE)?.duration(grid_x);
    submit(stream, null, Work::Kernel, duration).map(drop)
}

/// # Safety
/// `config` is null or a valid `CUlaunchConfig`.
unsafe fn launch_config(config: *const LaunchConfig, function: usize, null: NullStream) -> Result<(), Code> {
    // SAFETY: null or valid by the caller's promise.
    let config = unsafe { config.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    launch(function, config.grid[0], config.stream, null)
}

macro_rules! launch_kernel {
    ($name:ident, $null:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            function: usize,
            grid_x: c_uint,
            _grid_y: c_uint,
            _grid_z: c_uint,
            _block_x: c_uint,
            _block_y: c_uint,
            _block_z: c_uint,
            _shared_bytes: c_uint,
            stream: usize,
            _params: *mut *mut c_void,
            _extra: *mut *mut c_void,
        ) -> CuResult {
            answer(|| launch(function, grid_x, stream, $null))
        }
    };
}

launch_kernel!(cuLaunchKernel, NullStream::Legacy);
launch_kernel!(cuLaunchKernel_ptsz, NullStream::PerThread);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: usize,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    // SAFETY: the caller's pointer, as the API demands it.
    answer(|| unsafe { launch_config(config, function, NullStream::Legacy) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx_ptsz(
    config: *const LaunchConfig,
    function: usize,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    // SAFETY: the caller's pointer, as the API demands it.
    answer(|| unsafe { launch_config(config, function, NullStream::PerThread) })
}
