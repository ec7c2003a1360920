//! The taxonomy in words: the contract's names, and what each means for someone who has not read it.

use crate::cause::{Culprit, CulpritKind, Mechanism};

/// The contract's name and a gloss of a few words that completes "the GPU waited for ...".
pub(super) fn mechanism(mechanism: Mechanism) -> (&'static str, &'static str) {
    match mechanism {
        Mechanism::StorageRead => ("storage.read", "file reads"),
        Mechanism::StorageFault => ("storage.fault", "reads of mapped files"),
        Mechanism::StorageMetadata => ("storage.metadata", "opening and listing files"),
        Mechanism::StorageWrite => ("storage.write", "file writes"),
        Mechanism::NetworkRead => ("network.read", "a remote service"),
        Mechanism::NetworkFs => ("network.fs", "a remote file system"),
        Mechanism::PreparePython => ("prepare.python", "Python code"),
        Mechanism::PrepareCompute => ("prepare.compute", "decoding, computing"),
        Mechanism::MemoryFault => ("memory.fault", "fresh memory pages"),
        Mechanism::MemoryReclaim => ("memory.reclaim", "the kernel freeing memory"),
        Mechanism::MemorySwap => ("memory.swap", "swapping"),
        Mechanism::CopyPageable => ("copy.pageable", "copies from unpinned memory"),
        Mechanism::CopyTransfer => ("copy.transfer", "copies to or from the GPU"),
        Mechanism::LaunchBound => ("launch.bound", "many small launches"),
        Mechanism::LaunchSync => ("launch.sync", "synchronising every step"),
        Mechanism::DeviceGap => ("device.gap", "gaps with work queued"),
        Mechanism::DriverIoctl => ("driver.ioctl", "driver calls"),
        Mechanism::DriverAlloc => ("driver.alloc", "GPU memory allocation"),
        Mechanism::DriverLoad => ("driver.load", "loading GPU code"),
        Mechanism::DriverLock => ("driver.lock", "the driver's lock"),
        Mechanism::ScheduleContention => ("schedule.contention", "a processor others use"),
        Mechanism::ScheduleOversubscribed => ("schedule.oversubscribed", "more threads than processors"),
        Mechanism::ScheduleAffinity => ("schedule.affinity", "the processors it is pinned to"),
        Mechanism::ScheduleThrottled => ("schedule.throttled", "the CPU quota"),
        Mechanism::ScheduleSteal => ("schedule.steal", "the hypervisor"),
        Mechanism::LockFutex => ("lock.futex", "a mutex"),
        Mechanism::LockGil => ("lock.gil", "Python's interpreter lock"),
        Mechanism::LockKernel => ("lock.kernel", "a kernel lock"),
        Mechanism::PeerCollective => ("peer.collective", "another rank"),
        Mechanism::IpcWait => ("ipc.wait", "an unseen process"),
        Mechanism::TimerSleep => ("timer.sleep", "a sleep a program asked for"),
        Mechanism::ProcessSpawn => ("process.spawn", "processes starting"),
        Mechanism::ProcessStopped => ("process.stopped", "a stopped process"),
        Mechanism::NoDemand => ("no-demand", "nobody asked for work"),
        Mechanism::Unexplained => ("unexplained", "no reason found"),
    }
}

/// The word that ties a culprit to what was waited for: "under /data", "in libjpeg".
pub(super) fn culprit(culprit: &Culprit) -> (&'static str, &'static str) {
    match culprit.kind {
        CulpritKind::File => ("file", "of"),
        CulpritKind::Directory => ("directory", "under"),
        CulpritKind::Device => ("device", "on"),
        CulpritKind::Function => ("function", "in"),
        CulpritKind::Process => ("process", "because of process"),
        CulpritKind::Cgroup => ("cgroup", "in cgroup"),
        CulpritKind::Lock => ("lock", "on"),
        CulpritKind::Peer => ("peer", "on"),
        CulpritKind::Mask => ("mask", "on"),
        CulpritKind::Library => ("library", "in"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fit::width;

    #[test]
    fn names_are_the_contract_s() {
        let schema = serde_json::to_value(schemars::schema_for!(Mechanism)).expect("a schema");
        let names: Vec<&str> =
            schema["enum"].as_array().expect("an enum").iter().filter_map(|v| v.as_str()).collect();
        assert!(names.len() >= 35, "{names:?}");
        for name in names {
            let value: Mechanism = serde_json::from_value(name.into()).expect("a mechanism");
            let (shown, gloss) = mechanism(value);
            assert_eq!(shown, name);
            assert!(width(gloss) <= 30, "{gloss}");
        }
    }
}
