//! What a descriptor or a fault led to.

use serde::{Deserialize, Serialize};

use super::time::{FileId, Ns, Span};

/// What a descriptor or a fault led to. `names` are dentry names from the file upward; `path` is filled by
/// userspace where it could be completed with the mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    pub id: FileId,
    /// `new_encode_dev` of the file system's device: `major << 20 | minor` as in the kernel's `dev_t`.
    pub dev: u32,
    pub inode: u64,
    /// Device number of a device node, 0 otherwise.
    pub rdev: u32,
    /// `i_mode`.
    pub mode: u32,
    /// `s_magic` of the file system.
    pub fs_magic: u64,
    pub names: Vec<String>,
    pub path: Option<String>,
    /// File-system type as in `/proc/self/mountinfo`.
    pub fs_type: Option<String>,
    pub mount: Option<String>,
    pub socket: Option<Socket>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Socket {
    /// `AF_*`.
    pub family: u16,
    /// `TCP_*` state (10 is LISTEN) or 0.
    pub state: u8,
    /// `address:port`, empty where the family has none.
    pub local: String,
    pub peer: String,
}

/// What an epoll descriptor watched when a thread was first seen to wait on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Polled {
    pub at: Ns,
    pub pid: u32,
    pub fd: u32,
    /// Local addresses, `address:port`, of the listening TCP sockets among them.
    pub listening: Vec<String>,
    /// A TCP connection that this side made is among them.
    pub asks: bool,
}

impl Polled {
    /// System calls that wait on an epoll descriptor, their first argument (x86-64).
    pub const CALLS: [i64; 3] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
}

/// What one process read of one file in one stretch, from the read family's system calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileReads {
    /// The stretch in which calls were watched: in duty bursts a part of the time.
    pub span: Span,
    pub pid: u32,
    pub file: FileId,
    pub reads: u64,
    pub bytes: u64,
    pub ns: u64,
    /// Latency histogram, bucket i holds latencies of `[2^i, 2^(i+1))` microseconds, under 2 us in bucket 0.
    pub histogram: [u32; 24],
}
