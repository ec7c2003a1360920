//! The simulated CUDA driver's rules, as far as tests and the demo lean on them.

use std::ffi::{CString, c_int, c_uint, c_void};

use gpu_sim_timeline::{Timeline, clock};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::library::Library;

const MS: u64 = 1_000_000;
const BLOCKING_SYNC: c_uint = 4;
const NON_BLOCKING: c_uint = 1;
const NOT_READY: c_int = 600;
const INVALID_HANDLE: c_int = 400;
const INVALID_CONTEXT: c_int = 201;
const NOT_INITIALIZED: c_int = 3;

/// The library as a framework sees it: exported names.
struct Cuda {
    library: Library,
    device: SimulatedDevice,
}

macro_rules! call {
    ($cuda:expr, $name:ident($($value:expr => $type:ty),*)) => {{
        let address = $cuda.library.address(stringify!($name));
        // SAFETY: an exported entry point with the driver API's signature.
        let entry: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(address) };
        // SAFETY: the values are of the API's kinds and pointers are valid.
        unsafe { entry($($value),*) }
    }};
}

impl Cuda {
    fn load() -> Self {
        let device = SimulatedDevice::new(&[]);
        Self { library: Library::load(&device.cuda()), device }
    }

    /// With a context that waits as `flags` say.
    fn with_context(flags: c_uint) -> Self {
        let cuda = Self::load();
        assert_eq!(call!(cuda, cuInit(0 => c_uint)), 0);
        let mut context = 0_usize;
        assert_eq!(
            call!(cuda, cuCtxCreate_v2(&raw mut context => *mut usize, flags => c_uint, 0 => c_int)),
            0
        );
        cuda
    }

    fn function(&self, name: &str) -> usize {
        let (mut module, mut function) = (0_usize, 0_usize);
        let name = CString::new(name).expect("no NUL");
        assert_eq!(
            call!(self, cuModuleLoadData(&raw mut module => *mut usize, name.as_ptr().cast() => *const c_void)),
            0
        );
        let code = call!(self, cuModuleGetFunction(
            &raw mut function => *mut usize, module => usize, name.as_ptr() => *const libc::c_char));
        assert_eq!(code, 0);
        function
    }

    fn stream(&self, flags: c_uint) -> usize {
        let mut stream = 0;
        assert_eq!(call!(self, cuStreamCreate(&raw mut stream => *mut usize, flags => c_uint)), 0);
        stream
    }

    fn launch(&self, function: usize, stream: usize) -> c_int {
        let none = std::ptr::null_mut::<c_void>();
        call!(self, cuLaunchKernel(function => usize,
            1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 0 => c_uint,
            stream => usize, none => *mut c_void, none => *mut c_void))
    }

    fn synchronize(&self) {
        assert_eq!(call!(self, cuCtxSynchronize()), 0);
    }

    fn timeline(&self) -> Timeline {
        self.device.timeline()
    }

    /// True busy time so far, ns.
    fn busy(&self) -> u64 {
        self.timeline().truth().expect("readable")[0].busy_ns(0, u64::MAX)
    }
}

/// Processor time of the calling thread, ns.
fn thread_time() -> u64 {
    clock::read(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[test]
fn a_stream_runs_its_kernels_one_after_another() {
    let cuda = Cuda::with_context(0);
    let kernel = cuda.function("k_20ms");
    let before = clock::now();
    for _ in 0..3 {
        assert_eq!(cuda.launch(kernel, 0), 0);
    }
    assert_eq!(call!(cuda, cuStreamQuery(0 => usize)), NOT_READY);
    cuda.synchronize();
    assert!(clock::now() - before >= 60 * MS);
    assert_eq!(cuda.busy(), 60 * MS);
}

#[test]
fn streams_overlap_but_the_legacy_stream_waits_for_blocking_ones() {
    let cuda = Cuda::with_context(0);
    let kernel = cuda.function("k_200ms");
    let (one, two) = (cuda.stream(NON_BLOCKING), cuda.stream(0));
    for stream in [one, two] {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    assert_eq!(cuda.launch(cuda.function("k_30ms"), 0), 0);
    cuda.synchronize();
    let busy = cuda.busy();
    // Both at once, give or take the moment between the launches, then the legacy stream's.
    assert!((230 * MS..400 * MS).contains(&busy), "{busy}");
}

#[test]
fn copies_are_no_work_and_memsets_are() {
    let cuda = Cuda::with_context(0);
    let (bytes, mut address) = (1 << 20, 0_usize);
    assert_eq!(call!(cuda, cuMemAlloc_v2(&raw mut address => *mut usize, bytes => usize)), 0);
    let (source, mut back) = (vec![7_u8; bytes], vec![0_u8; bytes]);
    let code = call!(cuda, cuMemcpyHtoD_v2(
        address => usize, source.as_ptr().cast() => *const c_void, bytes => usize));
    assert_eq!(code, 0);
    let code = call!(cuda, cuMemcpyDtoH_v2(
        back.as_mut_ptr().cast() => *mut c_void, address => usize, bytes => usize));
    assert_eq!((code, &back), (0, &source));
    assert_eq!(cuda.busy(), 0);
    assert_eq!(call!(cuda, cuMemsetD8_v2(address => usize, 3 => libc::c_uchar, bytes => usize)), 0);
    cuda.synchronize();
    assert!(cuda.busy() > 0);
    // Beyond the allocation, and memory that is none of the device's.
    let code = call!(cuda, cuMemsetD8_v2(address + 1 => usize, 3 => libc::c_uchar, bytes => usize));
    assert_eq!(code, 1);
    assert_eq!(call!(cuda, cuMemFree_v2(address => usize)), 0);
    assert_eq!(call!(cuda, cuMemFree_v2(address => usize)), 1);
}

#[test]
fn a_graph_runs_what_was_captured() {
    let cuda = Cuda::with_context(0);
    let (kernel, stream) = (cuda.function("k_5ms"), cuda.stream(0));
    let (mut graph, mut exec) = (0_usize, 0_usize);
    assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 0 => c_int)), 0);
    for _ in 0..4 {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    assert_eq!(call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)), 0);
    cuda.synchronize();
    assert_eq!(cuda.busy(), 0);
    let code = call!(cuda, cuGraphInstantiateWithFlags(
        &raw mut exec => *mut usize, graph => usize, 0 => libc::c_ulonglong));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuGraphLaunch(exec => usize, stream => usize)), 0);
    cuda.synchronize();
    assert_eq!(cuda.busy(), 20 * MS);
}

