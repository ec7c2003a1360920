//! CPU samples of targets, by the software clock.

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use tracer_ebpf::wire::{Sample, kind, loss};

use super::fault::current_target;
use crate::maps::{TICKS, sample_every};
use crate::task::Current;
use crate::{emit, stack};

#[perf_event]
pub fn cpu_sample(ctx: PerfEventContext) -> u32 {
    let Some((tid, pid)) = current_target() else { return 0 };
    let periods = sample_every();
    if periods > 1 && !comes_up(periods) {
        return 0;
    }
    // SAFETY: helpers without arguments.
    let (cpu, at) = unsafe { (bpf_get_smp_processor_id(), bpf_ktime_get_ns()) };
    let thread = Current::get();
    let kernel_stack = stack::kernel(&ctx, stack::PERF);
    let user_stack = if thread.has_user() { stack::user(&ctx, stack::PERF, thread.regs(), pid) } else { 0 };
    let start_boottime = thread.start();
    emit::record::<Sample>(loss::SAMPLE, 0, |out| {
        // SAFETY: a reserved record, every byte of it written here.
        unsafe {
            *out = Sample {
                kind: kind::SAMPLE,
                cpu,
                at,
                start_boottime,
                tid,
                pid,
                kernel_stack,
                user_stack,
                periods,
            };
        }
    });
    0
}

/// Whether this tick is one of those that make a sample, one in `every`.
#[inline(always)]
fn comes_up(every: u64) -> bool {
    let Some(ticks) = TICKS.get_ptr_mut(0) else { return false };
    // SAFETY: this processor's own element, and the clock does not interrupt itself.
    let tick = unsafe {
        *ticks = (*ticks).wrapping_add(1);
        *ticks
    };
    tick % every == 0
}
