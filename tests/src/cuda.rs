//! A job's side of the CUDA driver: the library as a framework sees it, by its exported names.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A context that sleeps while it waits, `CU_CTX_SCHED_BLOCKING_SYNC`.
pub const BLOCKING_SYNC: c_uint = 4;
/// `CU_STREAM_NON_BLOCKING`: waits for no other stream and none for it.
const NON_BLOCKING: c_uint = 1;

/// The library, loaded, with a context in the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Cuda {
    library: *mut c_void,
}

#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: usize,
    attributes: usize,
    attribute_count: c_uint,
}

/// Calls an entry point and demands success.
macro_rules! call {
    ($cuda:expr, $name:expr, $($value:expr => $type:ty),*) => {{
        let address = $cuda.address($name);
        // SAFETY: an exported entry point with the driver API's signature.
        let entry: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(address) };
        // SAFETY: the values are of the API's kinds and pointers are valid.
        assert_eq!(unsafe { entry($($value),*) }, 0, "{}", $name);
    }};
}

impl Cuda {
    /// Loads a library and makes a context with `flags` on its first device.
    ///
    /// # Panics
    /// It is no CUDA driver, or has no device.
    #[must_use]
    pub fn load(path: &Path, flags: c_uint) -> Self {
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: loads a library of this workspace.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        let cuda = Self { library };
        call!(cuda, "cuInit", 0 => c_uint);
        let mut context = 0_usize;
        call!(cuda, "cuCtxCreate_v2", &raw mut context => *mut usize, flags => c_uint, 0 => c_int);
        cuda
    }

    fn address(&self, name: &str) -> *mut c_void {
        let text = CString::new(name).expect("no NUL");
        // SAFETY: an open library and a C string.
        let address = unsafe { libc::dlsym(self.library, text.as_ptr()) };
        assert!(!address.is_null(), "{name} is not exported");
        address
    }

    /// A kernel that lasts as its name says, `k_5ms`.
    #[must_use]
    pub fn kernel(&self, name: &str) -> usize {
        let (mut module, mut function) = (0_usize, 0_usize);
        let name = CString::new(name).expect("no NUL");
        call!(self, "cuModuleLoadData", &raw mut module => *mut usize, name.as_ptr().cast() => *const c_void);
        call!(self, "cuModuleGetFunction",
            &raw mut function => *mut usize, module => usize, name.as_ptr() => *const libc::c_char);
        function
    }

    /// A stream that runs beside all others.
    #[must_use]
    pub fn stream(&self) -> usize {
        let mut stream = 0;
        call!(self, "cuStreamCreate", &raw mut stream => *mut usize, NON_BLOCKING => c_uint);
        stream
    }

    pub fn launch(&self, function: usize, stream: usize) {
        let none = std::ptr::null_mut::<c_void>();
        call!(self, "cuLaunchKernel", function => usize,
            1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 0 => c_uint,
            stream => usize, none => *mut c_void, none => *mut c_void);
    }

    /// By `cuLaunchKernelEx`, or the form of it that is given.
    pub fn launch_ex(&self, name: &str, function: usize, stream: usize) {
        let config = LaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            stream,
            attributes: 0,
            attribute_count: 0,
        };
        let none = std::ptr::null_mut::<c_void>();
        call!(self, name, &raw const config => *const LaunchConfig, function => usize,
            none => *mut c_void, none => *mut c_void);
    }

    /// Kernels captured into a graph that can be launched.
    #[must_use]
    pub fn graph(&self, kernels: &[usize], stream: usize) -> usize {
        let (mut graph, mut exec) = (0_usize, 0_usize);
        call!(self, "cuStreamBeginCapture_v2", stream => usize, 0 => c_int);
        for kernel in kernels {
            self.launch(*kernel, stream);
        }
        call!(self, "cuStreamEndCapture", stream => usize, &raw mut graph => *mut usize);
        call!(self, "cuGraphInstantiateWithFlags",
            &raw mut exec => *mut usize, graph => usize, 0 => libc::c_ulonglong);
        exec
    }

    pub fn launch_graph(&self, exec: usize, stream: usize) {
        call!(self, "cuGraphLaunch", exec => usize, stream => usize);
    }

    /// Waits for everything of the context.
    pub fn synchronize(&self) {
        call!(self, "cuCtxSynchronize",);
    }

    /// By `cuStreamSynchronize`, or the form of it that is given.
    pub fn synchronize_stream(&self, name: &str, stream: usize) {
        call!(self, name, stream => usize);
    }

    #[must_use]
    pub fn event(&self) -> usize {
        let mut event = 0;
        call!(self, "cuEventCreate", &raw mut event => *mut usize, 0 => c_uint);
        event
    }

    pub fn record(&self, event: usize, stream: usize) {
        call!(self, "cuEventRecord", event => usize, stream => usize);
    }

    pub fn wait_for(&self, event: usize) {
        call!(self, "cuEventSynchronize", event => usize);
    }
}
