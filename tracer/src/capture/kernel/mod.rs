//! The kernel side as userspace sees it: load and attach the object, drain its rings and tables, decode.
//!
//! `tracer` is the door; nothing outside this folder reads a ring or a map.

mod adopt;
pub mod btf;
mod config;
mod copies;
pub mod decode;
mod decode_cuda;
mod decode_wait;
mod faults;
mod filtered;
mod ioctls;
mod kallsyms;
mod kprobes;
mod load;
mod log;
mod misses;
pub mod now;
mod on_syscalls;
mod open;
pub(super) mod pool;
mod probed;
pub mod probes;
mod proc_waits;
mod raw;
mod reads;
mod reclaim;
mod rings;
mod settled;
mod syscalls;
mod tables;
pub(super) mod targets;
pub mod tracer;
mod tracer_cuda;
mod tracer_python;
pub mod trap;
pub mod undo;
pub mod uprobes;

use super::{CaptureError, cuda, python, unwind};
