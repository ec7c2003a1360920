//! A file or socket behind a descriptor, sent once per id.

/// Enough for the whole path of most data sets; each costs three reads of kernel memory per long wait.
pub const NAMES: usize = 12;
pub const NAME_BYTES: usize = 96;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileInfo {
    pub kind: u32,
    pub dev: u32,
    pub id: u64,
    pub inode: u64,
    pub fs_magic: u64,
    pub rdev: u32,
    pub mode: u32,
    /// 0: no socket.
    pub family: u16,
    /// Host byte order.
    pub local_port: u16,
    /// Network byte order.
    pub peer_port: u16,
    pub socket_state: u8,
    pub names: u8,
    /// IPv4 in the first four bytes, or IPv6.
    pub local: [u8; 16],
    pub peer: [u8; 16],
    /// Dentry names from the file upward, NUL-terminated.
    pub name: [[u8; NAME_BYTES]; NAMES],
}
