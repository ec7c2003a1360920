//! The registry: every program of the kernel object, what it hooks, and what the running kernel must have
//! for it. Adding a probe is a file in `tracer-ebpf/src/probes` and a row here.

mod attach;

pub use attach::{OnDemand, attach, detach, detach_one};

use super::btf::Kernel;
use super::kprobes;

/// What a program is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A BTF tracepoint whose prototype has one of `arguments` arguments.
    Tracepoint { name: &'static str, arguments: &'static [usize] },
    /// The same, loaded with the others and attached only while `Tracer` wants it: it runs too often to stay.
    OnDemand { name: &'static str, arguments: &'static [usize] },
    /// The software clock on every processor, at the configured rate.
    Clock,
    /// Every major fault, by the software event.
    MajorFaults,
    /// CUDA entry points, attached per library by `Tracer::attach_cuda`.
    Uprobe,
    /// The NVIDIA driver's entry points, those that are there.
    DriverEntry,
}

/// One program of the object.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Name in the object, at most 15 characters, since the kernel keeps no more.
    pub program: &'static str,
    pub hook: Hook,
    /// Fields it cannot do without; `a|b` is satisfied by either.
    pub fields: &'static [&'static str],
    /// A variant of another program for other kernels: only one of the two can be attached, and the absence
    /// of the other is not worth a line.
    pub variant_of: Option<&'static str>,
    /// Not needed where this one is attached, which sees the same at less cost.
    pub unless: Option<&'static str>,
}

const IDENTITY: &[&str] = &["task_pid", "task_tgid", "task_start", "task_comm", "task_flags", "task_parent"];
const WAITS: &[&str] = &[
    "task_pid",
    "task_tgid",
    "task_start",
    "task_comm",
    "task_flags",
    "task_state",
    "task_stack",
    "task_cpu",
    "task_nr_cpus",
    "task_mask",
    "task_files",
    "regs_orig_ax",
    "regs_ip",
    "regs_sp",
    "regs_di",
    "regs_si",
    "regs_dx",
    "regs_r10",
    "regs_r8",
    "regs_r9",
    "files_fdt",
    "fdt_max",
    "fdt_fd",
    "file_inode",
    "file_dentry",
    "file_private",
    "inode_sb",
    "inode_ino",
    "inode_rdev",
    "inode_mode",
    "dentry_hash",
    "dentry_name",
    "dentry_parent",
    "sb_dev",
    "sb_magic",
];
const DISK: &[&str] =
    &["request_queue", "queue_disk|request_disk", "request_flags", "request_len", "disk_major", "disk_minor"];
const FAULT: &[&str] = &[
    "task_pid",
    "task_start",
    "task_flags",
    "regs_ip",
    "mapping_host",
    "inode_ino",
    "inode_sb",
    "inode_dentries",
    "dentry_alias",
    "dentry_hash",
    "dentry_name",
    "dentry_parent",
    "sb_dev",
    "sb_magic",
];

const IOCTL: &[&str] = &["file_inode", "inode_mode", "inode_rdev"];
const IOCTL_BY_DESCRIPTOR: &[&str] = &[
    "task_files",
    "regs_di",
    "regs_si",
    "regs_dx",
    "files_fdt",
    "fdt_max",
    "fdt_fd",
    "file_inode",
    "inode_mode",
    "inode_rdev",
];
const READ: &[&str] = &[
    "task_files",
    "regs_orig_ax",
    "regs_di",
    "files_fdt",
    "fdt_max",
    "fdt_fd",
    "file_inode",
    "file_dentry",
    "inode_sb",
    "inode_ino",
    "inode_mode",
    "dentry_hash",
    "dentry_name",
    "dentry_parent",
    "sb_dev",
    "sb_magic",
];

/// Nothing of the event itself is read.
const ANY: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8];
/// Pages freed come first; from 7.0 on the cgroup follows.
const FREED: &[usize] = &[1, 2];

/// What no kernel so far announces, and how it is told instead.
pub const UNANNOUNCED: &[(&str, &str)] = &[(
    "swap_in",
    "this kernel has no tracepoint for swapping in; it is told from the kernel stacks of waits",
)];

