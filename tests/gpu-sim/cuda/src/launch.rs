//! Kernel launches.

use gpu_sim_timeline::{Key, Work};
use libc::{c_uint, c_void};

use crate::abi::{Code, CuResult, LaunchConfig, NullStream, answer};
use crate::driver::Driver;
use crate::queue::{Item, submit};

/// First parameter of a collective's kernel, as the simulated NCCL passes it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Collective {
    group: u64,
    sequence: u64,
    ranks: u64,
    /// What it takes once all ranks have begun.
    ns: u64,
}

/// # Safety
/// `params` is what the function takes: for a collective's, one pointer to a [`Collective`].
unsafe fn launch(
    function: usize,
    grid_x: u32,
    stream: usize,
    null: NullStream,
    params: *mut *mut c_void,
) -> Result<(), Code> {
    let (found, load) = {
        let mut objects = Driver::get()?.objects();
        let found = objects.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?;
        let load = found.load.take();
        (*found, load)
    };
    if let Some(time) = load {
        std::thread::sleep(time);
    }
    if let Some(time) = found.stall {
        submit(stream, null, Item::Stall { ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) })?;
    }
    if !found.collective {
        return submit(stream, null, Item::Work { work: Work::Kernel, ns: found.duration(grid_x) });
    }
    // SAFETY: by the caller's promise, null or an array of one pointer to a `Collective`.
    let of = unsafe { params.cast::<*const Collective>().as_ref().and_then(|of| of.as_ref()) };
    let of = of.ok_or(Code::INVALID_VALUE)?;
    let key = Key { group: of.group, sequence: of.sequence };
    let ranks = u32::try_from(of.ranks).map_err(|_many| Code::INVALID_VALUE)?;
    submit(stream, null, Item::Collective { key, ranks, ns: of.ns })
}

/// A cooperative launch takes no `extra`.
macro_rules! launch_kernel {
    ($name:ident, $null:expr $(, $extra:ident)?) => {
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
            params: *mut *mut c_void,
            $($extra: *mut *mut c_void,)?
        ) -> CuResult {
            // SAFETY: the caller's pointers, as the API demands them.
            answer(|| unsafe { launch(function, grid_x, stream, $null, params) })
        }
    };
}

launch_kernel!(cuLaunchKernel, NullStream::Legacy, _extra);
launch_kernel!(cuLaunchKernel_ptsz, NullStream::PerThread, _extra);

launch_kernel!(cuLaunchCooperativeKernel, NullStream::Legacy);
launch_kernel!(cuLaunchCooperativeKernel_ptsz, NullStream::PerThread);

macro_rules! launch_ex {
    ($name:ident, $null:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            config: *const LaunchConfig,
            function: usize,
            params: *mut *mut c_void,
            _extra: *mut *mut c_void,
        ) -> CuResult {
            answer(|| {
                // SAFETY: the caller's pointer, as the API demands it.
                let config = unsafe { config.as_ref() }.ok_or(Code::INVALID_VALUE)?;
                // SAFETY: the caller's pointers, as the API demands them.
                unsafe { launch(function, config.grid[0], config.stream, $null, params) }
            })
        }
    };
}

launch_ex!(cuLaunchKernelEx, NullStream::Legacy);
launch_ex!(cuLaunchKernelEx_ptsz, NullStream::PerThread);
