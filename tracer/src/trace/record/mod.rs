//! What a trace holds: one enum, in storage form.
//!
//! This is deliberately not the form in which records cross the kernel boundary (`tracer_ebpf`): the wire
//! form is fixed-size and shaped by the verifier, this one is shaped by what analysis asks. Everything from
//! `timeline` down reads these types and nothing else, so analysis is tested with records written by hand.
//!
//! Times are nanoseconds on `CLOCK_MONOTONIC` (what `bpf_ktime_get_ns` returns) unless a name says otherwise.
//! Variants are only ever appended: the encoding numbers them by position (see `docs/format.md`).

mod block;
mod cuda;
mod device;
mod file;
mod host;
mod ioctl;
mod loss;
mod memory;
mod stack;
mod thread;
mod time;
mod wait;

use serde::{Deserialize, Serialize};

pub use block::*;
pub use cuda::*;
pub use device::*;
pub use file::*;
pub use host::*;
pub use ioctl::*;
pub use loss::*;
pub use memory::*;
pub use stack::*;
pub use thread::*;
pub use time::*;
pub use wait::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    Host(Host),
    Probe(ProbeStatus),
    Device(Device),
    DeviceProcess(DeviceProcess),
    Reading(Reading),
    Thread(ThreadSeen),
    ThreadExec(ThreadExec),
    ThreadExit(ThreadExit),
    Mapping(Mapping),
    File(File),
    Stack(Stack),
    OffCpu(OffCpu),
    WaitTotal(WaitTotal),
    Sample(Sample),
    MajorFault(MajorFault),
    Block(BlockTotal),
    Submits(Submits),
    CudaCall(CudaCall),
    RanInstead(RanInstead),
    HostTick(HostTick),
    CgroupTick(CgroupTick),
    Loss(Loss),
    Step(GovernorStep),
    Symbol(Symbol),
    Counter(Counter),
    End(End),
    CudaContext(CudaContext),
    CudaWatch(CudaWatch),
    Collective(Collective),
    IoctlTotal(IoctlTotal),
    FileReads(FileReads),
    FaultTotal(FaultTotal),
    Reclaim(Reclaim),
    DeviceActivity(DeviceActivity),
    DeviceState(DeviceState),
    DeviceEvent(DeviceEvent),
    DeviceClock(DeviceClock),
    PythonStack(PythonStack),
    Polled(Polled),
}
