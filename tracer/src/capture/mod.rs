//! Loads and attaches the kernel side, drains its rings, keeps the process table, writes the trace.
//!
//! `kernel::tracer` is the door to the kernel side; `cuda` finds driver libraries and the offsets of their entry
//! points, `driver` attaches to them; `recorder` ties both, the process table and the device signal together.

pub mod bottom_halves;
pub mod cgroup;
pub mod cuda;
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
pub mod preflight;
pub mod process;
mod python;
pub mod recorder;
pub mod selection;
mod sink;
pub mod stop;
mod utilisation;

pub use kernel::tracer;

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
    #[error("kernel side: {what}: {source}")]
    Kernel { what: String, source: Box<dyn std::error::Error + Send + Sync> },
}
