//! From a descriptor to its file, and from an inode to names. A small file is gone before `/proc` could be
//! asked, so the names are read here, once per file.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_kernel_str};
use tracer_ebpf::wire::{FileInfo, MISSING, NAME_BYTES, NAMES, kind, loss};

use crate::emit;
use crate::globals::offset;
use crate::maps::{FILES_SENT, MAJORS};
use crate::task::probe;

const S_IFMT: u16 = 0o170_000;
const S_IFREG: u16 = 0o100_000;
const S_IFSOCK: u16 = 0o140_000;
const S_IFCHR: u16 = 0o020_000;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Bits of a `dev_t` below the major.
const MINOR_BITS: u32 = 20;

fn pointer(base: *const u8, offset: u32) -> Option<*const u8> {
    probe::<u64>(base, offset).filter(|p| *p != 0).map(|p| p as *const u8)
}

/// `files->fdt->fd[n]`; `files` belongs to a task that is not exiting.
#[inline(always)]
pub fn behind(files: *const u8, fd: u32) -> Option<*const u8> {
    if files.is_null() {
        return None;
    }
    let table = pointer(files, offset!(files_fdt))?;
    let max: u32 = probe(table, offset!(fdt_max))?;
    if fd >= max {
        return None;
    }
    let array = pointer(table, offset!(fdt_fd))?;
    pointer(array.wrapping_add(fd as usize * 8), 0)
}

/// The major of an open file that is a character device.
#[inline(always)]
pub fn character_major(file: *const u8) -> Option<u32> {
    let inode = pointer(file, offset!(file_inode))?;
    let mode: u16 = probe(inode, offset!(inode_mode)).unwrap_or(0);
    if mode & S_IFMT != S_IFCHR {
        return None;
    }
    probe::<u32>(inode, offset!(inode_rdev)).map(|device| device >> MINOR_BITS)
}

/// The major behind a descriptor, where it is one of those taken as the NVIDIA driver's.
#[inline(always)]
pub fn nvidia_major(files: *const u8, fd: u32) -> Option<u32> {
    let major = behind(files, fd).and_then(character_major)?;
    MAJORS.get(major).is_some_and(|m| *m != 0).then_some(major)
}

/// Whether a descriptor is a character device of one of the majors taken as the NVIDIA driver's.
#[inline(always)]
pub fn is_nvidia(files: *const u8, fd: u32) -> bool {
    nvidia_major(files, fd).is_some()
}

/// Names an open file and sends its description unless it was sent before. 0: unreadable.
#[inline(never)]
pub fn of_descriptor(files: *const u8, fd: u32) -> u64 {
    let Some(file) = behind(files, fd) else { return 0 };
    let Some(inode) = pointer(file, offset!(file_inode)) else { return 0 };
    let dentry = pointer(file, offset!(file_dentry)).unwrap_or(core::ptr::null());
    describe(inode, dentry, file)
}

/// Likewise for regular files alone; 0 for anything else.
#[inline(never)]
pub fn of_regular(files: *const u8, fd: u32) -> u64 {
    let Some(file) = behind(files, fd) else { return 0 };
    let Some(inode) = pointer(file, offset!(file_inode)) else { return 0 };
    let mode: u16 = probe(inode, offset!(inode_mode)).unwrap_or(0);
    if mode & S_IFMT != S_IFREG {
        return 0;
    }
    let dentry = pointer(file, offset!(file_dentry)).unwrap_or(core::ptr::null());
    describe(inode, dentry, file)
}

/// Names the file of an address space (`mm_filemap_fault`).
#[inline(never)]
pub fn of_mapping(mapping: *const u8) -> u64 {
    let Some(inode) = pointer(mapping, offset!(mapping_host)) else { return 0 };
    let dentry = pointer(inode, offset!(inode_dentries))
        .map_or(core::ptr::null(), |alias| alias.wrapping_sub(offset!(dentry_alias) as usize));
    describe(inode, dentry, core::ptr::null())
}

