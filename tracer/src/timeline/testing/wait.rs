//! One off-CPU interval, part by part.

use super::key;
use crate::trace::{FileId, Ns, NvidiaIoctl, OffCpu, State, Syscall, Waker, WakerContext};

/// One off-CPU interval being written.
#[derive(Clone, Debug)]
pub struct Wait {
    pub off: OffCpu,
    pub(super) kernel: Vec<String>,
    pub(super) user: Vec<String>,
    pub(super) waker_kernel: Vec<String>,
}

impl Wait {
    pub(super) fn new(tid: u32, pid: u32, left: Ns, woken: Option<Ns>, ran: Ns, state: State) -> Self {
        Self {
            off: OffCpu {
                thread: key(tid),
                pid,
                left,
                woken,
                ran,
                state,
                cut_start: false,
                cut_end: false,
                throttled: false,
                cpu_left: 0,
                cpu_queued: 0,
                cpu_ran: 0,
                cpus_allowed: 4,
                cpu_mask: [0b1111, 0, 0, 0],
                syscall: None,
                ioctl: None,
                futex_value: None,
                file: None,
                path_arg: None,
                kernel_stack: 0,
                user_stack: 0,
                waker: None,
            },
            kernel: Vec::new(),
            user: Vec::new(),
            waker_kernel: Vec::new(),
        }
    }

    #[must_use]
    pub fn syscall(mut self, nr: i64, args: [u64; 6]) -> Self {
        self.off.syscall = Some(Syscall { nr: i32::try_from(nr).unwrap_or(-1), args });
        self
    }

    /// `read(fd)` of a file.
    #[must_use]
    pub fn read(mut self, fd: u64, file: FileId) -> Self {
        self.off.file = Some(file);
        self.syscall(libc::SYS_read, [fd, 0, 4096, 0, 0, 0])
    }

    /// `FUTEX_WAIT_BITSET` at `address`, whose word held `value`.
    #[must_use]
    pub fn futex(mut self, address: u64, value: u32) -> Self {
        self.off.futex_value = Some(value);
        let op = u64::from((libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG).unsigned_abs());
        self.syscall(libc::SYS_futex, [address, op, u64::from(value), 0, 0, u64::from(u32::MAX)])
    }

    /// `poll` of `count` descriptors listed at `address`.
    #[must_use]
    pub fn poll(self, address: u64, count: u64) -> Self {
        self.syscall(libc::SYS_poll, [address, count, u64::MAX, 0, 0, 0])
    }

    /// `ioctl` on an NVIDIA node.
    #[must_use]
    pub fn nvidia_ioctl(mut self, fd: u64, file: FileId, command: u32) -> Self {
        self.off.file = Some(file);
        self.off.ioctl = Some(NvidiaIoctl { command, inner: None });
        self.syscall(libc::SYS_ioctl, [fd, u64::from(command), 0, 0, 0, 0])
    }

    /// Woken by a thread of this trace, as its own doing.
    #[must_use]
    pub fn woken_by(mut self, tid: u32) -> Self {
        self.off.waker = Some(Waker {
            thread: Some(key(tid)),
            pid: tid,
            context: WakerContext::Task,
            kernel_stack: 0,
            user_stack: 0,
            syscall: Some(1),
            in_nvidia_ioctl: false,
        });
        self
    }

    /// The waker's kernel stack, innermost first.
    #[must_use]
    pub fn woken_from(mut self, kernel: &[&str]) -> Self {
        self.waker_kernel = kernel.iter().map(|&f| f.into()).collect();
        self
    }

    /// Woken by an interrupt with this kernel stack, innermost first, on an idle processor.
    #[must_use]
    pub fn interrupt(mut self, kernel: &[&str]) -> Self {
        self.off.waker = Some(Waker {
            thread: None,
            pid: 0,
            context: WakerContext::Interrupt,
            kernel_stack: 0,
            user_stack: 0,
            syscall: None,
            in_nvidia_ioctl: false,
        });
        self.woken_from(kernel)
    }

    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.off.state = state;
        self
    }

    /// Own kernel stack, innermost first.
    #[must_use]
    pub fn kernel(mut self, frames: &[&str]) -> Self {
        self.kernel = frames.iter().map(|&f| f.into()).collect();
        self
    }

    /// Own user stack, innermost first.
    #[must_use]
    pub fn user(mut self, frames: &[&str]) -> Self {
        self.user = frames.iter().map(|&f| f.into()).collect();
        self
    }

    /// Anything else.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut OffCpu)) -> Self {
        change(&mut self.off);
        self
    }
}
