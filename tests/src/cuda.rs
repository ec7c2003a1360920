//! A job's side of the CUDA driver.

use std::ffi::CString;
use std::path::Path;

use crate::library::{LaunchConfig, Library};

/// A context that sleeps while it waits, `CU_CTX_SCHED_BLOCKING_SYNC`.
pub const BLOCKING_SYNC: usize = 4;

/// The library, loaded, with a context in the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Cuda(Library);

impl Cuda {
    /// Loads a library and makes a context with `flags` on its first device.
    ///
    /// # Panics
    /// It is no CUDA driver, or has no device.
    #[must_use]
    pub fn load(path: &Path, flags: usize) -> Self {
        let cuda = Self(Library::load(path));
        let _context = cuda.0.context(flags, 0);
        cuda
    }

    /// A kernel that lasts as its name says, `k_5ms`.
    #[must_use]
    pub fn kernel(&self, name: &str) -> usize {
        let name = CString::new(name).expect("no NUL");
        let name = name.as_ptr().expose_provenance();
        let module = self.0.made("cuModuleLoadData", &[name]);
        self.0.made("cuModuleGetFunction", &[module, name])
    }

    /// A stream that runs beside all others.
    #[must_use]
    pub fn stream(&self) -> usize {
        self.0.stream()
    }

    pub fn launch(&self, function: usize, stream: usize) {
        self.0.launch(function, [1; 3], stream);
    }

    /// By `cuLaunchKernelEx`, or the form of it that is given.
    pub fn launch_ex(&self, name: &str, function: usize, stream: usize) {
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], stream, ..LaunchConfig::default() };
        self.0.ok(name, &[(&raw const config).expose_provenance(), function]);
    }

    /// Kernels captured into a graph that can be launched.
    #[must_use]
    pub fn graph(&self, kernels: &[usize], stream: usize) -> usize {
        self.0.ok("cuStreamBeginCapture_v2", &[stream]);
        for kernel in kernels {
            self.launch(*kernel, stream);
        }
        let mut graph = 0_usize;
        self.0.ok("cuStreamEndCapture", &[stream, (&raw mut graph).expose_provenance()]);
        self.0.made("cuGraphInstantiateWithFlags", &[graph])
    }

    pub fn launch_graph(&self, exec: usize, stream: usize) {
        self.0.ok("cuGraphLaunch", &[exec, stream]);
    }

    /// Waits for everything of the context.
    pub fn synchronize(&self) {
        self.0.ok("cuCtxSynchronize", &[]);
    }

    /// By `cuStreamSynchronize`, or the form of it that is given.
    pub fn synchronize_stream(&self, name: &str, stream: usize) {
        self.0.ok(name, &[stream]);
    }

    #[must_use]
    pub fn event(&self) -> usize {
        self.0.made("cuEventCreate", &[])
    }

    pub fn record(&self, event: usize, stream: usize) {
        self.0.ok("cuEventRecord", &[event, stream]);
    }

    pub fn wait_for(&self, event: usize) {
        self.0.ok("cuEventSynchronize", &[event]);
    }
}
