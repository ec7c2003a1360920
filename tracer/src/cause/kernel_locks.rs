//! Waits for locks of the kernel's own, told from who ended them.
//!
//! A sleeper's stack does not show the lock: kernels leave the functions that sleep (`__sched`) out of it, and all
//! that wait for a lock are among them. The stack of whoever let go of the lock is whole.

use super::context::Context;
use super::kernel_names::best;
use crate::timeline::NamedFrame;
use crate::trace::{OffCpu, WakerContext};

/// What lets the next one have a lock. A waiter for a read-write lock that got it wakes others who may have it too.
const LETS_GO: &[(&str, ())] = &[
    ("mutex_unlock", ()),
    ("__mutex_unlock_slowpath", ()),
    ("ww_mutex_unlock", ()),
    ("rt_mutex_unlock", ()),
    ("rt_mutex_slowunlock", ()),
    ("up_read", ()),
    ("up_write", ()),
    ("downgrade_write", ()),
    ("rwsem_wake", ()),
    ("rwsem_downgrade_wake", ()),
    ("rwsem_down_*", ()),
    ("call_rwsem_wake", ()),
    ("percpu_up_write", ()),
    ("__percpu_up_read", ()),
    ("up", ()),
    ("__up", ()),
];

/// Whether a thread let go of a lock, and that ended the wait.
pub(super) fn ended(context: &Context<'_>, off: &OffCpu) -> bool {
    off.waker
        .as_ref()
        .filter(|waker| waker.context == WakerContext::Task)
        .map(|waker| waker.kernel_stack)
        .is_some_and(|stack| context.verdicts.lets_go(stack, || lets_go(&context.frames(stack))))
}

fn lets_go(frames: &[NamedFrame]) -> bool {
    best(LETS_GO, frames).is_some()
}
