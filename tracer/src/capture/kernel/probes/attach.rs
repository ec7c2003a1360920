//! Loading and attaching one program after another; one that fails takes none of the others with it.

use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, KProbe, PerfEvent, Program, ProgramError, UProbe};
use aya::{Btf, Ebpf};

use super::{Hook, PROBES, Probe, UNANNOUNCED};
use crate::capture::kernel::btf::Kernel;
use crate::capture::kernel::kprobes;
use crate::trace::ProbeStatus;

/// Loads and attaches what the kernel allows. Uprobes are only loaded, since they wait for their libraries, and
/// so is what is there on demand.
pub fn attach(ebpf: &mut Ebpf, btf: &Btf, kernel: &Kernel, sample_hz: u64, cpus: &[u32]) -> Vec<ProbeStatus> {
    let mut statuses = Vec::new();
    for probe in PROBES {
        let attached = |name| statuses.iter().any(|s: &ProbeStatus| s.name == name && s.attached);
        if probe.unless.is_some_and(attached) {
            continue;
        }
        let result = match probe.requirements(kernel) {
            Err(_) if stands_aside(probe, kernel) => continue,
            Err(reason) => Err(reason),
            Ok(()) if probe.hook == Hook::Clock && sample_hz == 0 => Err("CPU samples are off".into()),
            Ok(()) => start(ebpf, btf, probe, sample_hz, cpus).map_err(|e| one_line(&e)),
        };
        statuses.push(ProbeStatus {
            name: probe.program.into(),
            attached: result.is_ok(),
            reason: result.err().unwrap_or_default(),
        });
    }
    let unannounced = |(name, reason): &(&str, &str)| ProbeStatus {
        name: (*name).into(),
        attached: false,
        reason: (*reason).into(),
    };
    statuses.extend(UNANNOUNCED.iter().map(unannounced));
    statuses
}

/// A variant whose sibling fits this kernel.
fn stands_aside(probe: &Probe, kernel: &Kernel) -> bool {
    let base = |p: &Probe| p.variant_of.unwrap_or(p.program);
    PROBES
        .iter()
        .any(|p| p.program != probe.program && base(p) == base(probe) && p.requirements(kernel).is_ok())
}

fn start(ebpf: &mut Ebpf, btf: &Btf, probe: &Probe, hz: u64, cpus: &[u32]) -> Result<(), ProgramError> {
    let program = ebpf.program_mut(probe.program).ok_or(ProgramError::NotLoaded)?;
    match probe.hook {
        Hook::Tracepoint { name, .. } => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.load(name, btf)?;
            program.attach()?;
        }
        Hook::OnDemand { name, .. } => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.load(name, btf)?;
        }
        Hook::Clock => {
            every_cpu(program.try_into()?, SoftwareEvent::CpuClock, SamplePolicy::Frequency(hz), cpus)?;
        }
        Hook::MajorFaults => {
            every_cpu(program.try_into()?, SoftwareEvent::PageFaultsMaj, SamplePolicy::Period(1), cpus)?;
        }
        Hook::Uprobe => {
            let program: &mut UProbe = program.try_into()?;
            program.load()?;
        }
        Hook::DriverEntry => {
            let program: &mut KProbe = program.try_into()?;
            program.load()?;
            for entry in kprobes::driver_entries().unwrap_or_default() {
                program.attach(entry, 0)?;
            }
        }
    }
    Ok(())
}

/// Programs that are attached for a while.
#[derive(Debug, Default)]
pub struct OnDemand(Vec<(&'static str, BtfTracePointLinkId)>);

impl OnDemand {
    /// # Errors
    /// One could not be attached; those that could are in place until [`Self::detach`].
    pub fn attach(&mut self, ebpf: &mut Ebpf, names: &[&'static str]) -> Result<(), ProgramError> {
        for name in names {
            let program: &mut BtfTracePoint =
                ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?;
            self.0.push((name, program.attach()?));
        }
        Ok(())
    }

    /// Lets go of what is attached, last attached first.
    pub fn detach(&mut self, ebpf: &mut Ebpf) {
        while let Some((name, link)) = self.0.pop() {
            let program = ebpf.program_mut(name).map(<&mut BtfTracePoint>::try_from);
            if let Some(Ok(program)) = program
                && let Err(error) = program.detach(link)
            {
                tracing::warn!(program = name, %error, "detach");
            }
        }
    }
}

fn every_cpu(
    program: &mut PerfEvent,
    event: SoftwareEvent,
    policy: SamplePolicy,
    cpus: &[u32],
) -> Result<(), ProgramError> {
    program.load()?;
    for cpu in cpus {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu: *cpu };
        program.attach(PerfEventConfig::Software(event), scope, policy, false)?;
    }
    Ok(())
}

/// Detaches and unloads everything.
pub fn detach(ebpf: &mut Ebpf) {
    for (name, program) in ebpf.programs_mut() {
        unload(name, program);
    }
}

/// Detaches and unloads one program; `false` if it was not loaded.
pub fn detach_one(ebpf: &mut Ebpf, name: &str) -> bool {
    ebpf.program_mut(name).is_some_and(|program| unload(name, program))
}

fn unload(name: &str, program: &mut Program) -> bool {
    let unloaded = match program {
        Program::BtfTracePoint(p) => p.unload(),
        Program::PerfEvent(p) => p.unload(),
        Program::UProbe(p) => p.unload(),
        Program::KProbe(p) => p.unload(),
        Program::TracePoint(p) => p.unload(),
        _ => return false,
    };
    match unloaded {
        Ok(()) => true,
        Err(ProgramError::NotLoaded) => false,
        Err(e) => {
            tracing::warn!(program = name, error = %e, "unload");
            false
        }
    }
}

/// The error and its causes; of a verifier log the last line that says something.
fn one_line(error: &ProgramError) -> String {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        tracing::debug!(%verifier_log, "program refused");
        let log = verifier_log.to_string();
        // What the verifier counted comes last.
        let counts = ["processed ", "stack depth ", "verification time "];
        let says = |l: &&str| !l.is_empty() && !counts.iter().any(|c| l.starts_with(c));
        let last = log.lines().rev().find(says).unwrap_or("");
        return format!("the kernel refused the program: {io_error}; {last}");
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}