/// Every program of the object.
pub const PROBES: &[Probe] = &[
    tracepoint("sched_switch", "sched_switch", &[4], WAITS),
    Probe { variant_of: Some("sched_switch"), ..tracepoint("sched_switch_3", "sched_switch", &[3], WAITS) },
    tracepoint("sched_waking", "sched_waking", &[1], WAITS),
    tracepoint("sched_wakeup", "sched_wakeup", &[1], WAITS),
    tracepoint("wakeup_new", "sched_wakeup_new", &[1], WAITS),
    tracepoint("task_newtask", "task_newtask", &[2], IDENTITY),
    tracepoint("task_rename", "task_rename", &[2], IDENTITY),
    tracepoint("process_exec", "sched_process_exec", &[3], IDENTITY),
    tracepoint("process_exit", "sched_process_exit", &[1, 2], IDENTITY),
    tracepoint("block_issue", "block_rq_issue", &[1], DISK),
    Probe { variant_of: Some("block_issue"), ..tracepoint("block_issue_q", "block_rq_issue", &[2], DISK) },
    tracepoint("block_complete", "block_rq_complete", &[3], DISK),
    tracepoint("filemap_fault", "mm_filemap_fault", &[2], FAULT),
    tracepoint("reclaim_begin", "mm_vmscan_direct_reclaim_begin", ANY, &["task_start"]),
    tracepoint("reclaim_end", "mm_vmscan_direct_reclaim_end", FREED, &["task_start"]),
    tracepoint("memcg_begin", "mm_vmscan_memcg_reclaim_begin", ANY, &["task_start"]),
    tracepoint("memcg_end", "mm_vmscan_memcg_reclaim_end", FREED, &["task_start"]),
    tracepoint("compact_begin", "mm_compaction_begin", ANY, &["task_start"]),
    tracepoint("compact_end", "mm_compaction_end", ANY, &["task_start"]),
    on_demand("read_enter", "sys_enter", &[2], READ),
    on_demand("read_exit", "sys_exit", &[2], READ),
    probe("major_fault", Hook::MajorFaults, &["task_start"]),
    probe("cpu_sample", Hook::Clock, &["task_start"]),
    probe("cuda_submit", Hook::Uprobe, &["task_start"]),
    probe("cuda_enter", Hook::Uprobe, &["task_start"]),
    probe("cuda_return", Hook::Uprobe, &["task_start"]),
    probe("ioctl_enter", Hook::DriverEntry, IOCTL),
    probe("ioctl_return", Hook::DriverEntry, IOCTL),
    Probe {
        unless: Some("ioctl_enter"),
        ..on_demand("ioctl_sysenter", "sys_enter", &[2], IOCTL_BY_DESCRIPTOR)
    },
    Probe { unless: Some("ioctl_return"), ..on_demand("ioctl_sysexit", "sys_exit", &[2], &["regs_orig_ax"]) },
];

const fn probe(program: &'static str, hook: Hook, fields: &'static [&'static str]) -> Probe {
    Probe { program, hook, fields, variant_of: None, unless: None }
}

const fn tracepoint(
    program: &'static str,
    name: &'static str,
    arguments: &'static [usize],
    fields: &'static [&'static str],
) -> Probe {
    probe(program, Hook::Tracepoint { name, arguments }, fields)
}

const fn on_demand(
    program: &'static str,
    name: &'static str,
    arguments: &'static [usize],
    fields: &'static [&'static str],
) -> Probe {
    probe(program, Hook::OnDemand { name, arguments }, fields)
}

impl Probe {
    /// Whether the running kernel has what this program needs.
    ///
    /// # Errors
    /// The reason, in one sentence.
    pub fn requirements(&self, kernel: &Kernel) -> Result<(), String> {
        if let Hook::Tracepoint { name, arguments } | Hook::OnDemand { name, arguments } = self.hook {
            match kernel.tracepoint_arguments(name) {
                None => return Err(format!("this kernel has no tracepoint {name}")),
                Some(n) if !arguments.contains(&n) => {
                    return Err(format!("tracepoint {name} has {n} arguments, not {arguments:?}"));
                }
                Some(_) => {}
            }
        }
        if self.hook == Hook::DriverEntry {
            kprobes::driver_entries()?;
        }
        match self.fields.iter().find(|f| !f.split('|').any(|name| kernel.has_field(name))) {
            Some(missing) => Err(format!("this kernel's type information has no field for {missing}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use aya_obj::Object;

    use super::*;

    #[test]
    fn registry_and_object_name_the_same_programs() {
        let object = Object::parse(super::super::load::OBJECT).expect("the embedded object");
        let in_object: BTreeSet<&str> = object.programs.keys().map(String::as_str).collect();
        let in_registry: BTreeSet<&str> = PROBES.iter().map(|p| p.program).collect();
        assert_eq!(in_object, in_registry);
        assert_eq!(in_registry.len(), PROBES.len(), "a program has two rows");
    }

    #[test]
    fn names_fit_the_kernel() {
        for probe in PROBES {
            assert!(probe.program.len() <= 15, "{} is cut by the kernel", probe.program);
        }
    }

    #[test]
    fn requirements_name_fields_of_the_table() {
        let known: BTreeSet<&str> = tracer_ebpf::wire::FIELDS.iter().map(|f| f.name).collect();
        for probe in PROBES {
            for name in probe.fields.iter().flat_map(|f| f.split('|')) {
                assert!(known.contains(name), "{}: no field {name}", probe.program);
            }
        }
    }
}
