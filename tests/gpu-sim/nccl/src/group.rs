//! Groups: operations between `ncclGroupStart` and the last `ncclGroupEnd` are launched by the latter.

use std::cell::RefCell;

use crate::abi::{Code, NcclResult, answer};
use crate::communicator::{Birth, Communicator};
use crate::driver::{Driver, Meeting};

/// An operation that can be launched.
pub(crate) struct Operation {
    pub(crate) context: usize,
    pub(crate) kernel: usize,
    pub(crate) stream: usize,
    pub(crate) meeting: Meeting,
}

impl Operation {
    fn launch(&self) -> Result<(), Code> {
        let driver = Driver::get()?;
        let before = driver.current().unwrap_or(0);
        if before != self.context {
            driver.set_current(self.context)?;
        }
        let launched = driver.launch(self.kernel, self.stream, &self.meeting);
        if before != self.context {
            driver.set_current(before)?;
        }
        launched
    }
}

#[derive(Default)]
struct Group {
    depth: usize,
    operations: Vec<Operation>,
    births: Vec<Birth>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Launches an operation, at once or with its group.
pub(crate) fn submit(communicator: &Communicator, stream: usize, meeting: Meeting) -> Result<(), Code> {
    let (context, kernel) = (communicator.context, communicator.kernel);
    let operation = Operation { context, kernel, stream, meeting };
    let now = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(operation);
        }
        group.operations.push(operation);
        None
    });
    now.map_or(Ok(()), |operation| operation.launch())
}

/// Waits for the other ranks, at once or at the end of the group.
pub(crate) fn birth(birth: Birth) -> Result<(), Code> {
    let now = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(birth);
        }
        group.births.push(birth);
        None
    });
    now.map_or(Ok(()), Birth::wait)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> NcclResult {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> NcclResult {
    answer(|| {
        let (operations, births) = GROUP.with_borrow_mut(|group| {
            group.depth = group.depth.checked_sub(1).ok_or(Code::INVALID_USAGE)?;
            if group.depth > 0 {
                return Ok((Vec::new(), Vec::new()));
            }
            Ok((std::mem::take(&mut group.operations), std::mem::take(&mut group.births)))
        })?;
        births.into_iter().try_for_each(Birth::wait)?;
        operations.iter().try_for_each(Operation::launch)
    })
}
