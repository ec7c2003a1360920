//! Why: wait chains from each placed gap to the leaf, the taxonomy, the ledger and the gain. Pure.
//!
//! [`attribute`] asks for every gap what the thread that ended it did (`walk`), where each of its waits leads
//! (`waits`, `item`, `claims`), and what it ran (`running`); `merge` joins equal chains into causes and `gain`
//! says what each would give back.

mod blocked;
mod calls;
mod claimed;
mod claims;
mod classify;
mod context;
mod ends;
mod entry;
mod files;
mod gain;
mod gaps;
mod groups;
mod item;
mod jobs;
mod kernel_busy;
mod kernel_locks;
mod kernel_names;
mod kernel_stacks;
mod merge;
mod model;
mod nvidia;
mod place;
mod processors;
mod running;
mod schedule;
mod steps;
mod syscalls;
mod taxonomy;
mod team;
mod terms;
mod user_stacks;
mod verdicts;
mod waits;
mod walk;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

pub use merge::LOST_STACK;
pub use model::*;

pub(crate) use jobs::role;
pub(crate) use merge::seconds;
pub(crate) use nvidia::command as nvidia_command;
pub(crate) use steps::steps;

use crate::idle::DeviceIdle;
use crate::timeline::Timeline;
use crate::trace::OffCpu;
use context::Context;
use walk::Walker;

/// Splits a device's idle time over causes. The causes' `ns` sum to `idle.idle_ns`, given that
/// `idle.placed` and `idle.unplaced` do.
#[must_use]
pub fn attribute(timeline: &Timeline, idle: &DeviceIdle) -> Ledger {
    let walker = Walker::new(Context::of_device(timeline, idle.device), idle);
    let gaps = gaps::gaps(&walker, idle);
    let mut ledger = merge::merge(&walker.context, idle.device, gaps);
    gain::fill(&walker, idle, &mut ledger.causes);
    ledger
}

/// Names waits in words ("read of files in /data"), for reports without a device.
pub(crate) fn wait_words(timeline: &Timeline) -> impl Fn(&OffCpu) -> String {
    let context = Context::new(timeline);
    move |off| waits::describe(&context, off, classify::classify(&context, off))
}