#[test]
fn events_are_done_when_the_work_before_them_is() {
    let cuda = Cuda::with_context(0);
    let kernel = cuda.function("k_40ms");
    let mut events = [0_usize; 2];
    for event in &mut events {
        assert_eq!(call!(cuda, cuEventCreate(&raw mut *event => *mut usize, 0 => c_uint)), 0);
    }
    assert_eq!(call!(cuda, cuEventRecord(events[0] => usize, 0 => usize)), 0);
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert_eq!(call!(cuda, cuEventRecord(events[1] => usize, 0 => usize)), 0);
    assert_eq!(call!(cuda, cuEventQuery(events[1] => usize)), NOT_READY);
    assert_eq!(call!(cuda, cuEventSynchronize(events[1] => usize)), 0);
    let mut ms = 0_f32;
    let code =
        call!(cuda, cuEventElapsedTime(&raw mut ms => *mut f32, events[0] => usize, events[1] => usize));
    assert_eq!(code, 0);
    assert!(ms >= 40.0, "{ms}");
}

#[test]
fn waiting_spins_unless_asked_to_block() {
    let spent = |flags: c_uint| {
        let cuda = Cuda::with_context(flags);
        assert_eq!(cuda.launch(cuda.function("k_300ms"), 0), 0);
        let before = thread_time();
        cuda.synchronize();
        thread_time() - before
    };
    // On a loaded machine a spinning thread gets less than its 300 ms, a blocked one still next to nothing.
    let (spinning, blocking) = (spent(0), spent(BLOCKING_SYNC));
    assert!(blocking * 5 < spinning, "{blocking} blocking, {spinning} spinning");
}

#[test]
fn stale_handles_are_errors() {
    let cuda = Cuda::load();
    assert_eq!(call!(cuda, cuCtxSynchronize()), NOT_INITIALIZED);
    assert_eq!(call!(cuda, cuInit(0 => c_uint)), 0);
    assert_eq!(call!(cuda, cuCtxSynchronize()), INVALID_CONTEXT);
    let cuda = Cuda::with_context(0);
    let stream = cuda.stream(0);
    assert_eq!(call!(cuda, cuStreamDestroy_v2(stream => usize)), 0);
    assert_eq!(call!(cuda, cuStreamDestroy_v2(stream => usize)), INVALID_HANDLE);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), INVALID_HANDLE);
    assert_eq!(cuda.launch(0xdead_0000, 0), INVALID_HANDLE);
}

#[test]
fn a_full_stream_makes_the_launch_wait() {
    let cuda = Cuda::with_context(BLOCKING_SYNC);
    let kernel = cuda.function("k_1ms");
    let before = clock::now();
    for _ in 0..1_124 {
        assert_eq!(cuda.launch(kernel, 0), 0);
    }
    // 1,024 may be queued, so the last launch waited for a hundred to end.
    assert!(clock::now() - before >= 100 * MS);
}

#[test]
fn a_forked_child_cannot_use_its_parents_context() {
    let cuda = Cuda::with_context(0);
    let synchronize = cuda.library.address("cuCtxSynchronize");
    // SAFETY: as in `call!`; looked up before the fork because the loader takes a lock.
    let synchronize: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(synchronize) };
    // SAFETY: the child makes one call, which reads two statics there, and ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(synchronize()) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, NOT_INITIALIZED));
    cuda.synchronize();
    assert_eq!(cuda.timeline().running(0).len(), 1);
}
