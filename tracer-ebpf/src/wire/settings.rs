//! What the kernel side is told at load time, as one read-only global.

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// A ring holding more bytes than this wakes its reader.
    pub wake_bytes: u64,
    pub own_tgid: u32,
    /// Every thread on the host is a target.
    pub all: u32,
    /// Helper `bpf_task_pt_regs` (5.15), else the registers' place is computed from `thread_size`.
    pub have_task_pt_regs: u32,
    /// Helper `bpf_get_current_task_btf` (5.11).
    pub have_current_task_btf: u32,
    /// Helper `bpf_get_attach_cookie` (5.15).
    pub have_cookie: u32,
    pub thread_size: u32,
    pub pt_regs_size: u32,
    /// Diagnostics through aya-log; off, the verifier removes them.
    pub log: u32,
}
