//! Probes on a driver library's entry points, by file offset.

use std::path::Path;
use std::thread::{self, JoinHandle};

use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{ProgramError, UProbe};

use super::cuda::EntryPoint;
use super::decode_cuda::family_position;

/// The attached entry points. Dropping it detaches them.
#[derive(Debug, Default)]
pub struct Uprobes {
    links: Vec<UProbeLink>,
}

impl Uprobes {
    /// Attaches the programs one entry point needs, in all processes that map the library.
    ///
    /// # Errors
    /// What the kernel or the loader said, as one line.
    pub fn attach(&mut self, ebpf: &mut Ebpf, library: &Path, point: &EntryPoint) -> Result<(), String> {
        let programs: &[&str] =
            if point.wants_return { &["cuda_return", "cuda_enter"] } else { &["cuda_submit"] };
        for program in programs {
            let entry = ebpf.program_mut(program).ok_or("no such program in the kernel object")?;
            let probe: &mut UProbe = entry.try_into().map_err(|e: ProgramError| e.to_string())?;
            let at = UProbeAttachPoint {
                location: UProbeAttachLocation::AbsoluteOffset(point.file_offset),
                cookie: Some(u64::from(family_position(point.family)) << 32 | u64::from(point.id)),
            };
            let id = probe.attach(at, library, UProbeScope::AllProcesses).map_err(|e| e.to_string())?;
            self.links.push(probe.take_link(id).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    /// Detaches all while the caller goes on.
    #[must_use]
    pub fn detach(self) -> Detaching {
        if self.links.is_empty() {
            return Detaching::default();
        }
        Detaching { closer: Some(thread::spawn(move || drop(self.links))) }
    }
}

/// Driver functions being let go of. The kernel takes a twentieth to a tenth of a second for each, one after
/// another whatever the number of threads that ask (its `event_mutex`), so the report need not wait for it.
/// Dropping this does wait: a process that has ended has nothing attached.
#[derive(Debug, Default)]
pub struct Detaching {
    closer: Option<JoinHandle<()>>,
}

impl Detaching {
    #[must_use]
    pub fn done(&self) -> bool {
        self.closer.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Detaching {
    fn drop(&mut self) {
        if let Some(closer) = self.closer.take() {
            // Closing cannot panic; were it to, there would be nothing to do about it here.
            drop(closer.join());
        }
    }
}
