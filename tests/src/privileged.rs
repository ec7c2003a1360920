//! Real probes on a real process: forks a child that waits at a barrier, attaches, lets it run, collects
//! every record. Not being allowed to is a failure, never a skip.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use whyidle::capture::kernel::btf::Kernel;
use whyidle::capture::kernel::probes::PROBES;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Loss, OffCpu, Record, TargetKind, ThreadKey, ThreadSeen, WaitTotal};

/// Longest a scenario may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Attaches or fails the test, saying what is missing.
#[must_use]
pub fn attach(config: &Config) -> Tracer {
    Tracer::attach(config)
        .unwrap_or_else(|e| panic!("privileged tests need root and eBPF, and this is neither: {e}"))
}

/// Why this kernel cannot have a program, `None` where it can. Says so past the test harness, which shows
/// nothing of a test that passes, so that what a test leaves out is never out of sight.
#[must_use]
pub fn lacking(program: &str) -> Option<String> {
    let reason = lack(program)?;
    leaves_out(&format!("{program}: {reason}"));
    Some(reason)
}

/// Likewise, for tests of what stands in for it, which leave nothing out.
#[must_use]
pub fn lack(program: &str) -> Option<String> {
    let probe = PROBES.iter().find(|p| p.program == program).expect("a program of the object");
    probe.requirements(&Kernel::running().expect("BTF")).err()
}