#[inline(always)]
fn describe(inode: *const u8, dentry: *const u8, file: *const u8) -> u64 {
    let Some(number) = probe::<u64>(inode, offset!(inode_ino)) else {
        emit::lost(loss::FILE, loss::READ_FAULT, 0);
        return 0;
    };
    let block = pointer(inode, offset!(inode_sb)).unwrap_or(core::ptr::null());
    let dev: u32 = probe(block, offset!(sb_dev)).unwrap_or(0);
    let mut id = (number ^ (u64::from(dev) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut at = dentry;
    for _ in 0..NAMES {
        if at.is_null() {
            break;
        }
        let parent = pointer(at, offset!(dentry_parent)).unwrap_or(core::ptr::null());
        if parent == at {
            break;
        }
        // The kernel's own hash of the name, with its length.
        let name: u64 = probe(at, offset!(dentry_hash)).unwrap_or(0);
        id = (id ^ name).wrapping_mul(0xff51_afd7_ed55_8ccd);
        id ^= id >> 29;
        at = parent;
    }
    id = (id ^ connection(inode, file)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // SAFETY: the value is not looked at.
    if unsafe { FILES_SENT.get(id) }.is_some() {
        return id;
    }
    let sent = emit::record::<FileInfo>(loss::FILE, 0, |out| {
        // SAFETY: a reserved ring record, every byte of it written here.
        unsafe {
            (*out).kind = kind::FILE;
            (*out).dev = dev;
            (*out).id = id;
            (*out).inode = number;
            (*out).fs_magic = probe(block, offset!(sb_magic)).unwrap_or(0);
            (*out).rdev = probe(inode, offset!(inode_rdev)).unwrap_or(0);
            let mode: u16 = probe(inode, offset!(inode_mode)).unwrap_or(0);
            (*out).mode = mode.into();
            names(out, dentry);
            socket(out, if mode & S_IFMT == S_IFSOCK { file } else { core::ptr::null() });
        }
    });
    if sent && FILES_SENT.insert(id, 1, BPF_ANY.into()).is_err() {
        // Sent again next time: costs bytes, loses nothing.
        return id;
    }
    id
}

/// Ports and state of a socket, 0 of anything else: a socket seen before it is connected is described again.
#[inline(always)]
fn connection(inode: *const u8, file: *const u8) -> u64 {
    let mode: u16 = probe(inode, offset!(inode_mode)).unwrap_or(0);
    if mode & S_IFMT != S_IFSOCK || offset!(socket_sk) == MISSING || offset!(sock_family) == MISSING {
        return 0;
    }
    let Some(sock) = pointer(file, offset!(file_private)).and_then(|s| pointer(s, offset!(socket_sk))) else {
        return 0;
    };
    let local: u16 = probe(sock, offset!(sock_num)).unwrap_or(0);
    let peer: u16 = probe(sock, offset!(sock_dport)).unwrap_or(0);
    let state: u8 = probe(sock, offset!(sock_state)).unwrap_or(0);
    u64::from(local) << 32 | u64::from(peer) << 16 | u64::from(state)
}

/// # Safety
/// `out` is a reserved record.
#[inline(always)]
unsafe fn names(out: *mut FileInfo, dentry: *const u8) {
    let mut at = dentry;
    let mut count = 0u8;
    for i in 0..NAMES {
        // SAFETY: below `NAMES`; the helper bounds the copy and ends it with a NUL.
        unsafe {
            let slot = (&raw mut (*out).name).cast::<[u8; NAME_BYTES]>().add(i);
            let parent = pointer(at, offset!(dentry_parent)).unwrap_or(core::ptr::null());
            if at.is_null() || parent == at {
                at = core::ptr::null();
                (*slot).as_mut_ptr().write_volatile(0);
                continue;
            }
            let name = pointer(at, offset!(dentry_name)).unwrap_or(core::ptr::null());
            if bpf_probe_read_kernel_str(slot.cast(), NAME_BYTES as u32, name.cast()) < 0 {
                (*slot).as_mut_ptr().write_volatile(0);
            }
            count += 1;
            at = parent;
        }
    }
    // SAFETY: by contract.
    unsafe { (*out).names = count };
}

/// # Safety
/// `out` is a reserved record.
#[inline(always)]
unsafe fn socket(out: *mut FileInfo, file: *const u8) {
    // SAFETY: by contract; sources are checked by the helper.
    unsafe {
        (*out).family = 0;
        (*out).local_port = 0;
        (*out).peer_port = 0;
        (*out).socket_state = 0;
        let zero = [0u64; 2];
        (&raw mut (*out).local).cast::<[u64; 2]>().write_unaligned(zero);
        (&raw mut (*out).peer).cast::<[u64; 2]>().write_unaligned(zero);
        if file.is_null() || offset!(socket_sk) == MISSING || offset!(sock_family) == MISSING {
            return;
        }
        let Some(sock) = pointer(file, offset!(file_private)).and_then(|s| pointer(s, offset!(socket_sk)))
        else {
            return;
        };
        let family: u16 = probe(sock, offset!(sock_family)).unwrap_or(0);
        (*out).family = family;
        (*out).socket_state = probe(sock, offset!(sock_state)).unwrap_or(0);
        (*out).local_port = probe(sock, offset!(sock_num)).unwrap_or(0);
        (*out).peer_port = probe(sock, offset!(sock_dport)).unwrap_or(0);
        let (local, peer, bytes) = match family {
            AF_INET => (offset!(sock_saddr), offset!(sock_daddr), 4),
            AF_INET6 if offset!(sock_saddr6) != MISSING => (offset!(sock_saddr6), offset!(sock_daddr6), 16),
            _ => return,
        };
        let copy = |to: *mut [u8; 16], from: u32| {
            bpf_probe_read_kernel(to.cast(), bytes, sock.wrapping_add(from as usize).cast());
        };
        copy(&raw mut (*out).local, local);
        copy(&raw mut (*out).peer, peer);
    }
}
