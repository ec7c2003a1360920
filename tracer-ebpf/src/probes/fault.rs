//! File-backed faults and major faults.

use aya_ebpf::bindings::bpf_perf_event_data;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::{btf_tracepoint, perf_event};
use aya_ebpf::programs::{BtfTracePointContext, PerfEventContext};
use tracer_ebpf::wire::{Fault, kind, loss, pid_bits};

use crate::globals::setting;
use crate::maps::THREADS;
use crate::task::{Current, pid_bits_of};
use crate::{emit, file};

#[inline(always)]
pub fn current_target() -> Option<(u32, u32)> {
    let ids = bpf_get_current_pid_tgid();
    let (tid, pid) = (ids as u32, (ids >> 32) as u32);
    let wanted = if setting!(all) != 0 {
        tid != 0 && pid != setting!(own_tgid)
    } else {
        pid_bits_of(tid) & pid_bits::TARGET != 0
    };
    wanted.then_some((tid, pid))
}

/// A page of a file that is not in the page tables: which file and page, should the thread wait for it.
#[btf_tracepoint(function = "mm_filemap_fault")]
pub fn filemap_fault(ctx: BtfTracePointContext) -> i32 {
    let Some((tid, _)) = current_target() else { return 0 };
    let Some(s) = THREADS.get_ptr_mut(tid) else { return 0 };
    let waiter = Current::get();
    if !waiter.has_user() {
        return 0;
    }
    // SAFETY: a live element of the running thread.
    unsafe {
        (*s).fault_file = file::of_mapping(ctx.arg(0));
        (*s).fault_index = ctx.arg(1);
        (*s).fault_ip = waiter.regs().ip();
    }
    0
}

/// `PERF_COUNT_SW_PAGE_FAULTS_MAJ`, period 1: fires when the fault is over.
#[perf_event]
pub fn major_fault(ctx: PerfEventContext) -> u32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    let event: *const bpf_perf_event_data = ctx.ctx;
    let (mut file, mut index) = (0, 0);
    if let Some(s) = THREADS.get_ptr_mut(tid) {
        // SAFETY: a live element of the running thread.
        unsafe {
            if (*s).fault_ip != 0 {
                (file, index) = ((*s).fault_file, (*s).fault_index);
                (*s).fault_ip = 0;
            }
        }
    }
    // SAFETY: the context's own fields; helpers without arguments.
    let (address, cpu, at) = unsafe { ((*event).addr, bpf_get_smp_processor_id(), bpf_ktime_get_ns()) };
    let start_boottime = Current::get().start();
    emit::record::<Fault>(loss::FAULT, 0, |out| {
        // SAFETY: a reserved record, every byte of it written here.
        unsafe {
            *out = Fault { kind: kind::FAULT, cpu, at, start_boottime, tid, pid, address, file, index };
        }
    });
    0
}
