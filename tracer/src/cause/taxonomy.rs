//! The taxonomy's fixed facts: each mechanism's name, stage and kind.

use super::{Mechanism, Stage};

impl Mechanism {
    /// Every mechanism but `unexplained`, in the taxonomy's order.
    pub const ALL: [Self; 34] = [
        Self::StorageRead,
        Self::StorageFault,
        Self::StorageMetadata,
        Self::StorageWrite,
        Self::NetworkRead,
        Self::NetworkFs,
        Self::PreparePython,
        Self::PrepareCompute,
        Self::MemoryFault,
        Self::MemoryReclaim,
        Self::MemorySwap,
        Self::CopyPageable,
        Self::CopyTransfer,
        Self::LaunchBound,
        Self::LaunchSync,
        Self::DeviceGap,
        Self::DriverIoctl,
        Self::DriverAlloc,
        Self::DriverLoad,
        Self::DriverLock,
        Self::ScheduleContention,
        Self::ScheduleOversubscribed,
        Self::ScheduleAffinity,
        Self::ScheduleThrottled,
        Self::ScheduleSteal,
        Self::LockFutex,
        Self::LockGil,
        Self::LockKernel,
        Self::PeerCollective,
        Self::IpcWait,
        Self::TimerSleep,
        Self::ProcessSpawn,
        Self::ProcessStopped,
        Self::NoDemand,
    ];

    /// The name used everywhere outside the program (`storage.read`).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StorageRead => "storage.read",
            Self::StorageFault => "storage.fault",
            Self::StorageMetadata => "storage.metadata",
            Self::StorageWrite => "storage.write",
            Self::NetworkRead => "network.read",
            Self::NetworkFs => "network.fs",
            Self::PreparePython => "prepare.python",
            Self::PrepareCompute => "prepare.compute",
            Self::MemoryFault => "memory.fault",
            Self::MemoryReclaim => "memory.reclaim",
            Self::MemorySwap => "memory.swap",
            Self::CopyPageable => "copy.pageable",
            Self::CopyTransfer => "copy.transfer",
            Self::LaunchBound => "launch.bound",
            Self::LaunchSync => "launch.sync",
            Self::DeviceGap => "device.gap",
            Self::DriverIoctl => "driver.ioctl",
            Self::DriverAlloc => "driver.alloc",
            Self::DriverLoad => "driver.load",
            Self::DriverLock => "driver.lock",
            Self::ScheduleContention => "schedule.contention",
            Self::ScheduleOversubscribed => "schedule.oversubscribed",
            Self::ScheduleAffinity => "schedule.affinity",
            Self::ScheduleThrottled => "schedule.throttled",
            Self::ScheduleSteal => "schedule.steal",
            Self::LockFutex => "lock.futex",
            Self::LockGil => "lock.gil",
            Self::LockKernel => "lock.kernel",
            Self::PeerCollective => "peer.collective",
            Self::IpcWait => "ipc.wait",
            Self::TimerSleep => "timer.sleep",
            Self::ProcessSpawn => "process.spawn",
            Self::ProcessStopped => "process.stopped",
            Self::NoDemand => "no-demand",
            Self::Unexplained => "unexplained",
        }
    }

    /// The pipeline stage it belongs to.
    #[must_use]
    pub fn stage(self) -> Stage {
        match self {
            Self::StorageRead | Self::StorageFault | Self::StorageMetadata | Self::StorageWrite => {
                Stage::Storage
            }
            Self::NetworkRead | Self::NetworkFs => Stage::Network,
            Self::PreparePython | Self::PrepareCompute => Stage::Prepare,
            Self::MemoryFault | Self::MemoryReclaim | Self::MemorySwap => Stage::Memory,
            Self::CopyPageable | Self::CopyTransfer => Stage::Copy,
            Self::LaunchBound | Self::LaunchSync | Self::DeviceGap => Stage::Launch,
            Self::DriverIoctl | Self::DriverAlloc | Self::DriverLoad | Self::DriverLock => Stage::Driver,
            Self::ScheduleContention
            | Self::ScheduleOversubscribed
            | Self::ScheduleAffinity
            | Self::ScheduleThrottled
            | Self::ScheduleSteal => Stage::Schedule,
            Self::LockFutex | Self::LockGil | Self::LockKernel => Stage::Lock,
            Self::PeerCollective => Stage::Peer,
            Self::IpcWait | Self::TimerSleep | Self::ProcessSpawn | Self::ProcessStopped => Stage::Process,
            Self::NoDemand => Stage::NoDemand,
            Self::Unexplained => Stage::Unexplained,
        }
    }

    /// `no-demand` and `unexplained` compete by their own length and never become findings.
    #[must_use]
    pub fn is_finding(self) -> bool {
        !matches!(self, Self::NoDemand | Self::Unexplained)
    }
}

impl std::fmt::Display for Mechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Stage {
    /// As it is serialised.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Network => "network",
            Self::Prepare => "prepare",
            Self::Memory => "memory",
            Self::Copy => "copy",
            Self::Launch => "launch",
            Self::Driver => "driver",
            Self::Schedule => "schedule",
            Self::Lock => "lock",
            Self::Peer => "peer",
            Self::Process => "process",
            Self::NoDemand => "no-demand",
            Self::Unexplained => "unexplained",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_serialised_ones() {
        for mechanism in Mechanism::ALL.into_iter().chain([Mechanism::Unexplained]) {
            assert_eq!(serde_json::to_value(mechanism).unwrap(), mechanism.name());
        }
    }

    #[test]
    fn stage_is_the_first_word_but_for_the_named_exceptions() {
        for mechanism in Mechanism::ALL {
            let stage = serde_json::to_value(mechanism.stage()).unwrap();
            let first = mechanism.name().split('.').next().unwrap();
            match mechanism {
                Mechanism::IpcWait | Mechanism::TimerSleep => assert_eq!(stage, "process"),
                Mechanism::DeviceGap => assert_eq!(stage, "launch"),
                _ => assert_eq!(stage, first),
            }
        }
    }
}
