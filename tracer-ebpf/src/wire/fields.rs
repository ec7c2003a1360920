//! The kernel structure fields the programs read. Userspace looks each up in the running kernel's BTF and
//! injects the offsets as one read-only global; there are no built-in offsets to fall back on.

/// Offset of a field the running kernel does not have. Code that reads it is cut off by the verifier's
/// dead-code elimination, and the probes that cannot do without it are unavailable.
pub const MISSING: u32 = u32::MAX;

/// Where to find one field. `paths` are the names it had over time, newest first; dots descend.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub structure: &'static str,
    pub paths: &'static [&'static str],
}

macro_rules! fields {
    ($($name:ident: $structure:literal $($path:literal)|+;)*) => {
        /// Byte offsets in the order of [`FIELDS`].
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct Offsets {
            $(pub $name: u32,)*
        }

        pub const FIELDS: &[Field] = &[
            $(Field { name: stringify!($name), structure: $structure, paths: &[$($path),+] },)*
        ];

        impl Offsets {
            pub const NONE: Self = Self { $($name: MISSING,)* };
        }
    };
}

fields! {
    task_state: "task_struct" "__state" | "state";
    task_flags: "task_struct" "flags";
    task_pid: "task_struct" "pid";
    task_tgid: "task_struct" "tgid";
    task_start: "task_struct" "start_boottime" | "real_start_time";
    task_comm: "task_struct" "comm";
    task_stack: "task_struct" "stack";
    task_fsbase: "task_struct" "thread.fsbase";
    task_parent: "task_struct" "real_parent";
    task_cpu: "task_struct" "thread_info.cpu" | "cpu";
    task_nr_cpus: "task_struct" "nr_cpus_allowed";
    task_mask: "task_struct" "cpus_mask.bits" | "cpus_allowed.bits";
    task_files: "task_struct" "files";
    task_min_flt: "task_struct" "min_flt";
    task_maj_flt: "task_struct" "maj_flt";
    task_cfs_rq: "task_struct" "se.cfs_rq";
    task_throttled: "task_struct" "throttled";
    task_exec_id: "task_struct" "self_exec_id";
    task_utask: "task_struct" "utask";
    utask_returns: "uprobe_task" "return_instances";
    return_ip: "return_instance" "orig_ret_vaddr";
    return_sp: "return_instance" "stack";
    return_next: "return_instance" "next";
    cfs_throttle_count: "cfs_rq" "throttle_count";
    regs_orig_ax: "pt_regs" "orig_ax";
    regs_ip: "pt_regs" "ip";
    regs_sp: "pt_regs" "sp";
    regs_bp: "pt_regs" "bp";
    regs_di: "pt_regs" "di";
    regs_si: "pt_regs" "si";
    regs_dx: "pt_regs" "dx";
    regs_r10: "pt_regs" "r10";
    regs_r8: "pt_regs" "r8";
    regs_r9: "pt_regs" "r9";
    files_fdt: "files_struct" "fdt";
    fdt_max: "fdtable" "max_fds";
    fdt_fd: "fdtable" "fd";
    file_inode: "file" "f_inode";
    file_dentry: "file" "f_path.dentry";
    file_private: "file" "private_data";
    inode_sb: "inode" "i_sb";
    inode_ino: "inode" "i_ino";
    inode_rdev: "inode" "i_rdev";
    inode_mode: "inode" "i_mode";
    inode_dentries: "inode" "i_dentry.first";
    dentry_alias: "dentry" "d_u.d_alias" | "d_alias";
    dentry_hash: "dentry" "d_name.hash_len";
    dentry_name: "dentry" "d_name.name";
    dentry_parent: "dentry" "d_parent";
    sb_dev: "super_block" "s_dev";
    sb_magic: "super_block" "s_magic";
    mapping_host: "address_space" "host";
    socket_sk: "socket" "sk";
    sock_family: "sock" "__sk_common.skc_family";
    sock_state: "sock" "__sk_common.skc_state";
    sock_dport: "sock" "__sk_common.skc_dport";
    sock_num: "sock" "__sk_common.skc_num";
    sock_daddr: "sock" "__sk_common.skc_daddr";
    sock_saddr: "sock" "__sk_common.skc_rcv_saddr";
    sock_daddr6: "sock" "__sk_common.skc_v6_daddr";
    sock_saddr6: "sock" "__sk_common.skc_v6_rcv_saddr";
    request_queue: "request" "q";
    request_disk: "request" "rq_disk";
    request_flags: "request" "cmd_flags";
    request_len: "request" "__data_len";
    queue_disk: "request_queue" "disk";
    disk_major: "gendisk" "major";
    disk_minor: "gendisk" "first_minor";
}
