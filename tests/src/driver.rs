//! A process that calls the simulated CUDA driver, over and over, until it is told to stop.

use std::fs;
use std::io::Read as _;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use whyidle::capture::cuda::{Libraries, Library};

use crate::device::SimulatedDevice;
use crate::library;

/// Longest that anything here is waited for. Under emulation a kernel without cookies (5.10) takes minutes to load a
/// program for each entry point.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// What a job does between two looks at whether it shall stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy in, launch, synchronise, copy out and compare, then a pause of 1 ms.
    Train,
    /// Launches without a pause, and a synchronise now and then.
    Storm,
}

/// Such a process. Killed when dropped.
#[derive(Debug)]
pub struct Job {
    pub pid: u32,
    stop: Option<OwnedFd>,
    said: fs::File,
    /// Taken when it was waited for.
    ended: bool,
}

impl Job {
    /// Forks. The child runs `prepare`, which gives the library to load, then steps until it is stopped; every
    /// value it copies in must come back.
    #[must_use]
    pub fn start(step: Step, prepare: impl FnOnce() -> PathBuf) -> Self {
        let (stop_read, stop) = pipe();
        let (said, say) = pipe();
        // SAFETY: the child runs the steps and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            drop((stop, said));
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let steps = steps(step, &prepare(), &stop_read);
                use std::io::Write as _;
                writeln!(fs::File::from(say), "{steps}").expect("the parent lives");
            }));
            // SAFETY: leaves without running the parent's exit handlers.
            unsafe { libc::_exit(if ran.is_ok() { 0 } else { 101 }) };
        }
        let pid = u32::try_from(pid).expect("a pid");
        Self { pid, stop: Some(stop), said: said.into(), ended: false }
    }

    /// On a simulated device, whose library it loads at once.
    #[must_use]
    pub fn on(device: &SimulatedDevice, step: Step) -> Self {
        let path = device.cuda();
        let job = Self::start(step, || path);
        job.until_mapped();
        job
    }

    /// Until it maps a driver library.
    ///
    /// # Panics
    /// It never does.
    pub fn until_mapped(&self) {
        let begun = Instant::now();
        while !fs::read_to_string(format!("/proc/{}/maps", self.pid)).is_ok_and(|m| m.contains("libcuda.so"))
        {
            assert!(begun.elapsed() < PATIENCE, "the job maps no driver");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The library it maps, with the offsets of its entry points.
    ///
    /// # Panics
    /// It maps none, or more than one.
    #[must_use]
    pub fn library(&self) -> Library {
        let mut found = Libraries::default().scan([self.pid]);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0).expect("a driver library")
    }

    /// Entry points of the library whose first bytes are not those of the file.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn altered(&self, library: &Library) -> Vec<&'static str> {
        let file = fs::File::open(library.attach_path()).expect("held open");
        let memory = fs::File::open(format!("/proc/{}/mem", self.pid)).expect("the job lives");
        let base = self.base(library);
        let differs = |offset: u64| {
            let (mut code, mut original) = ([0; 8], [0; 8]);
            memory.read_exact_at(&mut code, base(offset)).expect("mapped");
            file.read_exact_at(&mut original, offset).expect("in the file");
            code != original
        };
        library.entry_points.iter().filter(|p| differs(p.file_offset)).map(|p| p.name).collect()
    }

    /// From an offset in the file to an address in the process.
    fn base(&self, library: &Library) -> impl Fn(u64) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("the job lives");
        let name = library.path.to_string_lossy().into_owned();
        let ranges: Vec<(u64, u64, u64)> = maps
            .lines()
            .filter(|l| l.contains(&name) && l.split(' ').nth(1).is_some_and(|p| p.contains('x')))
            .map(|l| {
                let hex = |t: &str| u64::from_str_radix(t, 16).expect("hexadecimal");
                let (range, rest) = l.split_once(' ').expect("fields");
                let (start, end) = range.split_once('-').expect("a range");
                (hex(start), hex(end), hex(rest.split(' ').nth(1).expect("an offset")))
            })
            .collect();
        assert!(!ranges.is_empty(), "{name} is not mapped: {maps}");
        move |offset| {
            ranges
                .iter()
                .find(|(start, end, from)| offset >= *from && offset - from < end - start)
                .map(|(start, _, from)| start + (offset - from))
                .expect("the code is mapped")
        }
    }

    /// Tells it to stop, and gives the number of steps it made, all of them right.
    ///
    /// # Panics
    /// A step went wrong, or it did not live to be told.
    #[must_use]
    pub fn stop(mut self) -> u64 {
        drop(self.stop.take());
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("a pipe");
        let mut status = 0;
        let pid = i32::try_from(self.pid).expect("a pid");
        // SAFETY: a child that nobody else waits for.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        self.ended = true;
        assert_eq!(status, 0, "the job was hurt (status {status:#x}) after it said {text:?}");
        text.trim().parse().expect("a number of steps")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let pid = i32::try_from(self.pid).expect("a pid");
        // SAFETY: a child that nobody has waited for, so the id is its own.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

fn steps(step: Step, path: &Path, stop: &OwnedFd) -> u64 {
    let cuda = library::Library::load(path);
    let _context = cuda.context(0, 0);
    let function = cuda.function("k_10us");
    let address = cuda.made("cuMemAlloc_v2", &[8]);
    let mut made = 0;
    while !closed(stop) {
        let (sent, mut back) = (made ^ 0x5a5a, 0_u64);
        cuda.ok("cuMemcpyHtoD_v2", &[address, (&raw const sent).expose_provenance(), 8]);
        let launches = if step == Step::Storm { 500 } else { 1 };
        (0..launches).for_each(|_| cuda.launch(function, [1; 3], 0));
        cuda.ok("cuCtxSynchronize", &[]);
        cuda.ok("cuMemcpyDtoH_v2", &[(&raw mut back).expose_provenance(), address, 8]);
        assert_eq!(back, sent, "what was copied in comes back");
        if step == Step::Train {
            std::thread::sleep(Duration::from_millis(1));
        }
        made += 1;
    }
    made
}

fn closed(pipe: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd as _;
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one valid element.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents & libc::POLLHUP != 0
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: two elements, as asked.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: just opened and owned by nobody else.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}
