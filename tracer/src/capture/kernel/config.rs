//! What of the kernel side a recording may choose.

use super::uprobes::Way;

/// What the kernel side is told when it is loaded.
#[derive(Clone, Debug)]
pub struct Config {
    /// Off-CPU intervals shorter than this become totals.
    pub threshold_ns: u64,
    /// CPU samples a second, 0 for none.
    pub sample_hz: u64,
    /// Every thread on the host is a target (own process excepted).
    pub all: bool,
    /// Character-device majors taken as the NVIDIA driver's.
    pub nvidia_majors: Vec<u32>,
    /// Every call into the driver is seen whatever that costs the host's system calls, where the driver's own
    /// entry points cannot be probed; else in bursts.
    pub ioctls: bool,
    /// Threads that may be adopted because they wake targets often.
    pub adopt_cap: u32,
    /// Bytes per ring buffer, a power of two.
    pub ring_bytes: u32,
    /// The best kind of uprobe links that may be used; what the kernel cannot is not used anyway.
    pub uprobe_links: Way,
    /// Reads are counted all the time, not in bursts alone.
    pub reads: bool,
    /// User stacks are walked by tables made of the objects' unwind information; else by frame pointers.
    pub tables: bool,
    /// Python functions are looked for.
    pub python: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threshold_ns: 100_000,
            sample_hz: 99,
            all: false,
            nvidia_majors: vec![195],
            ioctls: false,
            adopt_cap: 64,
            ring_bytes: 8 << 20,
            uprobe_links: Way::Many,
            reads: false,
            tables: true,
            python: true,
        }
    }
}