/// Says what a test leaves out, and for which lack of the running kernel: at once, and in the file named by
/// `WHYIDLE_LEFT_OUT`, which whoever runs all tests reads out at their end.
pub fn leaves_out(what: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let line = format!("test {name} leaves out what needs {what}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
    if let Some(list) = std::env::var_os("WHYIDLE_LEFT_OUT") {
        let mut list = std::fs::File::options().append(true).open(list).expect("the list");
        list.write_all(line.as_bytes()).expect("the list");
    }
}

/// Links to any of these programs, of which an ended tracer has none.
#[must_use]
pub fn links_of(programs: &[u32]) -> usize {
    let links = aya::programs::loaded_links().filter_map(Result::ok);
    links.filter(|link| programs.contains(&link.program_id())).count()
}

/// Puts a filter on this process as those do that were written before the system calls of probed functions:
/// it kills.
pub fn refuse_new_system_calls() {
    let row = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut filter = [
        row(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        row(equal, 335, 2, 0),
        row(equal, 336, 1, 0),
        row(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        row(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: system calls on a valid program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// A forked process that waits to be let go.
#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    go: std::fs::File,
    idle: std::fs::File,
}

impl Child {
    /// Forks; the child waits for [`Child::go`], runs `scenario`, says so, and sleeps until it is ended.
    #[must_use]
    pub fn fork(scenario: impl FnOnce()) -> Self {
        Self::fork_prepared(|| {}, scenario)
    }

    /// Likewise, with something done before the barrier.
    #[must_use]
    pub fn fork_prepared(prepare: impl FnOnce(), scenario: impl FnOnce()) -> Self {
        let (go_read, go_write) = pipe();
        let (idle_read, idle_write) = pipe();
        // SAFETY: the child only runs the scenario and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            drop((go_write, idle_read));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                prepare();
                let mut byte = [0];
                std::fs::File::from(go_read).read_exact(&mut byte).expect("the parent lives");
                scenario();
                std::fs::File::from(idle_write).write_all(&[1]).expect("the parent lives");
            }));
            if done.is_ok() {
                // SAFETY: no memory is touched.
                unsafe { libc::pause() };
            }
            // SAFETY: leaves without running the parent's exit handlers.
            unsafe { libc::_exit(101) };
        }
        drop((go_read, idle_write));
        let pid = u32::try_from(pid).expect("a pid");
        let child = Self { pid, go: go_write.into(), idle: idle_read.into() };
        child.until_asleep();
        child
    }

    pub fn go(&mut self) {
        self.go.write_all(&[1]).expect("the child lives");
    }

    /// Whether the scenario is over, waiting at most `timeout`.
    #[must_use]
    pub fn finished(&mut self, timeout: Duration) -> bool {
        use std::os::fd::AsRawFd;
        let mut poll = libc::pollfd { fd: self.idle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid element.
        if unsafe { libc::poll(&raw mut poll, 1, ms) } <= 0 {
            return false;
        }
        let mut byte = [0];
        self.idle.read_exact(&mut byte).expect("the scenario panicked in the child, see above");
        true
    }

    /// Until its main thread sleeps (at the barrier, or after the scenario).
    pub fn until_asleep(&self) {
        let begun = Instant::now();
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("the child lives");
            // It is said to sleep a moment before it has left its processor; only then has it a stack to be read.
            let call =
                std::fs::read_to_string(format!("/proc/{}/syscall", self.pid)).expect("the child lives");
            if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
                && !call.starts_with("running")
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the child never slept: {stat}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Voluntary and involuntary switches of its main thread so far.
    #[must_use]
    pub fn switches(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("the child lives");
        status
            .lines()
            .filter(|l| l.contains("ctxt_switches"))
            .map(|l| l.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number"))
            .sum()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let pid = i32::try_from(self.pid).expect("a pid");
        // SAFETY: a child of this process that nobody has waited for, so the id is its own.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: two elements, as asked.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: just opened and owned by nobody else.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}

/// All records of one scenario.
#[derive(Debug)]
pub struct Observed {
    pub pid: u32,
    pub records: Vec<Record>,
}

/// Runs a scenario in a child under probes.
#[must_use]
pub fn observe(config: &Config, scenario: impl FnOnce()) -> Observed {
    let child = Child::fork(scenario);
    let tracer = attach(config);
    observe_with(tracer, child)
}

/// Likewise with a tracer that was attached (and perhaps changed) before.
#[must_use]
pub fn observe_with(mut tracer: Tracer, mut child: Child) -> Observed {
    let mut records = Vec::new();
    tracer.add_process(child.pid, TargetKind::Named).expect("the child becomes a target");
    child.go();
    let begun = Instant::now();
    while !child.finished(Duration::from_millis(50)) {
        assert!(begun.elapsed() < PATIENCE, "the scenario did not end");
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
    }
    child.until_asleep();
    drop(tracer.finish(&mut |r| records.push(r)).expect("finish"));
    Observed { pid: child.pid, records }
}

impl Observed {
    pub fn waits(&self) -> impl Iterator<Item = &OffCpu> {
        self.records.iter().filter_map(|r| if let Record::OffCpu(w) = r { Some(w) } else { None })
    }

    /// Waits in one system call, neither cut at the start nor at the end.
    pub fn waits_in(&self, nr: libc::c_long) -> impl Iterator<Item = &OffCpu> {
        self.waits().filter(move |w| {
            !w.cut_start && !w.cut_end && w.syscall.as_ref().is_some_and(|s| i64::from(s.nr) == nr)
        })
    }

    pub fn totals(&self) -> impl Iterator<Item = &WaitTotal> {
        self.records.iter().filter_map(|r| if let Record::WaitTotal(w) = r { Some(w) } else { None })
    }

    pub fn threads(&self) -> impl Iterator<Item = &ThreadSeen> {
        self.records.iter().filter_map(|r| if let Record::Thread(t) = r { Some(t) } else { None })
    }

    pub fn losses(&self) -> impl Iterator<Item = &Loss> {
        self.records.iter().filter_map(|r| if let Record::Loss(l) = r { Some(l) } else { None })
    }

    /// Key of the child's main thread.
    #[must_use]
    pub fn main_thread(&self) -> ThreadKey {
        self.threads().find(|t| t.key.tid == self.pid).expect("the child's main thread is named").key
    }

    /// Addresses of a stack that some record names.
    #[must_use]
    pub fn stack(&self, id: u64) -> &[u64] {
        self.records
            .iter()
            .find_map(|r| match r {
                Record::Stack(s) if s.id == id => Some(s.addresses.as_slice()),
                _ => None,
            })
            .unwrap_or_else(|| panic!("stack {id} was never sent"))
    }
}
