//! Programs, one file per family. Program names stay within the kernel's 15 characters, and each has a row
//! in userspace's registry (`capture::probes`).

mod block;
mod cuda;
mod fault;
mod ioctl;
mod process;
mod reads;
mod reclaim;
mod sample;
mod sched_switch;
mod sched_wake;
