//! The kernel side as userspace sees it: load and attach the object, drain its rings and tables, decode.
//!
//! `tracer` is the door; nothing outside this folder reads a ring or a map.

mod adopt;
pub mod btf;
pub mod decode;
mod decode_wait;
mod faults;
mod kallsyms;
mod load;
mod log;
mod misses;
pub mod now;
mod open;
pub mod probes;
mod proc_waits;
mod reads;
mod reclaim;
mod rings;
mod settled;
mod syscalls;
mod tables;
mod targets;
pub mod tracer;
pub mod uprobes;

use super::{CaptureError, cuda, python};
