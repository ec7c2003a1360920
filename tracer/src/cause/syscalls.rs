//! System calls by what a wait in them means (x86-64 numbers).

use libc::c_long;

/// Families of system calls that the leaf rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// Reads data through a descriptor.
    Read,
    /// Reads data at an offset, so the descriptor is a file, never a pipe or socket.
    ReadAt,
    Write,
    /// Makes written data durable.
    Sync,
    /// Names, attributes, opening and closing.
    Metadata,
    Futex,
    Poll,
    Sleep,
    Accept,
    /// Receives from a socket.
    Receive,
    Send,
    Child,
    Ioctl,
    IoUring,
    SysvIpc,
    /// Sends a signal.
    Signal,
    /// Waits for one.
    SignalWait,
    Other,
}

/// Number, the kernel's name, family.
const CALLS: &[(c_long, &str, Call)] = &[
    (libc::SYS_read, "read", Call::Read),
    (libc::SYS_readv, "readv", Call::Read),
    (libc::SYS_pread64, "pread64", Call::ReadAt),
    (libc::SYS_preadv, "preadv", Call::ReadAt),
    (libc::SYS_preadv2, "preadv2", Call::ReadAt),
    (libc::SYS_readahead, "readahead", Call::ReadAt),
    (libc::SYS_sendfile, "sendfile", Call::Read),
    (libc::SYS_splice, "splice", Call::Read),
    (libc::SYS_copy_file_range, "copy_file_range", Call::ReadAt),
    (libc::SYS_io_getevents, "io_getevents", Call::ReadAt),
    (libc::SYS_madvise, "madvise", Call::ReadAt),
    (libc::SYS_execve, "execve", Call::ReadAt),
    (libc::SYS_write, "write", Call::Write),
    (libc::SYS_writev, "writev", Call::Write),
    (libc::SYS_pwrite64, "pwrite64", Call::Write),
    (libc::SYS_pwritev, "pwritev", Call::Write),
    (libc::SYS_pwritev2, "pwritev2", Call::Write),
    (libc::SYS_fallocate, "fallocate", Call::Write),
    (libc::SYS_ftruncate, "ftruncate", Call::Write),
    (libc::SYS_truncate, "truncate", Call::Write),
    (libc::SYS_fsync, "fsync", Call::Sync),
    (libc::SYS_fdatasync, "fdatasync", Call::Sync),
    (libc::SYS_sync, "sync", Call::Sync),
    (libc::SYS_syncfs, "syncfs", Call::Sync),
    (libc::SYS_msync, "msync", Call::Sync),
    (libc::SYS_sync_file_range, "sync_file_range", Call::Sync),
    (libc::SYS_open, "open", Call::Metadata),
    (libc::SYS_openat, "openat", Call::Metadata),
    (libc::SYS_openat2, "openat2", Call::Metadata),
    (libc::SYS_creat, "creat", Call::Metadata),
    (libc::SYS_close, "close", Call::Metadata),
    (libc::SYS_stat, "stat", Call::Metadata),
    (libc::SYS_fstat, "fstat", Call::Metadata),
    (libc::SYS_lstat, "lstat", Call::Metadata),
    (libc::SYS_newfstatat, "newfstatat", Call::Metadata),
    (libc::SYS_statx, "statx", Call::Metadata),
    (libc::SYS_statfs, "statfs", Call::Metadata),
    (libc::SYS_fstatfs, "fstatfs", Call::Metadata),
    (libc::SYS_access, "access", Call::Metadata),
    (libc::SYS_faccessat, "faccessat", Call::Metadata),
    (libc::SYS_faccessat2, "faccessat2", Call::Metadata),
    (libc::SYS_getdents, "getdents", Call::Metadata),
    (libc::SYS_getdents64, "getdents64", Call::Metadata),
    (libc::SYS_readlink, "readlink", Call::Metadata),
    (libc::SYS_readlinkat, "readlinkat", Call::Metadata),
    (libc::SYS_chdir, "chdir", Call::Metadata),
    (libc::SYS_mkdir, "mkdir", Call::Metadata),
    (libc::SYS_mkdirat, "mkdirat", Call::Metadata),
    (libc::SYS_unlink, "unlink", Call::Metadata),
    (libc::SYS_unlinkat, "unlinkat", Call::Metadata),
    (libc::SYS_rename, "rename", Call::Metadata),
    (libc::SYS_renameat, "renameat", Call::Metadata),
    (libc::SYS_renameat2, "renameat2", Call::Metadata),
    (libc::SYS_getxattr, "getxattr", Call::Metadata),
    (libc::SYS_kill, "kill", Call::Signal),
    (libc::SYS_tkill, "tkill", Call::Signal),
    (libc::SYS_tgkill, "tgkill", Call::Signal),
    (libc::SYS_rt_sigqueueinfo, "rt_sigqueueinfo", Call::Signal),
    (libc::SYS_rt_tgsigqueueinfo, "rt_tgsigqueueinfo", Call::Signal),
    (libc::SYS_pidfd_send_signal, "pidfd_send_signal", Call::Signal),
    (libc::SYS_pause, "pause", Call::SignalWait),
    (libc::SYS_rt_sigsuspend, "rt_sigsuspend", Call::SignalWait),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait", Call::SignalWait),
    (libc::SYS_flock, "flock", Call::Other),
    (libc::SYS_futex, "futex", Call::Futex),
    (449, "futex_waitv", Call::Futex),
    (455, "futex_wait", Call::Futex),
    (libc::SYS_poll, "poll", Call::Poll),
    (libc::SYS_ppoll, "ppoll", Call::Poll),
    (libc::SYS_select, "select", Call::Poll),
    (libc::SYS_pselect6, "pselect6", Call::Poll),
    (libc::SYS_epoll_wait, "epoll_wait", Call::Poll),
    (libc::SYS_epoll_pwait, "epoll_pwait", Call::Poll),
    (libc::SYS_epoll_pwait2, "epoll_pwait2", Call::Poll),
    (libc::SYS_nanosleep, "nanosleep", Call::Sleep),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", Call::Sleep),
    (libc::SYS_accept, "accept", Call::Accept),
    (libc::SYS_accept4, "accept4", Call::Accept),
    (libc::SYS_recvfrom, "recvfrom", Call::Receive),
    (libc::SYS_recvmsg, "recvmsg", Call::Receive),
    (libc::SYS_recvmmsg, "recvmmsg", Call::Receive),
    (libc::SYS_connect, "connect", Call::Receive),
    (libc::SYS_sendto, "sendto", Call::Send),
    (libc::SYS_sendmsg, "sendmsg", Call::Send),
    (libc::SYS_wait4, "wait4", Call::Child),
    (libc::SYS_waitid, "waitid", Call::Child),
    (libc::SYS_vfork, "vfork", Call::Child),
    (libc::SYS_ioctl, "ioctl", Call::Ioctl),
    (libc::SYS_io_uring_enter, "io_uring_enter", Call::IoUring),
    (libc::SYS_msgrcv, "msgrcv", Call::SysvIpc),
    (libc::SYS_semop, "semop", Call::SysvIpc),
    (libc::SYS_semtimedop, "semtimedop", Call::SysvIpc),
    (libc::SYS_sched_yield, "sched_yield", Call::Other),
    (libc::SYS_mmap, "mmap", Call::Other),
    (libc::SYS_munmap, "munmap", Call::Other),
    (libc::SYS_brk, "brk", Call::Other),
    (libc::SYS_exit_group, "exit_group", Call::Other),
];

pub(crate) fn family(nr: i32) -> Call {
    find(nr).map_or(Call::Other, |row| row.2)
}

/// The kernel's name, or `system call 123`.
pub(crate) fn name(nr: i32) -> String {
    find(nr).map_or_else(|| format!("system call {nr}"), |row| row.1.to_owned())
}

fn find(nr: i32) -> Option<&'static (c_long, &'static str, Call)> {
    CALLS.iter().find(|row| row.0 == c_long::from(nr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_calls() {
        assert_eq!(family(0), Call::Read);
        assert_eq!(name(202), "futex");
        assert_eq!(family(202), Call::Futex);
        assert_eq!(name(9999), "system call 9999");
        assert_eq!(family(-1), Call::Other);
    }

    #[test]
    fn no_number_twice() {
        let mut numbers: Vec<_> = CALLS.iter().map(|row| row.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), CALLS.len());
    }
}
