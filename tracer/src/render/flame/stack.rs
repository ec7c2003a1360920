//! Recorded stacks as frames.

use super::frame;
use crate::cause::{LOST_STACK, nvidia_command};
use crate::timeline::Timeline;
use crate::trace::{OffCpu, StackId};

/// Frames from the outermost to the innermost.
pub(super) struct Stack {
    pub(super) frames: Vec<String>,
    /// All parts that are there to be had are, up to the thread's start.
    pub(super) complete: bool,
}

/// User frames, `call`, kernel frames; `[no stack]` where there is none. A kernel thread has no user side to
/// miss.
pub(super) fn stack(
    timeline: &Timeline,
    (user, kernel): (StackId, StackId),
    call: Option<String>,
    kernel_thread: bool,
) -> Stack {
    let mut complete = kernel_thread || user != 0;
    let mut part = |id: StackId, of_kernel: bool| {
        if id != 0 && !timeline.stacks.contains_key(&id) {
            complete = false;
            return vec![LOST_STACK.to_owned()];
        }
        let beyond = timeline.beyond(id).map(|text| frame::safe(&text));
        complete &= beyond.is_none();
        let frames = timeline.frames(id);
        beyond.into_iter().chain(frames.iter().rev().map(|f| frame::function(f, of_kernel))).collect()
    };
    let mut frames = part(user, false);
    frames.extend(call);
    frames.extend(part(kernel, true));
    if frames.is_empty() {
        complete = false;
        frames.push("[no stack]".to_owned());
    }
    Stack { frames, complete }
}

/// The stack of a wait, with the command where it is in a call into the driver.
pub(super) fn of_wait(timeline: &Timeline, wait: &OffCpu, kernel_thread: bool) -> Stack {
    let call = wait.ioctl.map(|ioctl| {
        let file = wait.file.and_then(|id| timeline.files.get(&id));
        frame::safe(&format!("ioctl {}", nvidia_command(file.map(|f| f.rdev >> 20), ioctl)))
    });
    stack(timeline, (wait.user_stack, wait.kernel_stack), call, kernel_thread)
}
