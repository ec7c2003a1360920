//! What is missing.

use serde::{Deserialize, Serialize};

use super::time::Ns;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossClass {
    OffCpu,
    WaitTotal,
    Lifecycle,
    Sample,
    Stack,
    File,
    Cuda,
    Block,
    Fault,
    /// Records the reader could not read back (damage, cut file).
    Stored,
    /// Calls into the NVIDIA driver's nodes.
    Ioctl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossCause {
    /// The ring buffer was full.
    RingFull,
    /// A kernel map was full.
    MapFull,
    /// The program was skipped because it would have re-entered itself.
    Recursion,
    /// Times that went backward; the record was discarded.
    TimeTravel,
    /// A kernel read failed.
    ReadFault,
    /// Userspace could not keep up.
    Userspace,
    /// The trace file is cut or damaged.
    Damaged,
    /// The record could not be decoded.
    Undecodable,
    /// The kernel did not announce a switch, so a stay has no end. Seen on virtual machines whose own agent
    /// is hidden from tracing: the thread that follows it on a processor arrives unannounced (to `perf` too).
    Unannounced,
}

/// Lost records since the previous one of the same (class, cpu, cause), written at least once a second
/// while any counter moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    pub at: Ns,
    pub class: LossClass,
    /// `None` when the loss belongs to no processor.
    pub cpu: Option<u32>,
    pub cause: LossCause,
    pub count: u64,
    /// How much time the lost records could have covered, 0 where not known.
    pub ns_at_risk: u64,
}
