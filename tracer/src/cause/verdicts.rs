//! What single stacks say, found out once each.

use std::cell::RefCell;
use std::collections::HashMap;

use super::kernel_stacks::Sleep;
use crate::trace::StackId;

type Memory<V> = RefCell<HashMap<StackId, V>>;

/// By stack. A chain asks the same of the same few stacks again and again.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    sleeps: Memory<Option<Sleep>>,
    in_fault: Memory<bool>,
    lets_go: Memory<bool>,
    interpreter_lock: Memory<bool>,
    at_barrier: Memory<bool>,
}

impl Verdicts {
    pub(crate) fn sleep(&self, stack: StackId, find: impl FnOnce() -> Option<Sleep>) -> Option<Sleep> {
        once(&self.sleeps, stack, find)
    }

    pub(crate) fn in_fault(&self, stack: StackId, find: impl FnOnce() -> bool) -> bool {
        once(&self.in_fault, stack, find)
    }

    pub(crate) fn lets_go(&self, stack: StackId, find: impl FnOnce() -> bool) -> bool {
        once(&self.lets_go, stack, find)
    }

    pub(crate) fn at_barrier(&self, stack: StackId, find: impl FnOnce() -> bool) -> bool {
        once(&self.at_barrier, stack, find)
    }

    pub(crate) fn interpreter_lock(&self, stack: StackId, find: impl FnOnce() -> bool) -> bool {
        once(&self.interpreter_lock, stack, find)
    }
}

fn once<V: Copy>(memory: &Memory<V>, stack: StackId, find: impl FnOnce() -> V) -> V {
    if let Some(&known) = memory.borrow().get(&stack) {
        return known;
    }
    let found = find();
    memory.borrow_mut().insert(stack, found);
    found
}
