//! A CUDA driver or collective library as a framework sees it: loaded, and called by exported names.

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Arguments at most, all of them integers or pointers. More than a function takes do it no harm.
const ARGUMENTS: usize = 11;

type Entry = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> c_int;

/// A loaded library.
#[derive(Clone, Copy, Debug)]
pub struct Library(*mut c_void);

impl Library {
    /// # Panics
    /// It cannot be loaded.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: loads a library of this workspace.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{} cannot be loaded", path.display());
        Self(library)
    }

    /// Address of an exported function.
    ///
    /// # Panics
    /// It is not exported.
    #[must_use]
    pub fn address(&self, name: &str) -> usize {
        let text = CString::new(name).expect("no NUL");
        // SAFETY: an open library and a C string.
        let address = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        assert!(!address.is_null(), "{name} is not exported");
        address.expose_provenance()
    }

    /// Calls an exported function that takes integers and pointers; gives its result.
    ///
    /// # Panics
    /// It is not exported.
    pub fn call(&self, name: &str, arguments: &[usize]) -> c_int {
        // SAFETY: by this ABI a function that takes fewer words ignores the rest.
        let entry: Entry = unsafe { std::mem::transmute::<usize, Entry>(self.address(name)) };
        let mut a = [0; ARGUMENTS];
        a[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: the caller's values, of the kinds the function takes.
        unsafe { entry(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]) }
    }

    /// Likewise, of a function that succeeds.
    ///
    /// # Panics
    /// It fails.
    pub fn ok(&self, name: &str, arguments: &[usize]) {
        assert_eq!(self.call(name, arguments), 0, "{name}");
    }

    /// Likewise, of one that gives a handle or an address at its first argument.
    pub fn made(&self, name: &str, rest: &[usize]) -> usize {
        let mut made = 0_usize;
        let mut arguments = vec![(&raw mut made).expose_provenance()];
        arguments.extend(rest);
        self.ok(name, &arguments);
        made
    }

    /// Initialises the driver, with a context on a device.
    #[must_use]
    pub fn context(&self, flags: usize, device: usize) -> usize {
        self.ok("cuInit", &[0]);
        self.made("cuCtxCreate_v2", &[flags, device])
    }

    /// A function of a module of its own, whose name says what it does.
    #[must_use]
    pub fn function(&self, name: &str) -> usize {
        let text = CString::new(name).expect("no NUL");
        let module = self.made("cuModuleLoadData", &[c"".as_ptr().addr()]);
        self.made("cuModuleGetFunction", &[module, text.as_ptr().addr()])
    }

    /// A stream that does not wait for the legacy one.
    #[must_use]
    pub fn stream(&self) -> usize {
        self.made("cuStreamCreate", &[1])
    }

    pub fn launch(&self, function: usize, grid: [usize; 3], stream: usize) {
        self.ok("cuLaunchKernel", &[function, grid[0], grid[1], grid[2], 1, 1, 1, 0, stream]);
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: usize,
    pub attributes: usize,
    pub attribute_count: u32,
}
