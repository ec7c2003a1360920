//! `task_struct` and saved registers, by injected offsets.

use aya_ebpf::helpers::generated::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use tracer_ebpf::wire::{MISSING, pid_bits};

use crate::globals::{offset, setting};
use crate::maps::PIDS;

/// `PF_KTHREAD`, and io_uring's and vhost's user workers: their saved registers are no system call.
const PF_NO_USER: u32 = 0x0020_0000 | 0x10 | 0x4000;

/// A task pointer the verifier knows the type of: its fields are read directly.
#[derive(Clone, Copy)]
pub struct Task(pub *const u8);

impl Task {
    /// Direct load; the caller names an offset that exists.
    #[inline(always)]
    pub fn load<T: Copy>(self, offset: u32) -> T {
        load(self.0, offset)
    }

    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.load(offset!(task_pid))
    }

    #[inline(always)]
    pub fn pid(self) -> u32 {
        self.load(offset!(task_tgid))
    }

    #[inline(always)]
    pub fn start(self) -> u64 {
        self.load(offset!(task_start))
    }

    #[inline(always)]
    pub fn state(self) -> u32 {
        self.load(offset!(task_state))
    }

    #[inline(always)]
    pub fn task_flags(self) -> u32 {
        self.load(offset!(task_flags))
    }

    #[inline(always)]
    pub fn has_user(self) -> bool {
        self.task_flags() & PF_NO_USER == 0
    }

    #[inline(always)]
    pub fn cpu(self) -> u32 {
        if offset!(task_cpu) == MISSING { 0 } else { self.load(offset!(task_cpu)) }
    }

    /// Copies `comm` by two words.
    #[inline(always)]
    pub fn comm(self, to: *mut [u8; 16]) {
        let from = self.0.wrapping_add(offset!(task_comm) as usize);
        // SAFETY: `to` is 16 writable bytes, the source is checked by the helper.
        unsafe { bpf_probe_read_kernel(to.cast(), 16, from.cast()) };
    }

    /// In a throttled group: `task->throttled` (newer kernels) or the group's own count.
    #[inline(always)]
    pub fn throttled(self) -> bool {
        if offset!(task_throttled) != MISSING && self.load::<u8>(offset!(task_throttled)) != 0 {
            return true;
        }
        if offset!(task_cfs_rq) == MISSING || offset!(cfs_throttle_count) == MISSING {
            return false;
        }
        let queue: *const u8 = self.load(offset!(task_cfs_rq));
        !queue.is_null() && load::<i32>(queue, offset!(cfs_throttle_count)) > 0
    }

    /// The registers user mode left behind on entering the kernel. Only meaningful with [`Self::has_user`].
    #[inline(always)]
    pub fn regs(self) -> Regs {
        if setting!(have_task_pt_regs) != 0 {
            // SAFETY: a typed task pointer.
            return Regs(unsafe { bpf_task_pt_regs(self.0.cast_mut().cast()) } as *const u8);
        }
        let stack: u64 = self.load(offset!(task_stack));
        Regs((stack + u64::from(setting!(thread_size)) - u64::from(setting!(pt_regs_size))) as *const u8)
    }

    /// Whether this thread is a target.
    #[inline(always)]
    pub fn is_target(self, tid: u32) -> bool {
        if setting!(all) != 0 {
            return tid != 0 && self.pid() != setting!(own_tgid);
        }
        pid_bits_of(tid) & pid_bits::TARGET != 0
    }
}

/// Saved user registers.
#[derive(Clone, Copy)]
pub struct Regs(*const u8);

impl Regs {
    #[inline(always)]
    fn get(self, offset: u32) -> u64 {
        if setting!(have_task_pt_regs) != 0 {
            load(self.0, offset)
        } else {
            probe(self.0, offset).unwrap_or(0)
        }
    }

    /// The system call under way, -1 for none.
    #[inline(always)]
    pub fn syscall(self) -> i32 {
        self.get(offset!(regs_orig_ax)) as i32
    }

    #[inline(always)]
    pub fn ip(self) -> u64 {
        self.get(offset!(regs_ip))
    }

