//! Where a Python thread's interpreter keeps its current frame and instruction.

/// Offset of a step this version of the interpreter does not need.
pub const NO_STEP: u32 = u32::MAX;

/// One thread, by its id. Offsets are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonThread {
    /// Address of its `PyThreadState`.
    pub state: u64,
    /// In it, the pointer to a `_PyCFrame` that holds the frame (3.11, 3.12), else [`NO_STEP`].
    pub cframe: u32,
    /// There, the pointer to the current frame.
    pub frame: u32,
    /// In the frame, the eight bytes that tell the instruction.
    pub instruction: u32,
    pub pad: u32,
}
