//! Loads and attaches the kernel side, drains its rings, keeps the process table, writes the trace.
//!
//! `kernel::tracer` is the door to the kernel side; `cuda` finds driver libraries and the offsets of their entry
//! points, `driver` attaches to them; `recorder` ties both, the process table and the device signal together.

pub mod bottom_halves;
pub mod cgroup;
pub mod cuda;
pub mod descriptors;
pub mod devices;
pub mod driver;
pub mod enrich;
pub mod governor;
pub mod holders;
pub mod host;
pub mod kernel;
mod kernel_cost;
mod mounts;
mod names;
mod polled;
pub mod preflight;
pub mod process;
mod python;
pub mod recorder;
pub mod selection;
mod sink;
pub mod stop;
pub mod unwind;
mod utilisation;

pub use kernel::tracer;
pub use python::testing;

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// Why recording could not start or go on. Each has its own exit status (`cli::exit`).
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error(
        "root is needed to trace the kernel (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE): run it with sudo"
    )]
    NotPermitted,
    #[error(
        "this kernel has no BTF ({path}): whyidle needs a kernel built with CONFIG_DEBUG_INFO_BTF, 5.10 or later"
    )]
    NoBtf { path: PathBuf },
    #[error("kernel {found} is too old: whyidle needs 5.10 or later")]
    KernelTooOld { found: String },
    #[error(
        "this is a container with process ids of its own: threads cannot be told apart from here; run it on the \
         host, or in a container that shares the host's ids (--pid=host, hostPID: true)"
    )]
    PidNamespace,
    #[error("no probe could be attached: {reason}")]
    NoProbe { reason: String },
    #[error("kernel side: {what}: {}", because(source.as_ref()))]
    Kernel { what: String, source: Box<dyn Error + Send + Sync> },
}

/// An error down to its cause, in one line, with what to do where that is known.
fn because(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut out_of_files = false;
    let mut cause = Some(error);
    while let Some(error) = cause {
        let errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        out_of_files |= matches!(errno, Some(libc::EMFILE | libc::ENFILE));
        let says = error.to_string();
        // Some tell their cause themselves.
        if !line.contains(&says) {
            line.push_str(": ");
            line.push_str(&says);
        }
        cause = error.source();
    }
    if out_of_files {
        line.push_str("; allow it more open files (`ulimit -n`, LimitNOFILE of a service)");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner: {0}")]
    struct Inner(#[source] io::Error);

    fn says(errno: i32) -> String {
        let source = Box::new(Outer(Inner(io::Error::from_raw_os_error(errno))));
        CaptureError::Kernel { what: "loading".into(), source }.to_string()
    }

    #[test]
    fn an_error_is_told_down_to_its_cause_once() {
        let line = says(libc::ENOMEM);
        assert!(line.starts_with("kernel side: loading: outer: inner: Cannot allocate memory"), "{line}");
        assert_eq!(line.matches("allocate").count(), 1, "{line}");
    }

    #[test]
    fn too_many_open_files_come_with_what_to_do() {
        assert!(says(libc::EMFILE).contains("Too many open files (os error 24); allow it more open files"));
        assert!(says(libc::ENFILE).contains("ulimit -n"));
        assert!(!says(libc::ENOMEM).contains("ulimit"));
    }
}
