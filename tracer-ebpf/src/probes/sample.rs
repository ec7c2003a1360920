//! CPU samples of targets, by the software clock.

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use tracer_ebpf::wire::{Sample, kind, loss};

use super::fault::current_target;
use crate::task::Current;
use crate::{emit, stack};

#[perf_event]
pub fn cpu_sample(ctx: PerfEventContext) -> u32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    // SAFETY: helpers without arguments.
    let (cpu, at) = unsafe { (bpf_get_smp_processor_id(), bpf_ktime_get_ns()) };
    let thread = Current::get();
    let kernel_stack = stack::kernel(&ctx, stack::PERF);
    let user_stack = if thread.has_user() { stack::user(&ctx, stack::PERF, thread.regs(), pid) } else { 0 };
    let start_boottime = thread.start();
    emit::record::<Sample>(loss::SAMPLE, 0, |out| {
        // SAFETY: a reserved record, every byte of it written here.
        unsafe {
            *out = Sample { kind: kind::SAMPLE, cpu, at, start_boottime, tid, pid, kernel_stack, user_stack };
        }
    });
    0
}
