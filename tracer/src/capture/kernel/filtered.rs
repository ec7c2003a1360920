//! Return probes and seccomp. From 6.11 on a probed function returns through a system call (`uretprobe`), which
//! filters written before it refuse: the process dies. Kernels fixed since let it pass. No version number tells
//! which is which, so a child of our own tries it.

use std::io;
use std::time::{Duration, Instant};

use super::probed::probed;

/// The system calls of probed returns and of probed entries.
const NEW_CALLS: [u32; 2] = [335, 336];
const PATIENCE: Duration = Duration::from_secs(2);
/// Exit status of the child when the filter itself could not be had.
const NO_FILTER: i32 = 3;

/// Calls a function with a probe on its return in a child whose filter kills it for system calls it does not
/// know. `runs` counts that probe's runs.
///
/// # Errors
/// The child did not live, or it was not shown that it met the probe.
pub(super) fn survives_return_probe(runs: &dyn Fn() -> u64) -> Result<(), String> {
    let _statistics = aya::sys::enable_stats(aya::sys::Stats::RunTime)
        .map_err(|e| format!("whether filtered processes bear return probes cannot be tried: {e}"))?;
    let before = runs();
    let status = child().map_err(|e| format!("no child to try return probes on: {e}"))?;
    if libc::WIFSIGNALED(status) {
        return Err("a return probe kills processes under a seccomp filter on this kernel".into());
    }
    match libc::WEXITSTATUS(status) {
        0 if runs() > before => Ok(()),
        0 => Err("the return probe on a child of our own was not hit, so its survival proves nothing".into()),
        _ => Err("this kernel has no seccomp filters to try return probes with".into()),
    }
}

fn child() -> io::Result<i32> {
    let mut filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the child allocates nothing and takes no lock.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // SAFETY: system calls on memory that this process owns; it leaves without running exit handlers.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            let filtered = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if filtered {
                probed(1);
            }
            libc::_exit(if filtered { 0 } else { NO_FILTER });
        }
    }
    wait(pid)
}

fn wait(pid: i32) -> io::Result<i32> {
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if begun.elapsed() > PATIENCE => {
                // SAFETY: as above.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &raw mut status, 0);
                }
                return Ok(status);
            }
            0 => std::thread::sleep(Duration::from_millis(1)),
            n if n < 0 => return Err(io::Error::last_os_error()),
            _ => return Ok(status),
        }
    }
}

/// Kills for the new system calls, as a filter that does not know them would; allows all others.
fn filter() -> [libc::sock_filter; 5] {
    let row = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    [
        // The number is the first word of `seccomp_data`.
        row(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        row(equal, NEW_CALLS[0], 2, 0),
        row(equal, NEW_CALLS[1], 1, 0),
        row(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        row(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
    ]
}
