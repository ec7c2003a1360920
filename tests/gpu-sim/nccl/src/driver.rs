//! The driver library underneath, called by its exported names as the real one is, and the shared file for
//! ranks to find one another.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

use gpu_sim_timeline::Timeline;
use gpu_sim_timeline::settings::Settings;
use libc::{c_char, c_int, c_uint, c_void};

use crate::abi::Code;

/// First parameter of a collective's kernel (`libsim_cuda.so` reads it).
#[repr(C)]
pub(crate) struct Meeting {
    pub(crate) group: u64,
    pub(crate) sequence: u64,
    pub(crate) ranks: u64,
    pub(crate) ns: u64,
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: usize,
    attributes: usize,
    attribute_count: c_uint,
}

type GetCurrent = unsafe extern "C" fn(*mut usize) -> c_int;
type SetCurrent = unsafe extern "C" fn(usize) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type LoadData = unsafe extern "C" fn(*mut usize, *const c_void) -> c_int;
type GetFunction = unsafe extern "C" fn(*mut usize, usize, *const c_char) -> c_int;
type LaunchEx = unsafe extern "C" fn(*const LaunchConfig, usize, *mut *mut c_void, *mut *mut c_void) -> c_int;

pub(crate) struct Driver {
    pub(crate) timeline: Timeline,
    get_current: GetCurrent,
    set_current: SetCurrent,
    get_device: GetDevice,
    retain: Retain,
    load_data: LoadData,
    get_function: GetFunction,
    launch_ex: LaunchEx,
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();

fn done(code: c_int) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(Code::UNHANDLED_CUDA_ERROR) }
}

impl Driver {
    pub(crate) fn get() -> Result<&'static Self, Code> {
        DRIVER.get_or_init(Self::open).as_ref().ok_or(Code::SYSTEM_ERROR)
    }

    fn open() -> Option<Self> {
        let own = crate::communicator::ncclGetVersion as *const c_void;
        let settings = Settings::of_library(own);
        let timeline = Timeline::open(&settings.file(), settings.devices()).ok()?;
        let library = [gpu_sim_timeline::settings::beside(own, "libcuda.so.1"), "libcuda.so.1".into()]
            .into_iter()
            .find_map(|path| {
                let path = CString::new(path.as_os_str().as_bytes()).ok()?;
                // SAFETY: a C string; a driver library runs nothing when it is loaded.
                let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
                (!library.is_null()).then_some(library)
            })?;
        let address = |name: &std::ffi::CStr| {
            // SAFETY: an open library and a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        // SAFETY: exported entry points with the driver API's signatures.
        unsafe {
            Some(Self {
                timeline,
                get_current: std::mem::transmute::<*mut c_void, GetCurrent>(address(c"cuCtxGetCurrent")?),
                set_current: std::mem::transmute::<*mut c_void, SetCurrent>(address(c"cuCtxSetCurrent")?),
                get_device: std::mem::transmute::<*mut c_void, GetDevice>(address(c"cuCtxGetDevice")?),
                retain: std::mem::transmute::<*mut c_void, Retain>(address(c"cuDevicePrimaryCtxRetain")?),
                load_data: std::mem::transmute::<*mut c_void, LoadData>(address(c"cuModuleLoadData")?),
                get_function: std::mem::transmute::<*mut c_void, GetFunction>(address(
                    c"cuModuleGetFunction",
                )?),
                launch_ex: std::mem::transmute::<*mut c_void, LaunchEx>(address(c"cuLaunchKernelEx")?),
            })
        }
    }

    pub(crate) fn current(&self) -> Result<usize, Code> {
        let mut context = 0;
        // SAFETY: a valid pointer.
        done(unsafe { (self.get_current)(&raw mut context) })?;
        if context == 0 { Err(Code::INVALID_USAGE) } else { Ok(context) }
    }

    pub(crate) fn device(&self) -> Result<c_int, Code> {
        let mut device = 0;
        // SAFETY: a valid pointer.
        done(unsafe { (self.get_device)(&raw mut device) })?;
        Ok(device)
    }

    pub(crate) fn set_current(&self, context: usize) -> Result<(), Code> {
        // SAFETY: a plain value.
        done(unsafe { (self.set_current)(context) })
    }

    pub(crate) fn primary(&self, device: c_int) -> Result<usize, Code> {
        let mut context = 0;
        // SAFETY: a valid pointer.
        done(unsafe { (self.retain)(&raw mut context, device) })?;
        Ok(context)
    }

    /// The kernel of the current context that all collectives launch.
    pub(crate) fn kernel(&self) -> Result<usize, Code> {
        let (mut module, mut function) = (0, 0);
        // SAFETY: valid pointers and C strings.
        done(unsafe { (self.load_data)(&raw mut module, c"".as_ptr().cast()) })?;
        // SAFETY: as above.
        done(unsafe { (self.get_function)(&raw mut function, module, c"ncclDevKernel_Sim".as_ptr()) })?;
        Ok(function)
    }

    pub(crate) fn launch(&self, kernel: usize, stream: usize, meeting: &Meeting) -> Result<(), Code> {
        let config = LaunchConfig {
            grid: [24, 1, 1],
            block: [512, 1, 1],
            shared_bytes: 0,
            stream,
            attributes: 0,
            attribute_count: 0,
        };
        let mut parameter = (&raw const *meeting).cast_mut().cast::<c_void>();
        // SAFETY: a valid configuration, and one parameter as the kernel takes it.
        done(unsafe { (self.launch_ex)(&raw const config, kernel, &raw mut parameter, std::ptr::null_mut()) })
    }
}