    #[inline(always)]
    pub fn sp(self) -> u64 {
        self.get(offset!(regs_sp))
    }

    #[inline(always)]
    pub fn bp(self) -> u64 {
        self.get(offset!(regs_bp))
    }

    #[inline(always)]
    pub fn arg0(self) -> u64 {
        self.get(offset!(regs_di))
    }

    #[inline(always)]
    pub fn arg1(self) -> u64 {
        self.get(offset!(regs_si))
    }

    #[inline(always)]
    pub fn arg2(self) -> u64 {
        self.get(offset!(regs_dx))
    }

    #[inline(always)]
    pub fn arg3(self) -> u64 {
        self.get(offset!(regs_r10))
    }

    #[inline(always)]
    pub fn arg4(self) -> u64 {
        self.get(offset!(regs_r8))
    }

    #[inline(always)]
    pub fn arg5(self) -> u64 {
        self.get(offset!(regs_r9))
    }
}

/// The running task, as far as every program type can know it.
#[derive(Clone, Copy)]
pub struct Current(*const u8);

impl Current {
    #[inline(always)]
    pub fn get() -> Self {
        // SAFETY: helpers without arguments.
        unsafe {
            if setting!(have_current_task_btf) != 0 {
                Self(bpf_get_current_task_btf() as *const u8)
            } else {
                Self(bpf_get_current_task() as *const u8)
            }
        }
    }

    #[inline(always)]
    pub fn load<T: Copy + Default>(self, offset: u32) -> T {
        if setting!(have_current_task_btf) != 0 {
            load(self.0, offset)
        } else {
            probe(self.0, offset).unwrap_or_default()
        }
    }

    #[inline(always)]
    pub fn start(self) -> u64 {
        self.load(offset!(task_start))
    }

    /// Which of its programs the process runs, see `wire::Exec`.
    #[inline(always)]
    pub fn image(self) -> u32 {
        if offset!(task_exec_id) == MISSING { 0 } else { self.load(offset!(task_exec_id)) }
    }

    #[inline(always)]
    pub fn has_user(self) -> bool {
        self.load::<u32>(offset!(task_flags)) & PF_NO_USER == 0
    }

    #[inline(always)]
    pub fn regs(self) -> Regs {
        // With the helper for registers (5.15) there is always the one for the task (5.11).
        if setting!(have_task_pt_regs) != 0 {
            return Task(self.0).regs();
        }
        let stack: u64 = self.load(offset!(task_stack));
        Regs((stack + u64::from(setting!(thread_size)) - u64::from(setting!(pt_regs_size))) as *const u8)
    }

    /// The address, for reads by helper.
    #[inline(always)]
    pub fn address(self) -> *const u8 {
        self.0
    }
}

/// A load the verifier checks against the pointer's type.
#[inline(always)]
pub fn load<T: Copy>(base: *const u8, offset: u32) -> T {
    // SAFETY: a typed pointer and an offset from BTF; a faulting load reads zeros.
    unsafe { base.add(offset as usize).cast::<T>().read_volatile() }
}

/// A load by helper, from any kernel address.
#[inline(always)]
pub fn probe<T: Copy>(base: *const u8, offset: u32) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the destination has the size given; the source is checked by the helper.
    let ret = unsafe {
        bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            base.wrapping_add(offset as usize).cast(),
        )
    };
    // SAFETY: written when the helper says so.
    (ret == 0).then(|| unsafe { value.assume_init() })
}

#[inline(always)]
pub fn pid_bits_of(tid: u32) -> u8 {
    match PIDS.get_ptr(tid >> 3) {
        // SAFETY: the index is masked to the row's eight bytes.
        Some(row) => unsafe { row.cast::<u8>().add((tid & 7) as usize).read_volatile() },
        None => 0,
    }
}

/// Byte stores: neighbours are never touched, so no atomics are needed.
#[inline(always)]
pub fn set_pid_bits(tid: u32, bits: u8) {
    if let Some(row) = PIDS.get_ptr_mut(tid >> 3) {
        // SAFETY: as above.
        unsafe { row.cast::<u8>().add((tid & 7) as usize).write_volatile(bits) }
    }
}
