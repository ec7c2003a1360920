//! Which argument of an x86-64 system call is a descriptor, a path, a futex or a poll array: the table the
//! kernel side looks in.

use tracer_ebpf::wire::call;

/// `(number, row)`, see `tracer_ebpf::wire::call`.
pub const CALLS: &[(u32, u8)] = &[
    (0, 1),                // read
    (1, 1),                // write
    (2, call::PATH_0),     // open
    (3, 1),                // close
    (4, call::PATH_0),     // stat
    (5, 1),                // fstat
    (6, call::PATH_0),     // lstat
    (7, call::POLL),       // poll
    (8, 1),                // lseek
    (16, call::IOCTL | 1), // ioctl
    (17, 1),               // pread64
    (18, 1),               // pwrite64
    (19, 1),               // readv
    (20, 1),               // writev
    (21, call::PATH_0),    // access
    (40, 2),               // sendfile: the file read from
    (42, 1),               // connect
    (43, 1),               // accept
    (44, 1),               // sendto
    (45, 1),               // recvfrom
    (46, 1),               // sendmsg
    (47, 1),               // recvmsg
    (59, call::PATH_0),    // execve
    (72, 1),               // fcntl
    (73, 1),               // flock
    (74, 1),               // fsync
    (75, 1),               // fdatasync
    (76, call::PATH_0),    // truncate
    (77, 1),               // ftruncate
    (78, 1),               // getdents
    (80, call::PATH_0),    // chdir
    (82, call::PATH_0),    // rename
    (83, call::PATH_0),    // mkdir
    (84, call::PATH_0),    // rmdir
    (85, call::PATH_0),    // creat
    (87, call::PATH_0),    // unlink
    (89, call::PATH_0),    // readlink
    (137, call::PATH_0),   // statfs
    (187, 1),              // readahead
    (202, call::FUTEX),    // futex
    (217, 1),              // getdents64
    (221, 1),              // fadvise64
    (232, 1),              // epoll_wait
    (257, call::PATH_1),   // openat
    (262, call::PATH_1),   // newfstatat
    (263, call::PATH_1),   // unlinkat
    (264, call::PATH_1),   // renameat
    (267, call::PATH_1),   // readlinkat
    (269, call::PATH_1),   // faccessat
    (271, call::POLL),     // ppoll
    (275, 1),              // splice
    (277, 1),              // sync_file_range
    (281, 1),              // epoll_pwait
    (285, 1),              // fallocate
    (288, 1),              // accept4
    (295, 1),              // preadv
    (296, 1),              // pwritev
    (299, 1),              // recvmmsg
    (306, 1),              // syncfs
    (307, 1),              // sendmmsg
    (322, call::PATH_1),   // execveat
    (326, 1),              // copy_file_range
    (327, 1),              // preadv2
    (328, 1),              // pwritev2
    (332, call::PATH_1),   // statx
    (426, 1),              // io_uring_enter
    (437, call::PATH_1),   // openat2
    (439, call::PATH_1),   // faccessat2
    (441, 1),              // epoll_pwait2
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_in_range() {
        assert!(CALLS.windows(2).all(|w| w[0].0 < w[1].0), "numbers rise");
        assert!(CALLS.iter().all(|(nr, _)| *nr < call::ROWS));
        assert!(CALLS.iter().all(|(_, row)| row & call::FD_MASK <= 3));
        assert!(CALLS.iter().all(|(_, row)| *row & call::KIND_MASK <= call::POLL));
    }

    #[test]
    fn numbers_are_this_architectures() {
        let row = |nr: libc::c_long| CALLS.iter().find(|(n, _)| i64::from(*n) == nr).map(|(_, r)| *r);
        assert_eq!(row(libc::SYS_read), Some(1));
        assert_eq!(row(libc::SYS_futex), Some(call::FUTEX));
        assert_eq!(row(libc::SYS_ioctl), Some(call::IOCTL | 1));
        assert_eq!(row(libc::SYS_openat), Some(call::PATH_1));
        assert_eq!(row(libc::SYS_statx), Some(call::PATH_1));
        assert_eq!(row(libc::SYS_epoll_wait), Some(1));
        assert_eq!(row(libc::SYS_ppoll), Some(call::POLL));
        assert_eq!(row(libc::SYS_clock_nanosleep), None);
        assert_eq!(row(libc::SYS_getdents64), Some(1));
        assert_eq!(row(libc::SYS_fsync), Some(1));
    }
}
